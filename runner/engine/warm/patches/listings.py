"""Folders of collections are listed once, as long as nothing is added to them.

Ansible looks through the folder of a collection's plugins for each task, to find the file of an action, of a module and
of what else the task names. Owns what was listed. Must be imported only where Ansible is loaded.
"""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterator
from typing import Any

from ansible.plugins import loader

from runner.engine.warm.stamps import Stamp, stamp

_SETTLED = 2_000_000_000
"""Nanoseconds: some file systems do not tell times that are closer."""


def install() -> None:
    """Have the loader of plugins look here."""
    loader.glob = _Glob()


class _Glob:
    """What the loader uses of `glob`."""

    def __init__(self) -> None:
        self._listed: dict[str, tuple[Stamp, list[str]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(glob, name)

    def iglob(self, pattern: str) -> Iterator[str]:
        """Find files by a name of which only the extension is open, in any order; other patterns as ever."""
        folder, name = os.path.split(pattern)
        begin = name.removesuffix("*")
        plain = begin != name and begin.endswith(".") and not begin.startswith(".") and folder
        if not plain or glob.has_magic(folder + begin):
            return glob.iglob(pattern)  # noqa: PTH207 - what Ansible calls
        return (os.path.join(folder, each) for each in self._names(folder) if each.startswith(begin))  # noqa: PTH118 - as above

    def _names(self, folder: str) -> list[str]:
        now = stamp(folder)
        if now is None:
            return []
        known = self._listed.get(folder)
        if known is not None and known[0] == now:
            return known[1]
        try:
            names = os.listdir(folder)  # noqa: PTH208 - names are wanted
        except OSError:
            return []
        if time.time_ns() - now[1] > _SETTLED:
            self._listed[folder] = now, names
        return names
