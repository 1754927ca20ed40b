"""Paths to fields of a spec, as users write them in watches.yaml: `spec.config.env`, `spec.users[*].secretName`.

A path begins with `spec`. `.*` stands for each value of a map, `[*]` for each item of a list; a list is gone into also
where `[*]` is left out, since it has no keys of its own. A key with dots or blanks is written `["example.com/name"]`.

Pure; imports nothing of this package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias


class Each(Enum):
    """Stands for all values of a map, or all items of a list."""

    VALUE = ".*"
    ITEM = "[*]"


Step: TypeAlias = str | Each

_ROOT = "spec"
_STEP = re.compile(
    r"""\.(?P<key>[^.\[\]\s'"*]+)|(?P<value>\.\*)|(?P<item>\[\*\])|\[(?P<mark>["'])(?P<quoted>.+?)(?P=mark)\]"""
)


@dataclass(frozen=True, slots=True)
class SpecPath:
    """Where fields stand in a spec."""

    text: str
    """As it was written."""
    steps: tuple[Step, ...]
    """The way from the spec."""

    @classmethod
    def parse(cls, text: str) -> SpecPath:
        """Read a path. A ValueError says what would be right."""
        steps: list[Step] = []
        position = len(_ROOT)
        while position < len(text) and text.startswith(_ROOT):
            found = _STEP.match(text, position)
            if found is None:
                break
            steps.append(_step(found))
            position = found.end()
        if not text.startswith(_ROOT) or position != len(text):
            raise ValueError(
                f"{text!r} is no path to a field of the spec; write it like spec.config.env, with [*] for the items "
                'of a list, .* for the values of a map, and ["a.b"] for a key with dots'
            )
        return cls(text, tuple(steps))

    def find(self, spec: Any) -> Iterator[Any]:
        """Yield each value that stands there; none where the spec does not go so far."""
        yield from _find(spec, self.steps)


def below(paths: tuple[tuple[Step, ...], ...], key: str) -> tuple[tuple[Step, ...], ...]:
    """Return what is left of ways when they go on through a map's key."""
    return tuple(way[1:] for way in paths if way and way[0] in (key, Each.VALUE))


def in_list(paths: tuple[tuple[Step, ...], ...]) -> tuple[tuple[Step, ...], ...]:
    """Return what is left of ways when they go on through a list's items."""
    return tuple(way[1:] if way and way[0] is Each.ITEM else way for way in paths)


def _find(value: Any, steps: tuple[Step, ...]) -> Iterator[Any]:
    if isinstance(value, list) and steps:
        for item in value:
            yield from _find(item, steps[1:] if steps[0] is Each.ITEM else steps)
    elif not steps:
        yield value
    elif isinstance(value, dict) and steps[0] is Each.VALUE:
        for item in value.values():
            yield from _find(item, steps[1:])
    elif isinstance(value, dict) and steps[0] in value:
        yield from _find(value[steps[0]], steps[1:])


def _step(found: re.Match[str]) -> Step:
    if found["value"]:
        return Each.VALUE
    return Each.ITEM if found["item"] else found["key"] or found["quoted"]
