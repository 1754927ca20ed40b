"""Events of a watcher: plain values between `watch` and `cache`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from runner.objects import Object


@dataclass(frozen=True, slots=True)
class Restarted:
    """Start of a list of `scope` (a namespace, or `""` for all); `Synced` ends it."""

    scope: str


@dataclass(frozen=True, slots=True)
class Applied:
    """Current state of an object."""

    obj: Object = field(repr=False)


@dataclass(frozen=True, slots=True)
class Deleted:
    """Last state of an object that was deleted or does not match the selector any more."""

    obj: Object = field(repr=False)


@dataclass(frozen=True, slots=True)
class Synced:
    """End of the list that `Restarted` began: other objects of the scope do not exist."""


WatchEvent: TypeAlias = Restarted | Applied | Deleted | Synced
