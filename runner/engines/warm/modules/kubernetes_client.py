"""Preparation of the preloaded Kubernetes client, so that each module and lookup reads the kubeconfig in less time.

Owns a faster form of the function with which the client parses the kubeconfig. Promises: the result is that of the
client's own call. A version of the client without this function keeps its own.
"""

from __future__ import annotations

import io
import json
import sys
from types import ModuleType
from typing import Any, NoReturn

_LONGEST = 1 << 16
"""Most characters of a kubeconfig that is read as JSON."""
_LONGEST_KEY = 1000
"""YAML refuses keys of more than 1024 characters."""


def prepare() -> None:
    """Prepare the client in this process and its forks, if it is imported and parses with the library `yaml`."""
    module: Any = sys.modules.get("kubernetes.config.kube_config")
    library = getattr(module, "yaml", None)
    if isinstance(library, ModuleType) and hasattr(library, "safe_load"):
        module.yaml = _Yaml(library)


class _Yaml:
    """The library `yaml`. It parses files that are JSON, as the kubeconfigs of runs, without its parser in Python."""

    def __init__(self, library: ModuleType) -> None:
        self._library: Any = library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

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
    value: dict[str, Any] = json.loads(
        text, object_pairs_hook=_mapping, parse_float=_refuse, parse_constant=_refuse, parse_int=_refuse
    )
    return value


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs) or any(len(key) > _LONGEST_KEY for key in mapping):
        raise ValueError("an unusual mapping")
    return mapping


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} can be another value in YAML")
