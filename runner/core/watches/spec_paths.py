"""Paths of spec fields in watches.yaml: `spec.config.env`, `spec.users[*].secretName`. Pure.

A path begins with `spec`. `.*` matches each value of a map, `[*]` each item of a list. `[*]` is optional, because a
list has no keys. A key with dots or blanks is quoted: `["example.com/name"]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias


class Wildcard(Enum):
    """All values of a map, or all items of a list."""

    VALUE = ".*"
    ITEM = "[*]"


Step: TypeAlias = str | Wildcard

_ROOT = "spec"
_STEP = re.compile(
    r"""\.(?P<key>[^.\[\]\s'"*]+)|(?P<value>\.\*)|(?P<item>\[\*\])|\[(?P<mark>["'])(?P<quoted>.+?)(?P=mark)\]"""
)


@dataclass(frozen=True, slots=True)
class SpecPath:
    """Path of fields in a spec."""

    text: str
    """The path in watches.yaml."""
    steps: tuple[Step, ...]
    """Steps below the spec."""

    @classmethod
    def parse(cls, text: str) -> SpecPath:
        """Parse a path. Raises ValueError with advice."""
        steps: list[Step] = []
        position = len(_ROOT)
        while position < len(text) and text.startswith(_ROOT):
            match = _STEP.match(text, position)
            if match is None:
                break
            steps.append(_step(match))
            position = match.end()
        if not text.startswith(_ROOT) or position != len(text):
            raise ValueError(
                f"invalid path {text!r}: use a path in the spec such as spec.config.env. Use [*] for the items "
                'of a list, .* for the values of a map, and ["a.b"] for a key with dots'
            )
        return cls(text, tuple(steps))

    def find(self, spec: Any) -> Iterator[Any]:
        """Yield each value at the path."""
        yield from _find(spec, self.steps)


def below(paths: tuple[tuple[Step, ...], ...], key: str) -> tuple[tuple[Step, ...], ...]:
    """Return the rest of each path that continues through a key of a map."""
    return tuple(steps[1:] for steps in paths if steps and steps[0] in (key, Wildcard.VALUE))


def in_list(paths: tuple[tuple[Step, ...], ...]) -> tuple[tuple[Step, ...], ...]:
    """Return the rest of each path in the items of a list."""
    return tuple(steps[1:] if steps and steps[0] is Wildcard.ITEM else steps for steps in paths)


def _find(value: Any, steps: tuple[Step, ...]) -> Iterator[Any]:
    if isinstance(value, list) and steps:
        for item in value:
            yield from _find(item, steps[1:] if steps[0] is Wildcard.ITEM else steps)
    elif not steps:
        yield value
    elif isinstance(value, dict) and steps[0] is Wildcard.VALUE:
        for item in value.values():
            yield from _find(item, steps[1:])
    elif isinstance(value, dict) and steps[0] in value:
        yield from _find(value[steps[0]], steps[1:])


def _step(match: re.Match[str]) -> Step:
    if match["value"]:
        return Wildcard.VALUE
    return Wildcard.ITEM if match["item"] else match["key"] or match["quoted"]
