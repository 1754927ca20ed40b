"""What operator and supervisor say to each other, over the supervisor's standard streams.

To it: a line of JSON, the `Order`; later perhaps the line `STOP`. From it: frames, each a byte for the `Kind`, four for
the length, and JSON; events in order, then the ending. Imports nothing heavy: both ends need it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

PER_RUN = frozenset(
    {"ANSIBLE_LOCAL_TEMP", "ANSIBLE_OPERATOR_RUN_ID", "K8S_AUTH_KUBECONFIG", "KUBECACHEDIR", "KUBECONFIG", "TMPDIR"}
)
"""Variables of the environment that differ between two runs of an operator: the run's name, and paths."""
HEADER = struct.Struct(">BI")
STOP = b"stop\n"
LEARNED = "learned"
"""File among a run's temporary ones that takes what it loaded, for the next one; a line of JSON at a time."""
GRACE = 2.0
"""Seconds between asking the processes of a run to end and killing them."""


class Kind(IntEnum):
    """What a frame holds."""

    EVENT = 1
    ENDING = 2


@dataclass(frozen=True, slots=True)
class Order:
    """What to run: the first line on stdin."""

    run_dir: str
    ident: str
    playbook: str
    inventory: str
    verbosity: int
    ansible_args: str
    kubeconfig: str
    temporary: str
    memory: int
    """Bytes that all processes of the run may use together; 0: as many as they like."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How `ansible-playbook` ended: its exit code, or the signal that killed it, or why it could not be started."""

    code: int | None
    signal: int | None
    error: str
    alone: bool
    """Whether nothing is left below the supervisor; nothing escapes it, so then nothing of the run is left."""
    learned: str
    """The lines of `LEARNED`."""
    memory: int = 0
    """Bytes that the run used when it was ended for using too many; else 0."""
    executions: Mapping[str, Any] = field(default_factory=dict)
    """How its tasks were executed: the result of `executions.add_up`."""
