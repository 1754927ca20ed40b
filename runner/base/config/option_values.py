"""Parsers of option values. Each raises ValueError with advice. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from runner.base.config import duration

Choice = TypeVar("Choice", bound=str)
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\s]*):([0-9]{1,5})")
_HIGHEST_PORT = 65_535
_HIGHEST_VERBOSITY = 7
_QUANTITY = re.compile(r"([0-9]{1,15})(Ki|Mi|Gi|Ti|k|M|G|T|)")
_UNITS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
}
_LEASE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,198}[a-z0-9])?")
_TRUE = {"1", "t", "true"}
_FALSE = {"0", "f", "false"}
_LOG_LEVELS: dict[str, LogLevel] = {
    "debug": "debug",
    "info": "info",
    "warn": "warning",
    "warning": "warning",
    "error": "error",
}
_ZAP_LEVELS: dict[str, LogLevel] = {"dpanic": "error", "panic": "error", "fatal": "error"}


def optional_text(text: str) -> str | None:
    """Return None for an empty text."""
    return text or None


def absolute_path(text: str) -> Path:
    """Return a path, relative to the working directory, as absolute."""
    return Path(text).absolute()


def optional_path(text: str) -> Path | None:
    """Return an absolute path; None for an empty text."""
    return absolute_path(text) if text else None


def arguments(text: str) -> str:
    """Return arguments for a program without single quotes around the whole text, as the Go operator does.

    In a list of a manifest, `--ansible-args='--diff'` keeps the quotes that a shell would remove.
    """
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text


def boolean(text: str) -> bool:
    """Return a boolean in Go's spellings."""
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    raise ValueError(f"invalid boolean {text!r}: use true or false")


def verbosity(text: str) -> int:
    """Return the number of `-v` for ansible-playbook."""
    return _integer(text, 0, _HIGHEST_VERBOSITY)


def count(text: str) -> int:
    """Return a number of at least 1."""
    return _integer(text, 1, None)


def port(text: str) -> int:
    """Return a TCP port; 0 means a free one."""
    return _integer(text, 0, _HIGHEST_PORT)


def _integer(text: str, lowest: int, highest: int | None) -> int:
    bounds = f"from {lowest} to {highest}" if highest is not None else f"of at least {lowest}"
    if not re.fullmatch(r"[-+]?[0-9]+", text) or int(text) < lowest or (highest is not None and int(text) > highest):
        raise ValueError(f"invalid number {text!r}: use a whole number {bounds}")
    return int(text)


def span(text: str) -> float:
    """Return the seconds of a duration that is not negative."""
    seconds = duration.parse(text)
    if seconds < 0:
        raise ValueError(f"invalid duration {text!r}: use 0s or more")
    return seconds


def period(text: str) -> float:
    """Return the seconds of a duration; 0 for `off` and for negative durations."""
    return 0.0 if text.lower() == "off" else max(duration.parse(text), 0.0)


def quantity(text: str) -> int:
    """Return the bytes of a Kubernetes quantity: `512Mi`, `2G`, `1073741824`."""
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise ValueError(
            f"invalid size {text!r}: use a number with an optional suffix such as 512Mi or 2Gi, or 0 for no limit"
        )
    return int(match[1]) * _UNITS[match[2]]


def names(text: str) -> frozenset[str]:
    """Return the names in a comma-separated list."""
    return frozenset(namespaces(text))


def address(text: str) -> str:
    """Return `host:port`, `:port` or `0`."""
    match = _ADDRESS.fullmatch(text)
    if text == "0" or (match and int(match[2]) <= _HIGHEST_PORT):
        return text
    raise ValueError(f"invalid address {text!r}: use host:port, :port for all interfaces, or 0 to disable")


def loopback(text: str) -> str:
    """Return a loopback address or `0`."""
    host = address(text).rpartition(":")[0].strip("[]")
    if text == "0" or host == "localhost":
        return text
    try:
        if ipaddress.ip_address(host).is_loopback:
            return text
    except ValueError:
        pass
    raise ValueError(
        f"invalid loopback address {text!r}: use 127.0.0.1:PORT, [::1]:PORT, localhost:PORT, or 0 to disable. For "
        "access from other machines use kubectl port-forward or ssh -L"
    )


def namespaces(text: str) -> tuple[str, ...]:
    """Return the distinct names in a comma-separated list."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def lease_name(text: str) -> str:
    """Return a name of a Lease; it can be empty."""
    if not text or _LEASE_NAME.fullmatch(text):
        return text
    raise ValueError(f"invalid Lease name {text!r}: use at most 200 lower-case letters, digits, dots and dashes")


def one_of(*choices: Choice) -> Callable[[str], Choice]:
    """Return a parser of these words that ignores case."""

    def parse(text: str) -> Choice:
        for choice in choices:
            if text.lower() == choice:
                return choice
        raise ValueError(f"invalid value {text!r}: use {', '.join(choices[:-1])} or {choices[-1]}")

    return parse


def log_level(text: str) -> LogLevel:
    """Return the log level for a name, or for a level of zap; a positive number is `debug`."""
    known = _LOG_LEVELS | _ZAP_LEVELS
    if text.lower() in known:
        return known[text.lower()]
    if text.isdecimal() and int(text) > 0:
        return "debug"
    raise ValueError(f"invalid log level {text!r}: use debug, info, warning or error")
