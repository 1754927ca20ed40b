"""A file of cached facts that holds already what it is to hold is not written again.

Since ansible-core 2.19 each `set_fact` saves a host's cached facts anew, also where it adds none: a new file, renamed
and given its mode, for what is there. Here such a file only gets the time that the new one would have. Must be imported
only where Ansible is loaded.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from ansible.plugins.cache import BaseFileCacheModule

from runner.engine.warm.stamps import Stamp, stamp


def install() -> None:
    """Write only what is new."""
    save: Callable[..., Any] = BaseFileCacheModule.set
    saved: dict[tuple[int, str], tuple[str, Stamp | None]] = {}

    @functools.wraps(save)
    def set_facts(self: Any, key: str, value: Any) -> None:
        # As text, which is compared with what was saved; a dictionary may have been changed where it stands.
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
