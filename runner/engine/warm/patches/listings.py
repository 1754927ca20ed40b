"""Cache of the listings of collections' folders, valid until a folder changes.

Ansible searches the folder of a collection's plugins several times for each task: for the file of an action, a module
and each other plugin. Must be imported only where Ansible is loaded.
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
"""Nanoseconds: the resolution of some file systems is that coarse."""


def install() -> None:
    """Replace `glob` in the loader of plugins with this cache."""
    loader.glob = _Glob()


class _Glob:
    """The functions of `glob` that the loader uses."""

    def __init__(self) -> None:
        self._listed: dict[str, tuple[Stamp, list[str]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(glob, name)

    def iglob(self, pattern: str) -> Iterator[str]:
        """Yield files with any extension and the given name, in any order. Pass other patterns to `glob`."""
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
