"""What the operator and a fork server say to each other. Imports nothing heavy: both ends need it.

Over a socket that keeps messages apart, each a JSON object. To the server: `Load` first; then `RUN` for each run, with
three descriptors (control, events, complaints). From it, one answer for each.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from runner.engine.wire import LEARNED

RUN = b"{}"
LONGEST = 1 << 20
"""Bytes of a message."""
STREAMS = 3
_MOST_TEMPLATES = 96 * 1024
"""Characters; the kernel takes messages of about twice as many bytes."""


@dataclass(frozen=True, slots=True)
class Load:
    """Asks to load ahead, beyond what every run needs."""

    plugins: frozenset[str] = frozenset()
    """Python modules that Ansible itself loaded."""
    modules: frozenset[str] = frozenset()
    """Ansible's modules, by their full names."""
    imports: frozenset[str] = frozenset()
    """Python modules that those imported."""
    templates: frozenset[str] = frozenset()
    """Templates that were compiled, as `templates` notes them; not more of them than fit into a message."""
    off: frozenset[str] = frozenset()
    """Shortcuts that are not wanted."""

    def __or__(self, other: Load) -> Load:
        return Load(
            self.plugins | other.plugins,
            self.modules | other.modules,
            self.imports | other.imports,
            _as_many_as_fit(self.templates, other.templates),
            off=self.off | other.off,
        )

    @classmethod
    def of_lines(cls, text: str) -> Load:
        """Read what runs noted, a JSON object a line; lines that are none are skipped."""
        found = cls()
        for value in _noted(text):
            with contextlib.suppress(AttributeError, TypeError):
                names = frozenset({value["module"]} if value.get("module") else ())
                found |= cls(
                    frozenset(value.get("plugins", ())),
                    names,
                    frozenset(value.get("imports", ())),
                    frozenset(value.get("templates", ())),
                )
        return found


def _as_many_as_fit(known: frozenset[str], more: frozenset[str]) -> frozenset[str]:
    room = _MOST_TEMPLATES - sum(map(len, known))
    found = set(known)
    for each in sorted(more - known):
        if len(each) <= room:
            found.add(each)
            room -= len(each)
    return frozenset(found)


def unlike(text: str) -> str:
    """Return why a run that was forked started a new interpreter after all, from what it noted; empty if it did not."""
    reasons = (value.get("unlike") for value in _noted(text) if isinstance(value, dict))
    return next((reason for reason in reasons if isinstance(reason, str)), "")


def note(environment: Mapping[str, str], value: Mapping[str, Any]) -> None:
    """Note something for the operator, in a run with this environment."""
    with contextlib.suppress(OSError), open(noted_in(environment), "a", encoding="utf-8") as file:  # noqa: PTH123 - a string
        file.write(json.dumps(value) + "\n")


def noted_in(environment: Mapping[str, str]) -> str:
    """Return the file that a run with this environment notes things in."""
    return os.path.join(environment["ANSIBLE_LOCAL_TEMP"], LEARNED)  # noqa: PTH118 - a string is wanted


def _noted(text: str) -> Iterator[Any]:
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            yield json.loads(line)


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of it."""

    pid: int = 0
    """Of a run's supervisor."""
    problem: str = ""
    """Why nothing became of it."""
    watched: tuple[str, ...] = ()
    """Files and folders; when one changes, what was loaded is out of date."""
    disabled: Mapping[str, str] = field(default_factory=dict)
    """Why shortcuts failed the self-test, by name."""
    problems: tuple[str, ...] = ()
    """What else the self-test found."""


def pack(value: Load | Answer) -> bytes:
    """Write a message."""
    return json.dumps(asdict(value), default=sorted).encode()


def unpack_load(data: bytes) -> Load:
    """Read a message to the server."""
    return Load(**{name: frozenset(names) for name, names in json.loads(data).items()})


def unpack_answer(data: bytes) -> Answer:
    """Read a message from the server."""
    value: dict[str, Any] = json.loads(data)
    return Answer(**{**value, "watched": tuple(value["watched"]), "problems": tuple(value["problems"])})
