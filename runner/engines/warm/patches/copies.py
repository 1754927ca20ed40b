"""Deep copies of variables that share what never changes, and a shorter way to the caller of a deprecated method.

Roles copy all variables of a task for each template. Ansible's strings and numbers are subclasses with tags (before
ansible-core 2.19: with a position in a file). So `copy.deepcopy` takes each of them apart and builds an equal one. Here
such a value is its own copy, as for Python's own strings. Containers are copied as before, with one check for each item
of another type.

Since ansible-core 2.19 a deprecated method searches the stack for the plugin that called it. Ansible collects source
lines of the whole stack for that; here the search ends at the caller. Must be imported only where Ansible is loaded.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

from runner.engines.warm import versions

_OF_PYTHON = (type(None), bool, int, float, str, bytes)


def install() -> None:
    """Install both for this process."""
    copiers: dict[type, Callable[[Any, dict[int, Any]], Any]] = copy._deepcopy_dispatch  # type: ignore[attr-defined]
    immutable, dictionaries, lists = versions.variable_types()
    for kind in immutable:
        copiers[kind] = _same
    shared = frozenset((*_OF_PYTHON, *immutable))
    for kind in (dict, *dictionaries):
        copiers[kind] = _dictionary_copier(kind, shared)
    for kind in (list, *lists):
        copiers[kind] = _list_copier(kind, shared)
    if versions.TAGGED:
        _hook_stack()


def _same(value: Any, _: dict[int, Any]) -> Any:
    return value


def _dictionary_copier(kind: type, shared: frozenset[type]) -> Callable[[Any, dict[int, Any]], Any]:
    new = versions.empty_copier(kind)
    items = dict.items

    def copied(value: Any, memo: dict[int, Any]) -> Any:
        fresh = memo[id(value)] = new(value)
        put = dict.__setitem__
        for key, item in items(value):
            own_key = key if type(key) in shared else copy.deepcopy(key, memo)
            put(fresh, own_key, item if type(item) in shared else copy.deepcopy(item, memo))
        return fresh

    return copied


def _list_copier(kind: type, shared: frozenset[type]) -> Callable[[Any, dict[int, Any]], Any]:
    new = versions.empty_copier(kind)

    def copied(value: Any, memo: dict[int, Any]) -> Any:
        fresh = memo[id(value)] = new(value)
        for item in list.__iter__(value):
            list.append(fresh, item if type(item) in shared else copy.deepcopy(item, memo))
        return fresh

    return copied


def _hook_stack() -> None:
    from ansible.module_utils._internal import _stack  # noqa: PLC0415 - since 2.19

    def iter_stack() -> Iterator[inspect.FrameInfo]:
        frame = sys._getframe(1)  # this generator's caller
        while frame is not None:
            if "_skip_stackwalk" not in frame.f_locals:
                code = frame.f_code
                yield inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, None, None)
            frame = frame.f_back  # type: ignore[assignment]

    _stack.iter_stack = iter_stack
