"""Versions by https://semver.org. Pure."""

from __future__ import annotations

import re

_SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?")
_Key = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]


def is_version(text: str) -> bool:
    """Return True if the text is a version without `v`."""
    return _SEMVER.fullmatch(text) is not None


def key(text: str) -> _Key:
    """Return the sort key of a version. A version with a suffix is lower than the same version without one.

    Raises:
        ValueError: `text` is not a version.
    """
    found = _SEMVER.fullmatch(text)
    if found is None:
        raise ValueError(text)
    parts = (found[4] or "").split(".") if found[4] else []
    suffix = tuple((not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts)
    return int(found[1]), int(found[2]), int(found[3]), not parts, suffix
