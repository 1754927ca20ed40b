"""Platforms of the warm engine: Linux, and the versions of ansible-core with which it was tested.

These are the versions that their developers support, and 2.18, which the Go operator's image has: see docs/engine.md.
`exec` has no such limit: it runs each version that the package's requirements allow.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

WARM_UNTIL: Mapping[tuple[int, int], dt.date] = {
    (2, 18): dt.date(2027, 5, 31),
    (2, 20): dt.date(2027, 5, 31),
    (2, 21): dt.date(2027, 11, 30),
    (2, 22): dt.date(2028, 5, 31),
}
"""Last day of the warm engine for each version: the end of its support by its developers, except for 2.18."""
CORES = tuple(WARM_UNTIL)
"""Versions of ansible-core, all tested."""
SLOW = "Slow engine: each run starts new interpreters (engine exec), which can take ten times as long"
"""Warning if `auto` cannot use the warm engine."""


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
    """Return why this version of ansible-core is not among the tested ones."""
    match = re.match(r"(\d+)\.(\d+)", installed)
    if match and (int(match[1]), int(match[2])) in CORES:
        return None
    *others, newest = (f"{major}.{minor}" for major, minor in CORES)
    return f"ansible-core {installed} is installed; install one of {', '.join(others)} and {newest}, which are tested"
