"""Fast copy and validation of attributes of plays, blocks and tasks.

Ansible copies each task several times and validates it once, attribute by attribute, each through its descriptor. Most
attributes of most tasks are empty or have their default. Here the attributes of a class are determined once. A value
that validation would return unchanged is not validated. Must be imported only where Ansible is loaded.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from types import NoneType
from typing import Any

from ansible.playbook.attribute import Attribute, FieldAttribute, NonInheritableFieldAttribute
from ansible.playbook.base import FieldAttributeBase
from ansible.utils.sentinel import Sentinel

from runner.engine.warm import versions

_BESIDE = ("_loader", "_variable_manager", "_origin", "_validated", "_finalized", "_uuid", "_ds")
"""Members of a copy in addition to attributes; `_origin` since ansible-core 2.19."""
_ATOMS = frozenset({bool, float, int, NoneType, str, type})
"""Types whose values need no copy."""
_PLAIN = {bool: "bool", int: "int", str: "string", list: "list", dict: "dict"}
"""Types, and their names in the definition of attributes."""

_CONTAINERS = (list, dict)

_Plan = tuple[tuple[str, tuple[str, ...]], ...]
"""Names under which an object stores its attributes, each with the names in its copy."""


def install() -> None:
    """Install the fast copy, and the fast validation, which requires ansible-core 2.19 or later."""
    _hook_copy()
    if versions.TAGGED:
        _hook_validation()


def _hook_copy() -> None:
    slow: Callable[..., Any] = FieldAttributeBase.copy

    @functools.wraps(slow)
    def copied(self: Any) -> Any:
        kind: Any = type(self)
        plan = _plan(kind)
        if plan is None:
            return slow(self)
        try:
            fresh = kind()
        except RecursionError:
            return slow(self)  # which raises the error again
        old, new = self.__dict__, fresh.__dict__
        for name, targets in plan:
            value = old.get(name, Sentinel)
            if type(value) not in _ATOMS:
                value = copy.copy(value)
            for target in targets:
                new[target] = value
        for name in _BESIDE:
            if name in old:
                new[name] = old[name]
        return fresh

    FieldAttributeBase.copy = copied


@functools.cache
def _plan(kind: Any) -> _Plan | None:
    """Return how objects of a class are copied; None if the class or an attribute overrides the access to values."""
    if kind.__setattr__ is not object.__setattr__ or kind.__getattribute__ is not object.__getattribute__:
        return None
    plan = []
    for name, attribute in kind.fattributes.items():
        known = type(attribute).__set__ is Attribute.__set__ and inspect.getattr_static(kind, name, None) is attribute
        if not known or hasattr(kind, f"_{name}"):
            return None
        targets = (attribute.name, attribute.alias) if attribute.alias else (attribute.name,)
        plan.append((f"_{name}", tuple(f"_{each}" for each in targets)))
    return tuple(plan)


def _hook_validation() -> None:
    slow: Callable[..., Any] = FieldAttributeBase.post_validate_attribute

    @functools.wraps(slow)
    def validated(self: Any, name: str, *, templar: Any) -> Any:
        kind: Any = type(self)
        value = _value(self, kind, name)
        of: Any = type(value)
        if value is None:
            if not self.fattributes[name].required:
                return Sentinel  # nothing to validate, and nothing to set
        elif not _has_content(value, of) and _is_plain(kind, name, of):
            return copy.copy(value)
        return slow(self, name, templar=templar)

    FieldAttributeBase.post_validate_attribute = validated


def _has_content(value: Any, of: Any) -> bool:
    """Return True for a container that is not empty, and for a text that can be a template."""
    if of is str:
        return "{" in value or value.startswith("#")
    return of in _CONTAINERS and bool(value)


def _value(thing: Any, kind: Any, name: str) -> Any:
    """Return an attribute's value: from the object's dictionary if its descriptor would do the same."""
    held = thing.__dict__
    if _is_read(kind, name, settled=held.get("_squashed", False) or held.get("_finalized", False)):
        value = held.get(f"_{name}", Sentinel)
        if value is not Sentinel:
            return value
    return getattr(thing, name)


@functools.cache
def _is_read(kind: Any, name: str, *, settled: bool) -> bool:
    """Return True if Ansible's own descriptor returns the value in the object's dictionary, if there is one."""
    attribute = inspect.getattr_static(kind, name, None)
    if hasattr(kind, f"_get_attr_{name}"):
        return False
    if type(attribute) is NonInheritableFieldAttribute:
        return True
    return type(attribute) is FieldAttribute and (settled or not hasattr(kind, "_get_parent_attribute"))


@functools.cache
def _is_plain(kind: Any, name: str, of: Any) -> bool:
    """Return True if validation returns a value of this type unchanged. Containers must be empty."""
    attribute = kind.fattributes[name]
    return (
        _PLAIN.get(of) == attribute.isa
        and not attribute.static
        and kind._post_validate_object
        and not hasattr(kind, f"_post_validate_{name}")
    )
