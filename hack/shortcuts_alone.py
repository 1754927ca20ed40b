"""Run the self-test of the warm engine with each shortcut alone.

`python -m hack.shortcuts_alone SCRATCH [SHORTCUT ...]`

Prints a line of JSON for each shortcut, or for those that are named: its name, and why the self-test failed (empty if
it passed). Without names, the last line is for all together. `next_core` runs this in the environment of another
ansible-core.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.engines.warm import procfs
from runner.engines.warm.messages import Load
from runner.engines.warm.server import server

_NEEDS = {"clients": ("modules",)}
"""Shortcuts that another one is part of."""
_WITHOUT_TEST = frozenset({"sharing"})
"""It changes how memory is laid out, after the self-test."""


def main(scratch: Path, names: Sequence[str]) -> None:
    """Load Ansible as a fork server does, and run the self-test for each shortcut."""
    shown = procfs.take_over()
    for name in ("ANSIBLE_LOCAL_TEMP", "TMPDIR", "KUBECONFIG"):
        os.environ[name] = str(scratch / name)
    (scratch / "TMPDIR").mkdir()
    refresh, made = server.prepare(shown, scratch, Load())
    from runner.engines.warm.patches import shortcuts  # noqa: PLC0415 - it imports Ansible
    from runner.engines.warm.server import self_test  # noqa: PLC0415 - as above

    for name in names or (*(each for each in shortcuts.NAMES if each not in _WITHOUT_TEST), "all"):
        on = {name, *_NEEDS.get(name, ())}
        off = frozenset() if name == "all" else frozenset(shortcuts.NAMES) - on
        found = self_test.run(refresh, made, scratch, off)
        reasons = (*(f"{each}: {reason}" for each, reason in found.disabled.items()), *found.problems)
        print(json.dumps({"shortcut": name, "problem": "; ".join(reasons)}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
