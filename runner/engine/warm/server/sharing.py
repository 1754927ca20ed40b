"""Memory that runs share with their fork server, made so that it stays shared.

A fork gets copies of the page tables at once, and of each page that either side writes to. An interpreter writes to
whatever it merely reads, since each object holds the number of its references; and most that a run reads was there
before it. Two remedies, each left out where it cannot be had:

- objects that are there are made immortal, as PEP 683 has it: CPython no longer counts their references, and they do
  not go before the process does, which in a fork server they would not anyway;
- the kernel holds their memory in large pages: their tables are small, and processors find their way faster.

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
"""Versions of CPython whose objects begin with the number of their references, of which 32 bits say "immortal"."""
_COLLAPSE = 25
"""MADV_COLLAPSE, since Linux 6.1; an older kernel refuses it."""
_LARGE = 2 << 20
"""Bytes of a large page: what x86-64 has, and 64-bit ARM with small pages of 4 KiB."""
_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def settle() -> int:
    """Do both with what is there; returns how many objects are immortal now."""
    count = make_immortal()
    use_large_pages()
    return count


def make_immortal() -> int:
    """Make all objects that can be reached immortal; returns their number, 0 with an interpreter that is not known."""
    mark = _mark()
    if not mark:
        return 0
    # Addresses, so that nothing is written while references come and go.
    found = _reachable()
    at = ctypes.c_uint32.from_address
    for address in found:
        at(address).value = mark
    return len(found)


def _mark() -> int:
    """Return how CPython writes that an object is immortal, as it does for None; 0 where it does so in another way."""
    if platform.python_implementation() != "CPython" or sys.version_info[:2] not in _TRIED:
        return 0
    if hasattr(sys, "gettotalrefcount") or sys.maxsize >> 32 == 0 or sys.byteorder != "little":
        return 0  # where references are counted otherwise: for debugging, with 32 bits, the other way round
    probe = object()
    counted = ctypes.c_ssize_t.from_address(id(probe)).value == sys.getrefcount(probe) - 1
    mark = ctypes.c_uint32.from_address(id(None)).value
    return mark if counted and mark >> 31 else 0


def _reachable() -> frozenset[int]:
    """Return the addresses of the objects that the garbage collector knows, and of what these lead to."""
    frontier = gc.get_objects()
    seen = set(map(id, frontier))
    while frontier:
        near = gc.get_referents(*frontier)
        for each in frontier:
            if type(each) is CodeType:  # which the collector does not look into
                near += (each.co_consts, each.co_names, each.co_name, each.co_qualname, each.co_filename)
        frontier = []
        for each in near:
            if id(each) not in seen:
                seen.add(id(each))
                frontier.append(each)
    return frozenset(seen)


def use_large_pages() -> None:
    """Have the kernel put this process' own memory into large pages, where the machine's settings let processes ask."""
    try:
        if "[never]" in _SETTING.read_text(encoding="ascii"):
            return
        madvise = ctypes.CDLL(None, use_errno=True).madvise
    except (OSError, AttributeError):
        return
    for start, end in _own_memory():
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _COLLAPSE)


def _own_memory() -> Iterator[tuple[int, int]]:
    """Where whole large pages fit into memory that is no file's."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        where, rights, _, _, inode, *name = line.split(maxsplit=5)
        if rights == "rw-p" and inode == "0" and (not name or name[0] == "[heap]"):
            start, end = (int(each, 16) for each in where.split("-"))
            start, end = -(-start // _LARGE) * _LARGE, end // _LARGE * _LARGE
            if start < end:
                yield start, end
