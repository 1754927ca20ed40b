"""Optimization of the memory that runs share with their fork server (copy-on-write).

A fork copies each page when a process writes to it. CPython writes to every object that it reads, because it counts
references in the object. So existing objects become immortal (PEP 683): CPython does not count their references any
more. They are never freed, which is acceptable because the server keeps them anyway.

Source: CPython's Include/object.h (3.12, 3.13).
"""

from __future__ import annotations

import ctypes
import gc
import platform
import sys
from types import CodeType

_TRIED = frozenset({(3, 12), (3, 13)})
"""Versions of CPython whose objects begin with the reference count, in which 32 bits mark immortal objects."""


def make_immortal() -> int:
    """Make all reachable objects immortal. Return their number, 0 if the interpreter is not supported."""
    mark = _mark()
    if not mark:
        return 0
    # Addresses, because references would change the counts.
    addresses = _reachable()
    at = ctypes.c_uint32.from_address
    for address in addresses:
        at(address).value = mark
    return len(addresses)


def _mark() -> int:
    """Return the mark of an immortal object, read from None; 0 if the interpreter is not supported."""
    if platform.python_implementation() != "CPython" or sys.version_info[:2] not in _TRIED:
        return 0
    if hasattr(sys, "gettotalrefcount") or sys.maxsize >> 32 == 0 or sys.byteorder != "little":
        return 0  # another layout: debug build, 32 bits, or big-endian
    probe = object()
    counted = ctypes.c_ssize_t.from_address(id(probe)).value == sys.getrefcount(probe) - 1
    mark = ctypes.c_uint32.from_address(id(None)).value
    return mark if counted and mark >> 31 else 0


def _reachable() -> frozenset[int]:
    """Return the addresses of the objects that the garbage collector tracks, and of all objects they refer to."""
    frontier = gc.get_objects()
    seen = set(map(id, frontier))
    while frontier:
        near = gc.get_referents(*frontier)
        for obj in frontier:
            if type(obj) is CodeType:  # the collector does not traverse code objects
                near += (obj.co_consts, obj.co_names, obj.co_name, obj.co_qualname, obj.co_filename)
        frontier = []
        for referent in near:
            if id(referent) not in seen:
                seen.add(id(referent))
                frontier.append(referent)
    return frozenset(seen)
