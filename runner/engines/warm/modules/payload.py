"""Payload of a module: the files that Ansible would send with it, resolved by Ansible itself.

Owns `Payload`, its resolution, and the check that an earlier resolution is still valid. Because Ansible resolves it,
the result is the same as in a new interpreter. This includes overrides of `module_utils` in roles and beside playbooks,
redirects of collections, and optional imports.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.executor import module_common

from runner.base.config import atomic_file
from runner.engines.warm import versions
from runner.engines.warm.stamps import Stamp, stamp

_SYNTHETIC = "<payload>"
_RESPAWN = "ansible.module_utils.common.respawn"
_STARTS_ANEW = (b"multiprocessing", b"ProcessPoolExecutor")


@dataclass(frozen=True, slots=True)
class Entry:
    """One Python module of a payload."""

    path: str
    digest: bytes
    is_package: bool
    source: bytes | None
    """Content, if Ansible generated it."""
    is_builtin: bool
    """True if it is part of Ansible, so that its name is sufficient to import it."""

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders of a package's modules."""
        return () if self.source is not None else (str(Path(self.path).parent),)

    def read(self) -> bytes:
        """Return the content."""
        return self.source if self.source is not None else Path(self.path).read_bytes()


@dataclass(frozen=True, slots=True)
class Payload:
    """Content of Ansible's payload of one module."""

    name: str
    """The module's Python name: `ansible_collections.kubernetes.core.plugins.modules.k8s`."""
    path: str
    entries: Mapping[str, Entry]
    stamps: tuple[Stamp, ...]
    overrides: tuple[Stamp, ...]
    """Files in the folders with possible overrides of `module_utils`."""

    starts_anew: bool
    """True if the module may start itself again from its payload, which does not exist."""

    def is_valid(self, overrides: tuple[Stamp, ...]) -> bool:
        """Return True if no file of the resolution has changed."""
        return overrides == self.overrides and all(stamp(known[0]) == known for known in self.stamps)


def plain(text: str) -> str:
    """Return a plain `str`. Pickling Ansible's subclasses of `str` would import Ansible."""
    return bytes.decode(encoded(text), "utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """Return a string's bytes as plain `bytes`."""
    return str.encode(text, "utf-8", "surrogateescape")


class NotPlain(Exception):  # noqa: N818 - not an error: the module is then run the cold way
    """Module whose payload contains more than Python modules from files."""


UNRESOLVABLE = (AnsibleError, NotPlain, OSError, SyntaxError, SystemExit, UnicodeDecodeError)
"""Exceptions that a module's own files may cause while Ansible resolves the module's imports."""


def overrides(folders: Iterable[str], builtin: str) -> tuple[Stamp, ...]:
    """Return stamps of every file in these folders, which could override Ansible's own `module_utils`."""
    stamps = []
    for folder in folders:
        if os.path.realpath(folder) == builtin:
            continue
        stamps.append((folder, 0, 0, 0))
        for parent, _, names in sorted(os.walk(folder)):
            paths = (os.path.join(parent, name) for name in sorted(names))  # noqa: PTH118 - as above
            stamps.extend(now for path in paths if (now := stamp(path)))
    return tuple(stamps)


def current_overrides() -> tuple[Stamp, ...]:
    """Return stamps of the files that could override Ansible's own `module_utils` in this process."""
    return overrides(map(plain, versions.module_utils_folders()), versions.BUILTIN_MODULE_UTILS)


class _Zip:
    """Replacement for the archive into which Ansible writes a payload."""

    compression = 0

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def writestr(self, info: Any, data: str | bytes) -> None:
        """Store a file. Before ansible-core 2.21 the content of a synthetic package is an empty `str`."""
        content = encoded(data) if isinstance(data, str) else memoryview(data).tobytes()
        self.files[plain(info.filename)] = content

    def namelist(self) -> list[str]:
        return list(self.files)


@contextlib.contextmanager
def parsed_once() -> Iterator[None]:
    """Let Ansible parse each file once for the payloads resolved in this context, which have most files in common."""
    module_common.compile = functools.cache(compile)  # hides the built-in function from this module only
    try:
        yield
    finally:
        del module_common.compile


def resolve(module_name: str, path: str, source: bytes) -> Payload:
    """Resolve the files that a module needs, with Ansible's functions.

    Raises:
        NotPlain: the payload contains more than Python modules from files.
        Exception: any exception of Ansible.
    """
    module_name, path = plain(module_name), plain(path)
    name = plain(versions.python_name(module_name, path))
    archive = _Zip()
    versions.collect(archive, module_name, name, path, source)
    entries, stamps = {}, {path: stamp(path)}
    if Path(path).read_bytes() != source:
        raise NotPlain(f"{path} is being written")
    for file, content in archive.files.items():
        stem, dot, extension = file.rpartition(".")
        if (dot, extension) != (".", "py"):
            raise NotPlain(file)
        python_name = stem.replace("/", ".")
        entry, before = _entry(file, python_name, content)
        entries[python_name.removesuffix(".__init__")] = entry
        stamps[entry.path] = before
    entries[name] = Entry(path, digest_of(source), is_package=False, source=None, is_builtin=False)
    starts_anew = _RESPAWN in entries or any(
        word in entry.read() for entry in entries.values() if not entry.is_builtin for word in _STARTS_ANEW
    )
    known = tuple(sorted(before for before in stamps.values() if before))
    return Payload(name, path, entries, known, current_overrides(), starts_anew)


def _entry(file: str, python_name: str, content: bytes) -> tuple[Entry, Stamp | None]:
    """Return the entry for a file of a payload, and the file's stamp from before its content was read."""
    is_package = python_name.endswith(".__init__")
    for path in _places(file):
        before = stamp(path)
        try:
            on_disk = Path(path).read_bytes()
        except OSError:
            continue
        if on_disk == content:
            is_builtin = path.startswith(versions.BUILTIN_MODULE_UTILS + os.sep)
            return Entry(path, digest_of(content), is_package, None, is_builtin), before
    core = python_name in {"ansible.__init__", "ansible.module_utils.__init__"}
    return Entry(f"{_SYNTHETIC}/{file}", digest_of(content), is_package, content, core), None


def _places(file: str) -> Iterable[str]:
    """Yield the paths from which a file of a payload may have been read."""
    parts = file.split("/")
    if parts[:2] == ["ansible", "module_utils"]:
        for folder in (*map(plain, versions.module_utils_folders()), versions.BUILTIN_MODULE_UTILS):
            yield os.path.join(folder, *parts[2:])  # noqa: PTH118 - strings on both sides
    elif parts[0] == "ansible_collections" and len(parts) > 3:  # noqa: PLR2004 - namespace, collection, file
        package = versions.collection_folder(".".join(parts[:3]))
        if package:
            yield os.path.join(package, *parts[3:])  # noqa: PTH118 - as above


def digest_of(content: bytes) -> bytes:
    """Return a digest of the content."""
    return hashlib.blake2b(content, digest_size=16).digest()


class Payloads:
    """Cache of payloads: the preloaded ones, and those that this run resolved."""

    def __init__(self, preimported: Iterable[Payload]) -> None:
        self._known = {(payload.name, payload.path): payload for payload in preimported}
        self._first: dict[str, str] = {}

    def __iter__(self) -> Any:
        return iter(self._known.values())

    def find(self, module_name: str, path: str, source: bytes, cache: Path) -> Payload:
        """Return a module's payload; `cache` is a folder of this run for payloads that are not preloaded.

        Several modules can have the same Python name: before ansible-core 2.19, a role's module and Ansible's own. Then
        the first one that a run uses replaces all of them, as in Ansible's own cache.
        """
        name, own = plain(versions.python_name(module_name, path)), plain(path)
        first = self._first.get(name) or _first(cache, name, own)
        self._first[name] = first
        if first != own:
            path, source = first, Path(first).read_bytes()
        key = (name, first)
        now = current_overrides()
        known = self._known.get(key)
        if known and known.is_valid(now):
            return known
        file = cache / hashlib.blake2b(repr(key).encode(), digest_size=16).hexdigest()
        try:
            known = pickle.loads(file.read_bytes())  # noqa: S301 - see above
        except (OSError, EOFError, pickle.UnpicklingError):
            known = None
        if not isinstance(known, Payload) or not known.is_valid(now):
            known = resolve(module_name, path, source)
            _keep(file, known)
        self._known[key] = known
        return known


def _first(cache: Path, name: str, path: str) -> str:
    """Return the path of the first module of this name that any process of this run has used, else `path`."""
    file = cache / f"first-{name}"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = file.with_name(f"{file.name}-{secrets.token_hex(4)}")
    fresh.write_bytes(os.fsencode(path))
    try:
        file.hardlink_to(fresh)
    except FileExistsError:
        return os.fsdecode(file.read_bytes())
    finally:
        fresh.unlink()
    return path


def _keep(file: Path, payload: Payload) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic_file.write(file, pickle.dumps(payload))
