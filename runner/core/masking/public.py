"""Words that are public, so that a Secret that contains them hides no message. Pure.

Rule: a value of a Secret is masked unless it is public anyway. Public are words of names: of the object, its namespace,
kind and group, its role, and the objects that the run uses. Words of values in the spec are public, and values under a
key that is a name by convention, such as `username` or `host`. Arguments of tasks with `no_log` are always masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from runner.core.masking.forms import LEAST, is_sensitive

_NAMES = frozenset(
    {
        *("address", "database", "databasename", "dbname", "host", "hostname", "name", "namespace", "port", "schema"),
        *("sslmode", "superuser", "type", "user", "username"),
    }
)
"""Last words of keys whose values are names."""
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+")
_NAME = re.compile(r"[\w.@-]{1,253}", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z]+(?:[-_.][A-Za-z]+)*")
"""A value of the spec without digits: a password that a user copied to the spec usually has some."""
_MOST = 10_000
"""Values of a spec that are examined."""


def is_name(key: str, value: str | bytes = "") -> bool:
    """Return whether a key of a Secret or spec is a name by convention, and the value looks like one."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    parts = _WORD.findall(key)
    if not parts or is_sensitive(key) or (text and not _NAME.fullmatch(text.strip())):
        return False
    return parts[-1].lower() in _NAMES or "".join(parts[-2:]).lower() in _NAMES


def words(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts with their words, as values of Secrets spell them."""
    for text in texts:
        for word in (text, text.lower(), text.replace("-", "_"), *re.split(r"[^A-Za-z0-9]+", text)):
            if len(word) >= LEAST:
                yield word


def of_spec(spec: Any) -> Iterator[str]:
    """Yield the values of a spec that are words or names. Values under sensitive keys are omitted."""
    return islice(_of_spec(spec), _MOST)


def _of_spec(spec: Any) -> Iterator[str]:
    waiting = [("", spec)]
    for _ in range(_MOST):
        if not waiting:
            return
        key, value = waiting.pop()
        if isinstance(value, list):
            waiting += [(key, item) for item in value[:_MOST]]
        elif isinstance(value, dict):
            hides = is_sensitive(str(value.get("name")))
            inner = ((str(name), item) for name, item in islice(value.items(), _MOST))
            waiting += [(name, item) for name, item in inner if not (is_sensitive(name) or (hides and name == "value"))]
        elif isinstance(value, str) and (is_name(key, value) or _PLAIN.fullmatch(value)):
            yield from words([value])
