"""Declarations of fields of watches.yaml: type, meaning and example of each, and what a feature adds to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from runner.base.config.paths import ImageFiles
from runner.base.yamlfile.fields import Fields
from runner.values.objects import GVK
from runner.values.slots import Slots

Type: TypeAlias = Literal[
    "text", "boolean", "whole number", "number", "duration", "mapping", "list", "list of mappings", "list of names"
]
"""Items of a list are texts, or mappings with declared fields. An item of a list of names can be a mapping."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of watches.yaml."""

    type: Type
    name: str
    meaning: str
    value: str
    """A valid value, in YAML's flow style."""
    default: str = ""
    """The default in YAML; empty if there is none."""
    go: str = ""
    """Support in the Go operator, if it is not that of the section."""
    values: tuple[str | bool, ...] = ()
    """All valid values; of a duration, those that are no durations."""
    required: bool = False
    frame: str = ""
    """A valid fragment of an entry around the field, which replaces `%s`."""
    section: str = ""
    """Path of the mapping that contains the field."""

    @property
    def path(self) -> str:
        """The path in error messages: `retry.delay`, `references[].path`."""
        return f"{self.section}.{self.name}" if self.section else self.name

    @property
    def attribute(self) -> str:
        """The name as Python writes it: `mark_unsafe`."""
        return "".join(f"_{character.lower()}" if character.isupper() else character for character in self.name)

    @property
    def example(self) -> str:
        """A fragment of an entry that contains the field."""
        return self.frame % f"{self.name}: {self.value}"


Section: TypeAlias = tuple[str, tuple[Field, ...]]
"""Path of a mapping, and its fields. The path of an entry itself is empty."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of watches.yaml, for the features that read fields of it."""

    fields: Fields
    gvk: GVK
    cwd: Path
    """Folder of relative paths."""
    image: ImageFiles
    """Files of the project that its image has in other places."""


@dataclass(frozen=True, slots=True)
class FeatureFields:
    """Fields that a feature adds to an entry."""

    sections: tuple[Section, ...]
    read: Callable[[Entry, Slots], Slots]
    """Returns the values of an entry with those of the feature, without defaults. It reports invalid fields."""


def section(path: str, frame: str, *fields: Field, go: str = "new") -> Section:
    """Declare the fields of a mapping; `frame` and `go` are those of fields without their own."""
    return path, tuple(replace(field, section=path, frame=field.frame or frame, go=field.go or go) for field in fields)


text, boolean, mapping, listing = (partial(Field, kind) for kind in ("text", "boolean", "mapping", "list"))
whole, number, duration = partial(Field, "whole number"), partial(Field, "number"), partial(Field, "duration")
mappings, named = partial(Field, "list of mappings"), partial(Field, "list of names")


def names(section: Section) -> tuple[str, ...]:
    """Return the names of the fields of a mapping."""
    return tuple(field.name for field in section[1])
