"""Facts that have not changed are not processed and written again.

For each task Ansible decodes, copies and cleans the facts of the host. Here it does so after they have changed. A task
gets its own dictionary of facts; the values are shared. `guard` prevents that a template changes them.

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
from ansible.vars import manager

from runner.engines.warm import versions
from runner.engines.warm.stamps import Stamp, stamp

_MOST = 16
"""Maximum number of hosts whose processed facts are kept."""
_INTERNAL = "_ansible_"
"""Prefix of facts that Ansible removes without a message."""

_Facts = dict[str, Any]


def install() -> None:
    """Install caches that process and write only changed facts."""
    manager.namespace_facts = _once(manager.namespace_facts, _copy_namespaced, lambda *_: True)
    manager.clean_facts = _once(manager.clean_facts, dict, _is_silent)
    if versions.TAGGED:
        _hook_decoding()
        _hook_writing()
    else:
        manager.wrap_var = _once(manager.wrap_var, dict, lambda *_: True)


def _once(
    process: Callable[[Any], Any], copied: Callable[[Any], Any], is_kept: Callable[[_Facts, _Facts], bool]
) -> Callable[[Any], Any]:
    """Return a function that processes facts if they differ from earlier ones: names and values are compared."""
    known: dict[tuple[Any, ...], tuple[_Facts, Any]] = {}

    @functools.wraps(process)
    def processed(facts: Any) -> Any:
        if type(facts) is not dict:
            return process(facts)
        key = (*facts, *map(id, facts.values()))
        earlier = known.get(key)
        if earlier is not None:
            return copied(earlier[1])
        result = process(facts)
        if is_kept(facts, result):
            if len(known) >= _MOST:
                del known[next(iter(known))]
            known[key] = dict(facts), copied(result)  # with the facts, no other value gets their identity
        return result

    return processed


def _copy_namespaced(result: dict[str, _Facts]) -> dict[str, _Facts]:
    return {name: dict(facts) for name, facts in result.items()}


def _is_silent(facts: _Facts, cleaned: _Facts) -> bool:
    """Return True if Ansible printed no message about a removed fact."""
    return all(name.startswith(_INTERNAL) for name in facts.keys() - cleaned.keys())


def _hook_decoding() -> None:
    from ansible._internal._plugins._cache import PluginInterposer  # noqa: PLC0415 - since 2.19

    decode: Callable[..., Any] = PluginInterposer._decode
    known: dict[str, _Facts] = {}

    @functools.wraps(decode)
    def decoded(self: Any, value: Any) -> Any:
        text = _text(value)
        if text is None:
            return decode(self, value)
        if text not in known:
            facts = decode(self, value)
            if type(facts) is not dict:
                return facts
            if len(known) >= _MOST:
                del known[next(iter(known))]
            known[text] = facts
        return dict(known[text])

    PluginInterposer._decode = decoded


def _text(value: Any) -> str | None:
    """Return the text of serialized facts."""
    text = value.get("__payload__") if isinstance(value, dict) and len(value) == 1 else None
    return text if isinstance(text, str) else None


def _hook_writing() -> None:
    save: Callable[..., Any] = BaseFileCacheModule.set
    saved: dict[tuple[int, str], tuple[str, Stamp | None]] = {}

    @functools.wraps(save)
    def set_facts(self: Any, key: str, value: Any) -> None:
        # Compare the text with the saved text; a dictionary can be changed in place.
        text = _text(value)
        if text is None:
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
