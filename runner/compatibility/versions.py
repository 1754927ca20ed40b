"""Versions, and the first ansible-core whose templates and conditions differ. Pure."""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import TypeAlias

Version: TypeAlias = tuple[int, ...]
_STRICTER = (2, 19)


def is_stricter() -> bool:
    """Return whether the installed ansible-core differs from the Go operator's in templates and conditions."""
    return numbers(version("ansible-core"))[:2] >= _STRICTER


def numbers(text: str) -> Version:
    """Return the numbers of a version; empty if it begins with none."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()
