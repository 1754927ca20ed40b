"""Platforms of the warm engine: Linux, and the versions of ansible-core with which it was tested."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, version

OLDEST, NEWEST = (2, 18), (2, 21)
"""Versions of ansible-core, both tested."""


def problem() -> str | None:
    """Return why the warm engine cannot be used here; None if it can."""
    if sys.platform != "linux":
        return f"it needs Linux, and this is {sys.platform}"
    try:
        installed = version("ansible-core")
    except PackageNotFoundError:
        return "ansible-core is not installed for this Python"
    return problem_of(installed)


def problem_of(installed: str) -> str | None:
    """Return why this version of ansible-core is outside the tested range."""
    found = re.match(r"(\d+)\.(\d+)", installed)
    if found and OLDEST <= (int(found[1]), int(found[2])) <= NEWEST:
        return None
    oldest, newest = (".".join(map(str, each)) for each in (OLDEST, NEWEST))
    return f"ansible-core {installed} is installed, and it was tested with {oldest} to {newest}"
