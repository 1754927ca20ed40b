"""Translation of commands of `dnf`, `microdnf` and `yum` to `apt-get`, with names of Debian packages."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_MANAGER = re.compile(r"\b(dnf|microdnf|yum)\b")
_OTHER = re.compile(r"(?<![\w/.=-])(rpm|subscription-manager|update-alternatives|alternatives)\s")
_SEPARATOR = re.compile(r"\s*(?:\\\s*\n\s*)*(&&|\|\||;)\s*(?:\\\s*\n\s*)*")
_KNOWN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_NAMES: Mapping[str, str] = _KNOWN["names"]
"""Debian's names of packages, where they differ."""
_SAME = frozenset(_KNOWN["same"])
"""Packages of the same name."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*")
_UPDATE = "apt-get update"
_FORGET = "rm -rf /var/lib/apt/lists/*"
_MANAGERS = (["dnf"], ["microdnf"], ["yum"])
_VERBS = {
    "install": f"{_UPDATE} && apt-get install --yes --no-install-recommends {{}}",
    "update": f"{_UPDATE} && apt-get upgrade --yes",
    "upgrade": f"{_UPDATE} && apt-get upgrade --yes",
    "remove": "apt-get purge --yes --auto-remove {}",
    "erase": "apt-get purge --yes --auto-remove {}",
    "clean": _FORGET,
    "makecache": _UPDATE,
}
"""Commands of apt-get for commands of dnf; `{}` are the packages."""


@dataclass(frozen=True, slots=True)
class Translation:
    """Shell commands for Debian. `uncertain`: packages whose names may differ there."""

    text: str
    uncertain: tuple[str, ...]


def is_foreign(script: str) -> bool:
    """Return whether a script uses a program that Debian does not have."""
    return bool(_MANAGER.search(script) or _OTHER.search(script))


def translate(script: str) -> Translation | None:
    """Return a script with its package commands translated; None if one of them has no plain translation."""
    pieces = _SEPARATOR.split(script.strip())
    commands, separators = pieces[::2], pieces[1::2]
    translated: list[str] = []
    uncertain: list[str] = []
    for command in commands:
        if not is_foreign(f"{command} "):
            translated.append(command)
            continue
        translation = None if _OTHER.search(f"{command} ") else _command(command)
        if translation is None:
            return None
        translated.append(translation.text)
        uncertain += translation.uncertain
    return Translation(_joined(translated, separators), tuple(dict.fromkeys(uncertain)))


def _command(command: str) -> Translation | None:
    """Translate one command; an empty text means that it is not necessary."""
    try:
        words = shlex.split(command.replace("\\\n", " "))
    except ValueError:
        return None
    if words[:1] == ["rm"] and all("/var/cache" in word for word in words[1:] if not word.startswith("-")):
        return Translation("", ())
    words = words[1:] if words[:1] == ["sudo"] else words
    if words[:1] not in _MANAGERS:
        return None
    verb, *names = [word for word in words[1:] if not word.startswith("-")] or [""]
    takes_names = verb in {"install", "remove", "erase"}
    if takes_names and (not names or not all(map(_PLAIN_NAME.fullmatch, names))):
        return None
    debian = " ".join(dict.fromkeys(_NAMES.get(name, name) for name in names))
    text = _VERBS.get(verb)
    uncertain = tuple(name for name in names if name not in _NAMES and name not in _SAME) if takes_names else ()
    return Translation(text.format(debian), uncertain) if text else None


def _joined(commands: list[str], separators: list[str]) -> str:
    """Join commands; drop empty and repeated ones, and delete the lists of packages at the end."""
    parts: list[str] = []
    for number, command in enumerate(commands):
        if not command or (command == _FORGET and _FORGET in "".join(parts)):
            continue
        if parts:
            parts.append(separators[number - 1])
        parts.append(command)
    text = parts[0] if parts else ""
    for separator, command in zip(parts[1::2], parts[2::2], strict=True):
        text += f" \\\n && {command}" if separator == "&&" else f"{separator} {command}"
    first, *others = text.split(f"{_UPDATE} && ")
    text = first + f"{_UPDATE} && " + "".join(others) if others else text
    has_lists = _UPDATE in text and not text.rstrip().endswith(_FORGET)
    text = text.replace(f"{_UPDATE} && ", f"{_UPDATE} \\\n && ")
    return f"{text} \\\n && {_FORGET}" if has_lists else text
