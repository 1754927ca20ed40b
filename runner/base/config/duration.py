"""Parser and writer of durations in Go's format (`1h2m3.5s`, `500ms`, `0`), in seconds.

`parse` accepts the same texts as Go's `time.ParseDuration` (https://pkg.go.dev/time#ParseDuration), with nanosecond
precision, and the output of `format`.
"""

from __future__ import annotations

import re
from fractions import Fraction

_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,  # micro sign
    "\u03bcs": 1_000,  # Greek letter mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_SECOND = _NANOSECONDS["s"]
_LONGEST = 2**63 - 1  # nanoseconds; Go's Duration is an int64

_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]+)")
_ADVICE = "use numbers with a unit (ns, us, ms, s, m, h), such as 90s, 10m or 1h30m"


def parse(text: str) -> float:
    """Return the seconds of a duration. Raises ValueError with advice."""
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if digits == "0":
        return 0.0
    total = position = 0
    while position < len(digits):
        part = _PART.match(digits, position)
        if part is None:
            raise ValueError(f"invalid duration {text!r}: no unit after {digits[position:]!r}; {_ADVICE}")
        total += _nanoseconds(text, part)
        position = part.end()
    if not position:
        raise ValueError(f"invalid duration {text!r}: no number; {_ADVICE}")
    negative = text.startswith("-")
    if total > _LONGEST + negative:
        raise ValueError(f"invalid duration {text!r}: the maximum is about 292 years")
    return -total / _SECOND if negative and total else total / _SECOND


def format(seconds: float) -> str:  # noqa: A001 - called as duration.format, the twin of duration.parse
    """Return `1h2m3.5s` without units that are zero; less than a second as `500ms`, `20us` or `7ns`."""
    total = round(Fraction(seconds) * _SECOND)
    sign, total = ("-", -total) if total < 0 else ("", total)
    if total == 0:
        return "0s"
    if total < _SECOND:
        unit = next(name for name in ("ms", "us", "ns") if total >= _NANOSECONDS[name])
        return f"{sign}{_decimal(total, _NANOSECONDS[unit])}{unit}"
    hours, total = divmod(total, _NANOSECONDS["h"])
    minutes, total = divmod(total, _NANOSECONDS["m"])
    parts = [
        f"{hours}h" if hours else "",
        f"{minutes}m" if minutes else "",
        f"{_decimal(total, _SECOND)}s" if total else "",
    ]
    return sign + "".join(parts)


def _nanoseconds(text: str, part: re.Match[str]) -> int:
    whole, fraction, unit = part.group(1), part.group(2) or "", part.group(3)
    if not whole and not fraction:
        raise ValueError(f"invalid duration {text!r}: no number before {unit!r}; {_ADVICE}")
    scale = _NANOSECONDS.get(unit)
    if scale is None:
        raise ValueError(f"invalid duration {text!r}: unknown unit {unit!r}; {_ADVICE}")
    precision: int = 10 ** len(fraction)
    return int(whole or "0") * scale + int(fraction or "0") * scale // precision


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    fraction = f"{rest:0{len(str(unit)) - 1}d}".rstrip("0") if rest else ""
    return f"{whole}.{fraction}" if fraction else str(whole)
