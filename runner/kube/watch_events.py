"""What a watcher says: plain values between `watch` and `cache`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from runner.objects import Object


@dataclass(frozen=True, slots=True)
class Restarted:
    """A list of everything in `scope` (a namespace, or `""` for all) begins; `Synced` ends it."""

    scope: str


@dataclass(frozen=True, slots=True)
class Applied:
    """The object exists and looks like this."""

    obj: Object = field(repr=False)


@dataclass(frozen=True, slots=True)
class Deleted:
    """The object is gone, or does not match the selector any more; this is how it looked last."""

    obj: Object = field(repr=False)


@dataclass(frozen=True, slots=True)
class Synced:
    """The list that `Restarted` began is complete: what it did not hold is gone."""


WatchEvent: TypeAlias = Restarted | Applied | Deleted | Synced
