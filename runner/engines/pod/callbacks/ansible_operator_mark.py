"""Callback that marks the events of a run, so that text in its output cannot imitate them.

Runs inside ansible-playbook in the pod of a run. ansible-runner searches the output of ansible-playbook for marks of
events. A role can print text of a resource that looks like such marks. ansible-runner adds the number in `VARIABLE` to
each real event. This callback sets a number that only the run and the operator know, see `runner.engines.pod.stream`.

Must not import anything of the operator, because the image is another one.
"""  # noqa: INP001 - Ansible loads it by its path

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: ansible_operator_mark
type: aggregate
short_description: marks the events of a run
description:
  - Part of the Ansible operator. Not to be enabled by hand.
"""

VARIABLE = "PROJECT_UPDATE_ID"
"""Variable of ansible-runner, which adds its value to events as `project_update_id`."""


class CallbackModule(CallbackBase):  # type: ignore[misc]  # Ansible has no types
    """Ansible's callback plugin."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "ansible_operator_mark"

    def __init__(self) -> None:
        super().__init__()
        # Without the file, events count as text.
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            config = json.loads(Path(os.environ["K8S_AUTH_KUBECONFIG"]).read_bytes())
            os.environ[VARIABLE] = str(mark(config["users"][0]["user"]["token"]))


def mark(token: str) -> int:
    """Return the number of a run's events; same as in `runner.engines.pod.stream`."""
    return int.from_bytes(hashlib.sha256(f"events of {token}".encode()).digest()[:6], "big")
