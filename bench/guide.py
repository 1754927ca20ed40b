"""How soon a newcomer sees a first resource whose role has run, and by how many commands. `python -m bench.guide`.

Follows docs/guide.md as its test does, from the installed wheel, up to the first resource. Counted from the empty
folder on: installing, and getting the control plane's programs, come before it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.results import Result, show, tell
from tests.kit.newcomer import Figures, arriving, build_wheel

_CASE = "guide"


def results(figures: Figures) -> list[Result]:
    """Return both figures, with their goals."""
    return [
        Result(_CASE, "empty folder to first reconciled resource", figures.seconds, "s", 60),
        Result(_CASE, "commands typed for it", figures.commands, "commands", 5),
    ]


def main() -> int:
    """Follow the guide as far as that; return the exit code."""
    with tempfile.TemporaryDirectory(prefix="ansible-operator-bench-") as folder:
        home, dist = Path(folder, "home"), Path(folder, "dist")
        home.mkdir()
        tell("guide: building the wheel")
        wheel = build_wheel(dist)
        with arriving(home, wheel) as newcomer:
            newcomer.follow(to_first_resource=True)
    if newcomer.figures is None:
        tell("guide: it comes to no resource")
        return 1
    for each in results(newcomer.figures):
        show(each)
    return 0


if __name__ == "__main__":
    sys.exit(main())
