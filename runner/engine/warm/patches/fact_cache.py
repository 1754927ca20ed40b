"""Cached facts that have not changed are not written again.

Since ansible-core 2.19 each `set_fact` saves a host's cached facts, even if it adds none. It creates, renames and
chmods a new file with the same content. Here such a file only gets a new modification time. Must be imported only where
Ansible is loaded.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from ansible.plugins.cache import BaseFileCacheModule

from runner.engine.warm.stamps import Stamp, stamp


def install() -> None:
    """Install a cache that writes only changed facts."""
    save: Callable[..., Any] = BaseFileCacheModule.set
    saved: dict[tuple[int, str], tuple[str, Stamp | None]] = {}

    @functools.wraps(save)
    def set_facts(self: Any, key: str, value: Any) -> None:
        # Compare the text with the saved text; a dictionary can be changed in place.
        text = value.get("__payload__") if isinstance(value, dict) and len(value) == 1 else None
        if not isinstance(text, str):
            save(self, key, value)
            return
        file = self._get_cache_file_name(key)
        before = saved.get((id(self), key))
        if before is not None and before == (text, stamp(file)) and _renew(file):
            saved[id(self), key] = text, stamp(file)
            return
        save(self, key, value)
        saved[id(self), key] = text, stamp(file)

    BaseFileCacheModule.set = set_facts


def _renew(file: str) -> bool:
    try:
        os.utime(file)
    except OSError:
        return False
    return True
