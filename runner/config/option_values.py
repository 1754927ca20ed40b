"""How values of settings are written: text in, value out, or a ValueError that says what would be right. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

from runner.config import duration

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
_LOG_LEVELS = {"debug": "debug", "info": "info", "warn": "warning", "warning": "warning", "error": "error"}
_ZAP_LEVELS = {"dpanic": "error", "panic": "error", "fatal": "error"}


def anything(text: str) -> str:
    """Return the text as it is."""
    return text


def boolean(text: str) -> bool:
    """Return the truth of `true`, `false` and what Go takes for them."""
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    raise ValueError(f"{text!r} is neither true nor false")


def verbosity(text: str) -> int:
    """Return how many `-v` ansible-playbook gets."""
    return _integer(text, 0, _HIGHEST_VERBOSITY)


def count(text: str) -> int:
    """Return a number of workers."""
    return _integer(text, 1, None)


def port(text: str) -> int:
    """Return a TCP port; 0 lets one be picked."""
    return _integer(text, 0, _HIGHEST_PORT)


def _integer(text: str, lowest: int, highest: int | None) -> int:
    bounds = f"from {lowest} to {highest}" if highest is not None else f"of at least {lowest}"
    if not re.fullmatch(r"[-+]?[0-9]+", text) or int(text) < lowest or (highest is not None and int(text) > highest):
        raise ValueError(f"{text!r} is not a whole number {bounds}")
    return int(text)


def span(text: str) -> float:
    """Return the seconds of a duration that is not negative."""
    seconds = duration.parse(text)
    if seconds < 0:
        raise ValueError(f"{text!r} is negative; write 0s or more")
    return seconds


def period(text: str) -> float:
    """Return the seconds of a duration; 0 for `off` and what is negative."""
    return 0.0 if text.lower() == "off" else max(duration.parse(text), 0.0)


def quantity(text: str) -> int:
    """Return bytes, written as Kubernetes writes them: `512Mi`, `2G`, `1073741824`."""
    found = _QUANTITY.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no size; write one like 512Mi, 2Gi, or 0 for no limit")
    return int(found[1]) * _UNITS[found[2]]


def names(text: str) -> frozenset[str]:
    """Return the names of a comma list, in no order."""
    return frozenset(namespaces(text))


def address(text: str) -> str:
    """Return `host:port`, `:port` or `0`."""
    found = _ADDRESS.fullmatch(text)
    if text == "0" or (found and int(found[2]) <= _HIGHEST_PORT):
        return text
    raise ValueError(f"{text!r} is no address; write host:port, :port for all interfaces, or 0 for none")


def loopback(text: str) -> str:
    """Return an address on loopback, or `0`: what is shown there is for whoever is on this machine."""
    host = address(text).rpartition(":")[0].strip("[]")
    if text == "0" or host == "localhost":
        return text
    try:
        if ipaddress.ip_address(host).is_loopback:
            return text
    except ValueError:
        pass
    raise ValueError(
        f"{text!r} is not on loopback; write 127.0.0.1:PORT, [::1]:PORT or localhost:PORT, or 0 for none, and come "
        "from elsewhere by kubectl port-forward or ssh -L"
    )


def namespaces(text: str) -> tuple[str, ...]:
    """Return the names of a comma list, each once."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def lease_name(text: str) -> str:
    """Return a name that Leases may have, also with a shard's number behind it; or nothing."""
    if not text or _LEASE_NAME.fullmatch(text):
        return text
    raise ValueError(f"{text!r} is no name of a Lease; write lower-case letters, digits, dots and dashes, at most 200")


def one_of(*choices: str) -> Callable[[str], str]:
    """Return what takes one of these words, in any case."""

    def parse(text: str) -> str:
        if text.lower() in choices:
            return text.lower()
        raise ValueError(f"{text!r} is not known; write {', '.join(choices[:-1])} or {choices[-1]}")

    return parse


def log_level(text: str) -> str:
    """Return one of our four levels for those of zap as well, where a number says more the higher it is."""
    known = _LOG_LEVELS | _ZAP_LEVELS
    if text.lower() in known:
        return known[text.lower()]
    if text.isdecimal() and int(text) > 0:
        return "debug"
    raise ValueError(f"{text!r} is no log level; write {', '.join(dict.fromkeys(_LOG_LEVELS.values()))}")
