"""Commands of `ansible-operator`, typed in the process of a test."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TypeAlias

import pytest

from runner.cli import main

Type: TypeAlias = Callable[[str], tuple[int, str, str]]
"""Type a line; return the exit code, and what was printed as output and as errors."""


def typing(capsys: pytest.CaptureFixture[str]) -> Type:
    """Return what types commands."""

    def run(line: str) -> tuple[int, str, str]:
        code = main.main(shlex.split(line))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run
