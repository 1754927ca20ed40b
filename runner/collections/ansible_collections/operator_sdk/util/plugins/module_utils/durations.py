"""Durations as Go writes them: `1h30m`, `500ms`, `1.5h`. Pure.

https://pkg.go.dev/time#ParseDuration
"""

from __future__ import annotations

import re

_UNITS = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)", re.ASCII)
_WHOLE = re.compile(rf"([+-]?)(0|(?:{_PART.pattern})+)", re.ASCII)
_LIMIT = (2**63 - 1) / 1e9
"""Seconds: Go counts nanoseconds in 64 bits."""


def seconds(text: str) -> float:
    """Return a duration in seconds. Raises ValueError with a sentence if it is invalid or negative."""
    match = _WHOLE.fullmatch(text)
    if not match:
        raise ValueError(
            f"{text!r} is no duration: give numbers with units (h, m, s, ms, us, ns) and no spaces, "
            "such as 30s, 1h30m or 500ms"
        )
    length = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(match.group(2)))
    if match.group(1) == "-" and length:
        raise ValueError(f"{text!r} lies in the past: give a duration of zero or more")
    if length > _LIMIT:
        raise ValueError(f"{text!r} is too long: the longest duration is about 292 years")
    return length
