"""Preparation of the preloaded Kubernetes client, so that its first use in a process takes less time.

Each module and lookup is the first use in its process. It reads the kubeconfig, reads and writes the cache of
discovery, and formats tracebacks for exceptions of the API. Owns faster forms of two functions that the client calls,
and fills the caches that it uses.

Promises: the results are those of the client's own calls. A version of the client without one of these functions keeps
its own.
"""

from __future__ import annotations

import io
import json
import linecache
import re
import sys
from types import ModuleType
from typing import Any, NoReturn

_LONGEST = 1 << 16
"""Most characters of a kubeconfig that is read as JSON."""
_LONGEST_KEY = 1000
"""YAML refuses keys of more than 1024 characters."""
_CONTENT_TYPES = (
    ("application", "json"),
    ("application", "yaml"),
    ("text", "yaml"),
    ("text", "x-yaml"),
    ("application", "x-www-form-urlencoded"),
    ("multipart", "form-data"),
)
"""Types that the client compares with the type of each request, each by a regular expression of its own."""
_PATTERNS: tuple[tuple[str, int], ...] = (("json", re.IGNORECASE), (r'\d{3} .+ (".+")', 0))
"""Other regular expressions that the client, and the collection kubernetes.core, compile in each process."""
_RAISING = ("kubernetes.client.api_client", "kubernetes.client.rest", "kubernetes.dynamic.client")
"""Modules whose lines are in the traceback that an exception of the dynamic client contains."""


def prepare() -> None:
    """Prepare the client in this process and its forks, if it is imported."""
    _replace("kubernetes.config.kube_config", "yaml", "safe_load", _Yaml)
    _replace("kubernetes.dynamic.discovery", "json", "dump", _Json)
    matches = getattr(sys.modules.get("kubernetes.client.rest"), "contenttype_matches", None)
    if matches:
        for kind in _CONTENT_TYPES:
            matches("", *kind)
        for pattern, flags in _PATTERNS:
            re.compile(pattern, flags)
    for name in _RAISING:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            linecache.getlines(file)


def _replace(name: str, library: str, function: str, replacement: type[_Library]) -> None:
    """Replace a library that a module of the client has imported, unless it is not the one with this function."""
    module: Any = sys.modules.get(name)
    found = getattr(module, library, None)
    if isinstance(found, ModuleType) and hasattr(found, function):
        setattr(module, library, replacement(found))


class _Library:
    """A library of which a subclass replaces one function."""

    def __init__(self, library: ModuleType) -> None:
        self._library: Any = library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)


class _Yaml(_Library):
    """The library `yaml`. It parses files that are JSON, as the kubeconfigs of runs, without its parser in Python."""

    def safe_load(self, stream: Any) -> Any:
        """Return the first document of a stream."""
        if isinstance(stream, io.TextIOWrapper) and stream.seekable():
            start = stream.tell()
            try:
                return _parsed(stream.read(_LONGEST))
            except ValueError:
                stream.seek(start)
        return self._library.safe_load(stream)


def _parsed(text: str) -> dict[str, Any]:
    """Return the value of JSON that is the same value as YAML. Any other text is a ValueError."""
    if len(text) == _LONGEST or text[:1] != "{" or "\\" in text or not (text.isascii() and text.strip().isprintable()):
        raise ValueError("not certainly the same in both languages")
    found: dict[str, Any] = json.loads(
        text, object_pairs_hook=_mapping, parse_float=_refuse, parse_constant=_refuse, parse_int=_refuse
    )
    return found


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs) or any(len(key) > _LONGEST_KEY for key in found):
        raise ValueError("an unusual mapping")
    return found


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} can be another value in YAML")


class _Json(_Library):
    """The library `json`. It writes a value at once; writing its parts one after the other is done in Python."""

    def dump(self, value: Any, file: Any, **options: Any) -> None:
        """Write a value to a file."""
        file.write(self._library.dumps(value, **options))
