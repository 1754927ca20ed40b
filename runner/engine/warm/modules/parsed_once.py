"""Cache of the imports that Ansible finds in Python files when it resolves payloads.

Payloads share most of their files, and Ansible parses all files for each payload: half of the time of a fork server's
start. The cache exists only during the resolution. Must be imported only where Ansible is loaded.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from ansible.executor import module_common

_ansible: Any = module_common
_WHAT_IS_FOUND = ("submodules", "optional_imports", "embeds")
"""Attributes of a finder that Ansible reads. The parsed tree is not kept."""


@contextlib.contextmanager
def parsed_once() -> Iterator[None]:
    """Return a context in which Ansible parses no file twice."""
    known = _Known(_ansible.ModuleDepFinder, {})
    known.install()
    try:
        yield
    finally:
        known.uninstall()


@dataclass(frozen=True, slots=True)
class _Unparsed:
    """Replacement for the tree of a file that was parsed before."""

    source: Any
    file: str

    def parse(self) -> ast.Module:
        tree: ast.Module = ast.parse(self.source, self.file)
        return tree


@dataclass(frozen=True, slots=True)
class _Known:
    """Results of Ansible's own finder."""

    finder: Any
    found: dict[bytes, dict[object, SimpleNamespace]]
    """By the digest of a file and the other inputs of the search: the name, and whether it is a package."""

    def install(self) -> None:
        """Replace Ansible's finder and parser with this cache."""
        _ansible.ModuleDepFinder, _ansible.compile = self.find, self.compile

    def uninstall(self) -> None:
        """Restore Ansible's finder and parser."""
        _ansible.ModuleDepFinder = self.finder
        del _ansible.compile  # the name is Python's own function again

    def compile(self, source: Any, file: str, mode: str, flags: int = 0) -> Any:
        """Replace `compile` where Ansible parses."""
        if flags != ast.PyCF_ONLY_AST:
            return compile(source, file, mode, flags)
        digest = _digest(source)
        if digest in self.found:
            return _Unparsed(source, file)
        tree: Any = _Unparsed(source, file).parse()
        tree.digest = digest
        return tree

    def find(self, name: str, given: Any, *package: bool, **named: bool) -> Any:
        """Replace the finder. `given` is a tree before ansible-core 2.21, and the source since then.

        For the modules themselves, which occur once each, Ansible does not pass whether they are packages.
        """
        if not package and not named:
            return self._look(name, given)
        digest = _digest_of(given)
        key = (name, package, *named.values())
        known = self.found.setdefault(digest, {})
        if key not in known:
            finder = self._look(name, given, *package, **named)
            known[key] = SimpleNamespace(**{each: getattr(finder, each, ()) for each in _WHAT_IS_FOUND})
        return known[key]

    def _look(self, name: str, given: Any, *package: bool, **named: bool) -> Any:
        self.uninstall()  # since ansible-core 2.21 the finder parses, and finds its base class by its own name
        try:
            return self.finder(name, given.parse() if isinstance(given, _Unparsed) else given, *package, **named)
        finally:
            self.install()


def _digest_of(given: Any) -> bytes:
    if isinstance(given, ast.Module):
        digest: bytes = given.digest  # type: ignore[attr-defined]  # see `compile`
        return digest
    return _digest(given.source if isinstance(given, _Unparsed) else given)


def _digest(source: Any) -> bytes:
    return hashlib.blake2b(source if isinstance(source, bytes) else str(source).encode(), digest_size=16).digest()
