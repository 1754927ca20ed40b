"""Code of a hostile role in the pod of its run: attacks the agent and the worker that run it."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

ENDLESS = 70 << 20
"""More than the agent accepts for one line."""


def worker() -> int:
    """Return the process `ansible-runner worker`: its parent is the agent, the first process of the container."""
    for folder in Path("/proc").glob("[0-9]*"):
        words = (folder / "cmdline").read_bytes().split(b"\0")
        if b"worker" in words and (folder / "stat").read_text().rpartition(")")[2].split()[1] == "1":
            return int(folder.name)
    raise LookupError("no worker")


def write(*pieces: bytes) -> None:
    """Write into the pipe between worker and agent."""
    with Path(f"/proc/{worker()}/fd/1").open("wb", buffering=0) as pipe:
        pipe.writelines(pieces)


def event(**members: object) -> bytes:
    """Return an event with the number of the run, which its code can read."""
    number = int(os.environ["PROJECT_UPDATE_ID"])
    return json.dumps({"uuid": "0-1", "counter": 1, "project_update_id": number, **members}).encode() + b"\n"


def stop() -> None:
    os.kill(1, signal.SIGTERM)


ATTACKS = {
    "words": lambda: write(b"\nno JSON\n"),
    "type": lambda: write(b"\n", event(event="runner_on_ok", event_data={"task_action": ["x"]})),
    "endless": lambda: write(*[b"x" * (1 << 20)] * (ENDLESS >> 20)),
    "stop": stop,
}

if __name__ == "__main__":
    ATTACKS[sys.argv[1]]()
