"""Plain JSON values that nobody can change, and the way back.

Owns: `freeze` and `thaw`. A frozen mapping is a `MappingProxyType`, a frozen list a tuple. Pure; imports nothing of
this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


def freeze(value: Any) -> Any:
    """Return plain JSON values so that nothing in them can be changed; `thaw` is the way back."""
    if isinstance(value, dict):
        return MappingProxyType({key: freeze(item) for key, item in value.items()})
    if isinstance(value, list):
        return tuple(freeze(item) for item in value)
    return value


def thaw(value: Any) -> Any:
    """Return frozen vars as ordinary dicts and lists, which JSON writers take; the copy may be changed."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [thaw(item) for item in value]
    return value
