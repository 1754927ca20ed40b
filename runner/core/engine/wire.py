"""Protocol between operator and supervisor, over the supervisor's standard streams.

The operator sends a line of JSON, the `Order`, and later optionally the line `STOP`. The supervisor sends frames: a
byte for the `Kind`, four for the length, and JSON. Events are in order, and the ending is last. Imports nothing heavy,
because both sides need it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

PER_RUN = frozenset(
    {
        *("ANSIBLE_LOCAL_TEMP", "ANSIBLE_OPERATOR_RUN_ID", "K8S_AUTH_KUBECONFIG", "KUBECACHEDIR", "KUBECONFIG"),
        *("OSDK_METRICS_ADDRESS", "TMPDIR"),
    }
)
"""Environment variables that are known when a run starts: its name, paths, and addresses of servers in the operator."""
HEADER = struct.Struct(">BI")
STOP = b"stop\n"
LEARNED = "learned"
"""File in a run's temporary folder with its notes for the starter of later runs; one JSON object a line."""
ARTIFACTS = "artifacts"
"""Folder of ansible-runner's own artifacts in a run's temporary folder. The operator writes those that are kept."""
GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL to the processes of a run."""


class Kind(IntEnum):
    """Kind of a frame."""

    EVENT = 1
    ENDING = 2


@dataclass(frozen=True, slots=True)
class Order:
    """Description of the run: the first line on stdin."""

    run_dir: str
    ident: str
    playbook: str
    inventories: list[str]
    verbosity: int
    ansible_args: str
    kubeconfig: str
    temporary: str
    memory: int
    """Bytes that all processes of the run may use together; 0 is unlimited."""
    facts: str = ""
    """Folder with facts of hosts that the next run uses; empty: facts are kept during the run only."""


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """How `ansible-playbook` ended: its exit code, the signal that killed it, or the error that prevented its start."""

    code: int | None
    signal: int | None
    error: str
    alone: bool
    """True if no process is left below the supervisor. None can escape it, so then no process of the run is left."""
    learned: str
    """Lines of `LEARNED`."""
    memory: int = 0
    """Bytes that the run used when the memory limit ended it; else 0."""
    status: str = ""
    """ansible-runner's own status and exit code of the run, for the files with these names."""
    rc: int | None = None
    stuck: bool = False
    """Whether it was ended because it did not continue after the kernel had killed a process of it."""
