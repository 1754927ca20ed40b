"""Safe plugins, and templates that use only these and change no value. Pure.

Safe is what neither blocks nor changes the process in which it runs.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, MutableSequence, MutableSet
from typing import Any

from runner.engines.warm.modules import tame

LOOKUPS = frozenset(
    {
        "config",
        "csvfile",
        "dict",
        "env",
        "file",
        "fileglob",
        "first_found",
        "indexed_items",
        "ini",
        "inventory_hostnames",
        "items",
        "list",
        "nested",
        "password",
        "sequence",
        "subelements",
        "template",
        "together",
        "unvault",
        "varnames",
        "vars",
    }
)
"""Lookups of ansible-core that only read, or write one file and find it if they run again."""
_SAFE_LOOKUPS = LOOKUPS | {"k8s", tame.LOOKUP}
COLLECTIONS = frozenset({"ansible.builtin", "ansible.posix", "ansible.utils", "community.general", "kubernetes.core"})
"""Collections whose filters and tests have no side effects."""
FILTERS_TO_FORK = frozenset({"attr"})
"""Filters that can call any method of a value."""
_MUTATING = frozenset(
    {
        "add",
        "append",
        "appendleft",
        "clear",
        "difference_update",
        "discard",
        "extend",
        "extendleft",
        "insert",
        "intersection_update",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "reverse",
        "rotate",
        "setdefault",
        "sort",
        "symmetric_difference_update",
        "update",
    }
)
_PLUGIN_OF_COLLECTION = re.compile(
    r"""(?:\||\bis(?:\s+not)?|\b(?:map|select|reject)\s*\(\s*['"]|\b(?:select|reject)attr\s*\([^,)]*,\s*['"])
    \s*(\w+\.\w+)\.\w""",
    re.VERBOSE,
)
_LOOKUP = re.compile(r"\b(?:lookup|query|q)\s*\(\s*(?:['\"](?:ansible\.(?:builtin|legacy)\.)?([\w.]+)['\"])?")
_CHANGE = re.compile(rf"(?:\.\s*|\[\s*['\"])(?:{'|'.join(sorted(_MUTATING))}|set_\w+)(?:['\"]\s*\])?\s*\(")
_WORD = re.compile(r"\w+")
_MUTABLE = (MutableMapping, MutableSequence, MutableSet, deque)


def texts(value: Any) -> Iterator[str]:
    """Yield all texts in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from texts(item)


def are_foreseeable(templates: Collection[str], own: Iterable[str]) -> bool:
    """Return True if templates use only safe plugins, and change no value. `own`: names of the project's plugins.

    Only their text is searched, and not the variables in it.
    """
    unsafe = FILTERS_TO_FORK.union(own) if templates else FILTERS_TO_FORK
    return not any(
        _CHANGE.search(text)
        or not unsafe.isdisjoint(_WORD.findall(text))
        or not COLLECTIONS.issuperset(_PLUGIN_OF_COLLECTION.findall(text))
        or not _SAFE_LOOKUPS.issuperset(_LOOKUP.findall(text))
        for text in templates
    )


def is_mutating(obj: Any, name: str) -> bool:
    """Return True if this is a method that changes the value."""
    if name in _MUTATING:
        return isinstance(obj, _MUTABLE) and name not in obj
    return name.startswith("set_") and type(obj).__module__.startswith("ansible.")
