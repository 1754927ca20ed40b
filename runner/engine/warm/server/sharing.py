"""Optimization of the memory that runs share with their fork server (copy-on-write).

A fork copies the page tables at once, and each page when a process writes to it. CPython writes to every object that it
reads, because it counts references in the object. Two measures keep pages shared. Each is skipped if the platform does
not support it.

- Existing objects become immortal (PEP 683): CPython does not count their references any more. They are never freed,
  which is acceptable because the server keeps them anyway.
- The kernel moves their memory to large pages, which have smaller page tables and fewer TLB misses.

Source: CPython's Include/object.h (3.12, 3.13), madvise(2).
"""

from __future__ import annotations

import ctypes
import gc
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

_TRIED = frozenset({(3, 12), (3, 13)})
"""Versions of CPython whose objects begin with the reference count, in which 32 bits mark immortal objects."""
_COLLAPSE = 25
"""MADV_COLLAPSE, since Linux 6.1; an older kernel refuses it."""
_LARGE = 2 << 20
"""Bytes of a large page on x86-64, and on 64-bit ARM with small pages of 4 KiB."""
_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def share_memory() -> int:
    """Apply both measures to the current objects. Return how many objects are immortal."""
    count = make_immortal()
    use_large_pages()
    return count


def make_immortal() -> int:
    """Make all reachable objects immortal. Return their number, 0 if the interpreter is not supported."""
    mark = _mark()
    if not mark:
        return 0
    # Addresses, because references would change the counts.
    found = _reachable()
    at = ctypes.c_uint32.from_address
    for address in found:
        at(address).value = mark
    return len(found)


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
        for each in frontier:
            if type(each) is CodeType:  # the collector does not traverse code objects
                near += (each.co_consts, each.co_names, each.co_name, each.co_qualname, each.co_filename)
        frontier = []
        for each in near:
            if id(each) not in seen:
                seen.add(id(each))
                frontier.append(each)
    return frozenset(seen)


def use_large_pages() -> None:
    """Move this process' private memory to large pages, unless the machine's settings forbid it."""
    try:
        if "[never]" in _SETTING.read_text(encoding="ascii"):
            return
        madvise = ctypes.CDLL(None, use_errno=True).madvise
    except (OSError, AttributeError):
        return
    for start, end in _own_memory():
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _COLLAPSE)


def _own_memory() -> Iterator[tuple[int, int]]:
    """Yield start and end of the parts of anonymous memory that consist of complete large pages."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        where, rights, _, _, inode, *name = line.split(maxsplit=5)
        if rights == "rw-p" and inode == "0" and (not name or name[0] == "[heap]"):
            start, end = (int(each, 16) for each in where.split("-"))
            start, end = -(-start // _LARGE) * _LARGE, end // _LARGE * _LARGE
            if start < end:
                yield start, end
