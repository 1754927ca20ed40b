"""Extra vars of a run, built from an object and its watch.

Later sources override earlier ones: spec, `ansible_operator_meta`, `_<group>_<kind>`, `_<group>_<kind>_spec`, the
watch's vars, the finalizer's vars. The result lists:

- the top-level keys from the object, whose strings are never templated;
- with `markUnsafe: false`, the strings of users who may not write the spec, which are never templated (`Foreign`);
- the keys of the spec that collide;
- the variables that a spec must not set.

`convert` runs a conversion in a thread. All other functions are pure.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import orjson

from runner.core.engine.extravars import Foreign
from runner.core.watches import spec_paths
from runner.core.watches.spec_paths import Step
from runner.core.watches.watch import Watch
from runner.values.errors import TerminalError
from runner.values.objects import GVK, key_of, mapping

CAUSE = "ansible_operator_run"
META = "ansible_operator_meta"
_CACHED_KEY = 256
"""Characters of the longest key whose conversion is cached. A tenant must not fill the cache with large keys."""
_KNOWN_WORDS = ("HTTP", "URL", "IP")
_KNOWN_WORD = {word: re.compile(f"{word}s?") for word in _KNOWN_WORDS}
_KNOWN_FIRST_WORD = tuple(word.lower() for word in _KNOWN_WORDS)
_LETTER_BETWEEN_NUMBERS = re.compile(r"([a-zA-Z])([0-9]+)([a-zA-Z][0-9]+)")
_CASE_CHANGE = re.compile(r"(?<=[^_ -])(?=[A-Z][a-z])|(?<=[^_ -][a-z])(?=[A-Z])")
_SEPARATOR = re.compile(r"[ -]")
_TEMPLATE_MARKS = ("{{", "{%", "{#")
_MOST_COLLISIONS = 20
"""Collisions that are collected."""
_LONGEST_NAME = 100
"""Characters of a key in a path or a message. A user could write one of a megabyte."""
_Ways: TypeAlias = tuple[tuple[Step, ...], ...]
_Path: TypeAlias = tuple["_Path | None", str | int]
"""Path in a spec: its parent, and a key or an index. Text would repeat long keys for each value below them."""
_SPEC: _Path = (None, "spec")

_OF_OTHERS = ("name", "namespace", "managedFields", "ownerReferences")
"""Metadata that others than the writers of the spec set: users who may only write the status or the metadata."""
_RESERVED_PREFIXES = ("ansible_", "_ansible_", "discovered_interpreter_")
"""Prefixes of connection, become, interpreter and executable variables, and of Ansible's own state."""
_RESERVED = frozenset(
    {
        # Magic variables: Ansible sets most of them itself, so a value from the object has never reached a role.
        # Source: https://docs.ansible.com/ansible/latest/reference_appendices/special_variables.html
        *("delegated_vars", "environment", "group_names", "groups", "hostvars", "inventory_dir", "inventory_file"),
        *("inventory_hostname", "inventory_hostname_short", "inventory_sources", "omit", "play_hosts"),
        *("playbook_dir", "role_name", "role_names", "role_path", "role_uuid", "vars"),
        # Options of the lookup community.sops.sops that name a command.
        *("sops_age_key_cmd", "sops_age_ssh_private_key_cmd", "sops_binary"),
    }
)


@dataclass(frozen=True, slots=True)
class Collision:
    """Two keys of one map that convert to the same key. The value of `winner`, the later one, is used.

    `path` is the path of the map, such as `spec.a[0]`.
    """

    path: str
    loser: str
    winner: str
    key: str

    def __str__(self) -> str:
        loser, winner, key = (repr(_cut(text)) for text in (self.loser, self.winner, self.key))
        return f"{self.path}: {loser} and {winner} both become {key}; {winner} is used"


@dataclass(frozen=True, slots=True)
class Parameters:
    """Extra vars of a run. `unsafe_keys` are the top-level keys whose values came from the object."""

    extra_vars: Mapping[str, Any]
    unsafe_keys: frozenset[str]
    collisions: tuple[Collision, ...]
    """The first ones."""
    reserved: tuple[str, ...]
    """Sorted variables of the spec that are not passed to the role, because Ansible itself interprets them."""


def snake_case(key: str) -> str:
    """Return the variable name of a key of a spec; never raises.

    An underscore separates a known word (HTTP, URL, IP and their plurals; the first of each) from its neighbours. A
    change of letter case starts a word, but never after a word's first letter. A key that begins in upper case gets a
    leading underscore, unless it begins with a known word in singular and continues.
    """
    return _cached_snake_case(key) if len(key) <= _CACHED_KEY else _snake_case(key)


def _snake_case(key: str) -> str:
    text = _LETTER_BETWEEN_NUMBERS.sub(r"\1 \2 \3", key).strip(" ")
    begins_upper = "A" <= text[:1] <= "Z"
    for word in _KNOWN_WORDS:
        text = _set_apart(text, word)
    snake = _SEPARATOR.sub("_", _CASE_CHANGE.sub("_", text)).lower()
    if begins_upper and snake.partition("_")[0] not in _KNOWN_FIRST_WORD:
        return f"_{snake}"
    return snake


_cached_snake_case = lru_cache(maxsize=4096)(_snake_case)


def _set_apart(text: str, word: str) -> str:
    """Return `text` with underscores around the first `word`. A plural `s` becomes upper case: no word begins there."""
    match = _KNOWN_WORD[word].search(text)
    if not match:
        return text
    before, after = text[: match.start()], text[match.end() :]
    left = "_" if before or not after else ""
    right = "_" if after else ""
    return f"{before}{left}{match[0].upper()}{right}{after}"


def object_key(gvk: GVK) -> str:
    """Return the extra var with the whole object: `_cache_example_com_memcached`; `__secret` in the core group."""
    return re.sub(r"[.-]", "_", f"_{gvk.group}_{gvk.kind.lower()}")


def build(obj: Mapping[str, Any], watch: Watch, *, cause: Mapping[str, Any], finalizing: bool) -> Parameters:
    """Return the extra vars of a run for `obj`. A missing spec, or one that is not a map, counts as empty.

    `cause` is the reason for the run.

    Raises:
        TerminalError: the spec is nested too deeply for the conversion.
    """
    spec = mapping(obj.get("spec"))
    collisions: list[Collision] = []
    try:
        data = tuple(path.steps for path in watch.snake_case_except)
        converted = _convert(spec, _SPEC, data, collisions) if watch.snake_case_parameters else spec
    except RecursionError as error:
        raise TerminalError(
            f"the spec of {watch.gvk.kind} {key_of(obj)} nests too deep to become Ansible variables; flatten it",
        ) from error
    key = key_of(obj)
    whole = object_key(watch.gvk)
    reserved = {name for name in converted if is_reserved(name, watch.allow_ansible_variables)}
    of_object: dict[str, Any] = {
        CAUSE: dict(cause),
        **{name: value for name, value in converted.items() if name not in reserved},
        META: {"name": key.name, "namespace": key.namespace},
        whole: obj,
        f"{whole}_spec": spec,
    }
    of_watch: dict[str, Any] = dict(watch.vars)
    if finalizing and watch.finalizer is not None:
        of_watch |= watch.finalizer.vars
    if not watch.mark_unsafe:
        of_object[whole] = _with_foreign(obj)
    unsafe = frozenset((of_object.keys() if watch.mark_unsafe else {CAUSE, META}) - of_watch.keys())
    return Parameters({**of_object, **of_watch}, unsafe, tuple(collisions), tuple(sorted(reserved)))


def _with_foreign(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object with marks on what users can write without the permission to write its spec."""
    meta = obj.get("metadata") or {}
    marked = {**obj, "metadata": {**meta, **{name: Foreign(meta[name]) for name in _OF_OTHERS if name in meta}}}
    return {**marked, "status": Foreign(obj["status"])} if "status" in obj else marked


def variables(value: dict[str, Any], watch: Watch) -> dict[str, Any]:
    """Return a map of the spec with the keys that the run receives. Of two keys that collide, the later one is used.

    Raises:
        TerminalError: it is nested too deeply.
    """
    try:
        return _convert_map(value, _SPEC, (), []) if watch.snake_case_parameters else value
    except RecursionError as error:
        raise TerminalError("the variables of a host nest too deep; flatten them") from error


def is_reserved(name: str, allowed: frozenset[str]) -> bool:
    """Return True if Ansible itself interprets the variable `name` and the watch does not allow it.

    Such a variable selects a connection, an interpreter or a command. With it, a user with permission to write a custom
    resource could execute code as the operator.
    """
    return (name in _RESERVED or name.startswith(_RESERVED_PREFIXES)) and name not in allowed


def _convert(value: Any, path: _Path, data: _Ways, collisions: list[Collision]) -> Any:
    """Return `value` with the keys of all its maps converted. Unchanged parts are the same objects, to be written once.

    `data` contains the paths from here to maps whose keys are data and are not converted.
    """
    if () in data:
        return value
    if isinstance(value, dict):
        return _convert_map(value, path, data, collisions)
    if isinstance(value, list):
        inner = spec_paths.in_list(data)
        items = [_convert(item, (path, index), inner, collisions) for index, item in enumerate(value)]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value


def _convert_map(value: dict[str, Any], path: _Path, data: _Ways, collisions: list[Collision]) -> dict[str, Any]:
    converted: dict[str, Any] = {}
    origin: dict[str, str] = {}
    unchanged = True
    for key, item in value.items():
        name = snake_case(key)
        if name in origin and len(collisions) < _MOST_COLLISIONS:
            collisions.append(Collision(_text(path), origin[name], key, name))
        origin[name] = key
        converted[name] = _convert(item, (path, key), spec_paths.below(data, key) if data else (), collisions)
        unchanged = unchanged and name == key and converted[name] is item
    return value if unchanged else converted


def has_template(value: Any) -> str | None:
    """Return the path of the first string or key of a spec that Ansible would template, such as `spec.a[0]`."""
    waiting: list[Iterator[tuple[_Path, Any]]] = [iter([(_SPEC, value)])]
    while waiting:
        where, current = next(waiting[-1], (None, None))
        if where is None:
            waiting.pop()
        elif isinstance(current, str):
            if any(mark in current for mark in _TEMPLATE_MARKS):
                return _text(where)
        elif isinstance(current, Mapping | list):
            waiting.append(_parts(where, current))
    return None


def _parts(path: _Path, value: Mapping[str, Any] | list[Any]) -> Iterator[tuple[_Path, Any]]:
    """Yield each key and each value of a map, or each item of a list, with its path."""
    if isinstance(value, list):
        yield from (((path, index), item) for index, item in enumerate(value))
    else:
        yield from (((path, key), part) for key, item in value.items() for part in (key, item))


def _text(path: _Path) -> str:
    parent, step = path
    parts: list[str] = []
    while parent is not None:
        parts.append(f"[{step}]" if isinstance(step, int) else f".{_cut(step)}")
        parent, step = parent
    return "".join([str(step), *reversed(parts)])


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"


T = TypeVar("T")

_LARGE = 64 * 1024
"""Bytes of JSON."""
_ONE: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
"""Lock for large objects of each event loop."""


def is_large(obj: Mapping[str, Any]) -> bool:
    """Return True if an object of the API server waits for other large ones."""
    return len(orjson.dumps(obj)) > _LARGE


async def convert(function: Callable[..., T], *args: object, large: bool, **keywords: object) -> T:
    """Return the result of a function that converts an object, in a thread: large objects one at a time.

    A large object needs half a second of CPU time. Several at once would delay the event loop, and with it leases and
    probes, because threads share the interpreter.
    """
    one = _ONE.setdefault(asyncio.get_running_loop(), asyncio.Lock()) if large else nullcontext()
    async with one:
        return await asyncio.to_thread(function, *args, **keywords)
