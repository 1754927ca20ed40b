"""An operator that notes which functions its main thread calls.

`python way.py NOTES FLAG ARGUMENTS...` runs `ansible-operator ARGUMENTS`. Each call of a function of the package
`runner` is a line of NOTES, once the file FLAG exists: its file, and its name.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import runner
from runner.cli.main import main

PACKAGE = Path(runner.__file__).parent


def follow(notes: Path, flag: Path) -> None:
    """Note the calls of this thread from now on."""
    sink = notes.open("a", encoding="utf-8", buffering=1)
    root = f"{PACKAGE.parent}/"
    begun = False

    def called(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal begun
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(f"{PACKAGE}/"):
            return
        begun = begun or flag.exists()
        if begun:
            sink.write(f"{file.removeprefix(root)} {frame.f_code.co_qualname}\n")

    sys.setprofile(called)


if __name__ == "__main__":
    noted, begin, *arguments = sys.argv[1:]
    follow(Path(noted), Path(begin))
    sys.exit(main(arguments))
