"""Where things lie: roles, collections, and each object's run folder.

Owns: the order in which places are tried. Promises: every search returns the places it tried, so that whoever
reports a failure can name them all. Looks at the file system, never changes it, and never imports Ansible to ask it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from runner.objects import GVK, ObjectKey

_COLLECTIONS = "ansible_collections"
_FQCN_PARTS = 3
_SHIPPED = Path(__file__).parents[1] / "collections"


@dataclass(frozen=True, slots=True)
class SearchPath:
    """Where roles and collections are looked for, in order. All folders are absolute."""

    roles: tuple[Path, ...]
    """Folders that hold roles by name."""
    collections: tuple[Path, ...]
    """Folders named `ansible_collections`, whether they exist or not."""
    given: Mapping[str, tuple[Path, ...]]
    """By Ansible's variable, where Ansible itself should look; empty where the user gave no path."""


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of a search: `path` is None when none of the `tried` places had it."""

    path: Path | None
    tried: tuple[Path, ...]


def search_path(*, cwd: Path, roles_path: str, collections_path: str, environ: Mapping[str, str]) -> SearchPath:
    """Turn the two colon lists (`ANSIBLE_ROLES_PATH`, `ANSIBLE_COLLECTIONS_PATH`) into the whole search order.

    Entries may be relative to `cwd` or begin with `~`; empty ones are skipped, as Ansible does.
    """
    home = environ.get("HOME", "")
    roles: list[Path] = []
    for entry in _entries(roles_path, cwd, home):
        roles += (entry, entry / "roles")
    usual = [Path(home) / ".ansible/collections"] if home else []
    usual.append(Path("/usr/share/ansible/collections"))
    named = list(_entries(collections_path, cwd, home))
    of_python = [Path(entry).absolute() for entry in sys.path if entry]
    return SearchPath(
        roles=_once([*roles, cwd / "roles"]),
        collections=_once(_collections_below(entry) for entry in (*named, *usual, *of_python, _SHIPPED)),
        given=MappingProxyType(
            {
                "ANSIBLE_ROLES_PATH": _once(roles),
                "ANSIBLE_COLLECTIONS_PATH": _once([*named, *usual]) if named else (),
            }
        ),
    )


def find_role(name: str, places: SearchPath) -> Found:
    """Find a role by absolute path, by name, or by `namespace.collection.role`."""
    if Path(name).is_absolute():
        tried = [Path(name)]
    else:
        tried = [entry / name for entry in places.roles]
        parts = name.split(".")
        if len(parts) == _FQCN_PARTS and all(parts):
            namespace, collection, role = parts
            # Of the many folders that Python searches, only those that hold collections are worth naming.
            roots = [root for root in places.collections if _worth_naming(root)]
            tried += [root / namespace / collection / "roles" / role for root in roots]
    # normpath: the error and the run show `roles/a`, not `./roles/a`; links stay as they are.
    tried = [Path(os.path.normpath(path)) for path in tried]
    return Found(next((path for path in tried if path.is_dir()), None), tuple(tried))


def find_collection(name: str, places: SearchPath) -> Found:
    """Find a collection by `namespace.collection`."""
    namespace, _, collection = name.partition(".")
    tried = tuple(root / namespace / collection for root in places.collections if _worth_naming(root))
    return Found(next((path for path in tried if path.is_dir()), None), tried)


def ansible_environment(places: SearchPath) -> dict[str, str]:
    """Return the variables that let Ansible, started anywhere, find what `places` finds.

    Relative entries mean the operator's working directory, which a run does not share. What the user gave no path for
    is left out, lest it hide what an ansible.cfg says.
    """
    return {name: ":".join(map(str, entries)) for name, entries in places.given.items() if entries}


def absolute(text: str, cwd: Path) -> Path:
    """Return the absolute form of a path that may be relative to the working directory."""
    return Path(os.path.normpath(cwd / text))


def run_dir(root: Path, gvk: GVK, key: ObjectKey) -> Path:
    """Return an object's run folder: `root/<group>/<version>/<Kind>/<namespace>/<name>`.

    A part that is empty (the core group, no namespace) leaves no folder.
    """
    return root.joinpath(*(part for part in (gvk.group, gvk.version, gvk.kind, key.namespace, key.name) if part))


def _entries(colon_list: str, cwd: Path, home: str) -> Iterator[Path]:
    for entry in colon_list.split(":"):
        if not entry:
            continue
        if home and (entry == "~" or entry.startswith("~/")):
            yield Path(home + entry[1:])
        else:
            yield absolute(entry, cwd)


def _collections_below(entry: Path) -> Path:
    """An entry is the parent of `ansible_collections`, or that folder itself: Ansible accepts both."""
    return entry if entry.name == _COLLECTIONS else entry / _COLLECTIONS


def _worth_naming(root: Path) -> bool:
    return root.is_dir() or str(root.parent) not in sys.path


def _once(paths: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(paths))
