"""Fast copy, evaluation and validation of attributes of plays, blocks and tasks.

Ansible copies each task several times, then evaluates and validates it, attribute by attribute, each through its
descriptor. Most attributes of most tasks and of their parents are empty or have their default. Here the attributes of a
class are determined once. A value that validation would return unchanged is not validated. The parents of a task are
searched once for all of its attributes. Must be imported only where Ansible is loaded.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import NoneType
from typing import Any

from ansible.executor.play_iterator import PlayIterator
from ansible.playbook.attribute import Attribute, FieldAttribute, NonInheritableFieldAttribute
from ansible.playbook.base import FieldAttributeBase
from ansible.playbook.block import Block
from ansible.playbook.task import Task
from ansible.utils.sentinel import Sentinel

from runner.engines.warm import versions

_BESIDE = ("_loader", "_variable_manager", "_origin", "_validated", "_finalized", "_uuid", "_ds")
"""Members of a copy in addition to attributes; `_origin` since ansible-core 2.19."""
_ATOMS = frozenset({bool, float, int, NoneType, str, type})
"""Types whose values need no copy."""
_PLAIN = {bool: "bool", int: "int", str: "string", list: "list", dict: "dict"}
"""Types, and their names in the definition of attributes."""

_CONTAINERS = (list, dict)
_DESCRIPTORS = (FieldAttribute, NonInheritableFieldAttribute)

_Plan = tuple[tuple[str, tuple[str, ...]], ...]
"""Names under which an object stores its attributes, each with the names in its copy."""


@dataclass(frozen=True, slots=True)
class _Field:
    """An attribute of a class."""

    name: str
    attribute: Any
    keys: tuple[str, ...]
    """Names under which an object stores the value."""
    is_read: bool
    """True if Ansible's own descriptor finds the value: in the object, its parents, or the default."""
    inherited: bool
    extend: bool
    """True if the values of parents are added."""
    is_kept: bool
    """True if a default is stored in the object when it is read."""
    ignored: bool
    """True if validation does nothing with any value."""
    plain: str
    """Type of the attribute if validation returns plain values of this type unchanged, else empty."""

    def default(self) -> Any:
        """Return the value of an attribute that is set nowhere."""
        value = self.attribute.default
        return value() if callable(value) else value


def install() -> None:
    """Install the fast copy, evaluation and validation."""
    _hook_copy()
    _hook_squash()
    _hook_validation()
    if not versions.TAGGED:
        _hook_insertion()


def _hook_copy() -> None:
    slow: Callable[..., Any] = FieldAttributeBase.copy
    shared = _ATOMS.union(versions.variable_types()[0])

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
            of: Any = type(value)
            if of in _CONTAINERS:
                value = value.copy()
            elif of not in shared:
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
        plan.append((f"_{name}", tuple(f"_{target}" for target in targets)))
    return tuple(plan)


def _hook_insertion() -> None:
    """Insert included tasks into a block without copies of its other tasks, as ansible-core does since 2.19."""
    insert: Callable[..., Any] = PlayIterator._insert_tasks_into_state
    copy_block: Callable[..., Any] = Block.copy

    @functools.wraps(copy_block)
    def copy_without_tasks(self: Any, *, exclude_parent: bool = False, exclude_tasks: bool = True) -> Any:  # noqa: ARG001 - see Block.copy
        return copy_block(self, exclude_parent=exclude_parent, exclude_tasks=True)

    @functools.wraps(insert)
    def inserted(self: Any, state: Any, task_list: Any) -> Any:
        if len(self.host_states) > 1:  # they share the other tasks
            return insert(self, state, task_list)
        Block.copy = copy_without_tasks
        try:
            return insert(self, state, task_list)
        finally:
            Block.copy = copy_block

    PlayIterator._insert_tasks_into_state = inserted


def _hook_squash() -> None:
    slow: Callable[..., Any] = FieldAttributeBase.squash

    @functools.wraps(slow)
    def squashed(self: Any) -> Any:
        kind: Any = type(self)
        fields = None if self._squashed or not issubclass(kind, Task) else _fields(kind)
        above = None if fields is None else _above(self)
        if fields is None or above is None:
            return slow(self)
        held = self.__dict__
        for field in fields:
            value = _evaluated(self, field, above) if field.is_read else getattr(self, field.name)
            for key in field.keys:
                held[key] = value
        self._squashed = True
        return None

    FieldAttributeBase.squash = squashed


def _evaluated(task: Any, field: _Field, above: list[dict[str, Any]]) -> Any:
    """Return an attribute of a task as its descriptor would."""
    key = field.keys[0]
    value = task.__dict__.get(key, Sentinel)
    if field.inherited and (field.extend or value is Sentinel):
        for values in above:
            if key in values and values[key] is not Sentinel and (values[key] or not field.extend):
                return getattr(task, field.name)
        if field.extend:
            return task._extend_value(value, Sentinel, field.attribute.prepend)
    return field.default() if value is Sentinel else value


def _above(task: Any) -> list[dict[str, Any]] | None:
    """Return the values of all objects whose attributes a task may inherit; None if it may inherit nothing."""
    parent = task._parent
    if not getattr(parent, "statically_loaded", True):
        parent = parent._parent
    if not parent or not getattr(parent, "statically_loaded", True):
        return None
    above, parent = [], task._parent
    while parent:
        beside = (getattr(parent, name, None) for name in ("_role", "_play"))
        for ancestor in (parent, *beside, *(getattr(parent, "_dep_chain", None) or ())):
            if ancestor and getattr(ancestor, "statically_loaded", True):  # nothing is inherited from a dynamic include
                kind: Any = type(ancestor)
                if _fields(kind) is None:
                    return None
                above.append(ancestor.__dict__)
        parent = getattr(parent, "_parent", None)
    return above


@functools.cache
def _fields(kind: Any) -> tuple[_Field, ...] | None:
    """Return the attributes of a class; None if it overrides the access to values."""
    if _plan(kind) is None:
        return None
    fields = []
    for name, attribute in kind.fattributes.items():
        inherited = isinstance(attribute, FieldAttribute)
        names = (attribute.name, attribute.alias) if attribute.alias else (attribute.name,)
        always = versions.is_validated(kind) or attribute.always_post_validate
        fields.append(
            _Field(
                name=name,
                attribute=attribute,
                keys=tuple(f"_{key}" for key in names),
                is_read=type(attribute) in _DESCRIPTORS and not hasattr(kind, f"_get_attr_{name}"),
                inherited=inherited and hasattr(kind, "_get_parent_attribute"),
                extend=inherited and attribute.extend,
                is_kept=not inherited and callable(attribute.default),
                ignored=not (always or attribute.static or attribute.required),
                plain=str(attribute.isa) if always and not hasattr(kind, f"_post_validate_{name}") else "",
            )
        )
    return tuple(fields)


def _hook_validation() -> None:
    slow: Callable[..., Any] = FieldAttributeBase.post_validate

    @functools.wraps(slow)
    def validated(self: Any, templar: Any) -> Any:
        kind: Any = type(self)
        fields = _fields(kind)
        if fields is None:
            return slow(self, templar)
        self.__dict__["fattributes"] = _ToValidate(self, fields)  # in place of the property of the class
        try:
            return slow(self, templar)
        finally:
            del self.__dict__["fattributes"]

    FieldAttributeBase.post_validate = validated


class _ToValidate(dict[str, Any]):
    """The attributes of an object; an iteration omits those that are valid, each at its turn."""

    def __init__(self, of: Any, fields: tuple[_Field, ...]) -> None:
        super().__init__(type(of).fattributes)
        self._of = of
        self._fields = fields

    def __iter__(self) -> Iterator[str]:
        return (field.name for field in self._fields if not _is_valid(self._of, field))

    def items(self) -> Any:
        """Yield names and attributes. Before ansible-core 2.19 the validation calls this."""
        return ((name, self[name]) for name in self)


def _is_valid(thing: Any, field: _Field) -> bool:
    """Return True if validation would leave an attribute as it is. Store its value as validation would."""
    if (field.ignored and not field.is_kept) or not field.is_read:
        return field.ignored
    held, key = thing.__dict__, field.keys[0]
    value = held.get(key, Sentinel)
    if value is Sentinel and field.is_kept:
        value = held[key] = field.default()
    if field.ignored:
        return True
    if field.inherited and (field.extend or value is Sentinel) and not (held["_squashed"] or held["_finalized"]):
        return False
    return _is_unchanged(held, field, field.default() if value is Sentinel else value)


def _is_unchanged(held: dict[str, Any], field: _Field, value: Any) -> bool:
    """Return True if validation would not change a value. Store a value that validation would store."""
    if value is None:
        return not field.attribute.required  # nothing to validate, and nothing to store
    of: Any = type(value)
    if field.attribute.static:
        return field.name == "vars" or (of in _PLAIN and not _has_content(value, of))
    if _PLAIN.get(of) != field.plain or _has_content(value, of):
        return False
    value = copy.copy(value)
    for key in field.keys:
        held[key] = value
    return True


def _has_content(value: Any, of: Any) -> bool:
    """Return True for a container that is not empty, and for a text that can be a template."""
    if of is str:
        return "{" in value or value.startswith("#")
    return of in _CONTAINERS and bool(value)
