"""Search paths of roles and collections, and the path of an object's run folder.

Every search returns the searched folders, for error messages. Reads the file system; does not import Ansible.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import runner
from runner.values.objects import GVK, ObjectKey

_COLLECTIONS = "ansible_collections"
_FQCN_PARTS = 3
AS_DEPLOYED = {"ANSIBLE_GATHERING": "explicit"}
"""Variables that config/manager sets, so that a role without required facts fails outside the cluster too."""
_ROLES_OF_ANSIBLE = ("/usr/share/ansible/roles", "/etc/ansible/roles")
"""Ansible's own defaults, after the one below HOME."""
_SHIPPED = Path(runner.__file__).parent / "collections"
IMAGE = Path("/opt/ansible")
"""Folder of the project in the image; `watches.yaml` can contain paths below it."""


@dataclass(frozen=True, slots=True)
class ImageFiles:
    """Files of a project whose Dockerfiles copy them to other places in the image. Without copies, all is in place."""

    root: Path = Path()
    """Folder of the project."""
    copies: tuple[tuple[Path, Path], ...] = ()
    """Path in the image, and the file or folder of the project; a later copy takes precedence."""
    roles: tuple[Path, ...] = ()
    """Folders in the image that contain roles."""

    def sources(self, path: Path) -> list[Path]:
        """Return the paths of the project that can be a path in the image."""
        path = Path(os.path.normpath(path))
        return [source / path.relative_to(to) for to, source in reversed(self.copies) if path.is_relative_to(to)]

    def beside(self, folder: Path, name: str) -> list[Path]:
        """Return the paths of the project that can be a name relative to a folder of the project, in the image."""
        targets = [IMAGE] if folder == self.root and self.copies else []
        targets += [to / folder.relative_to(source) for to, source in self.copies if folder.is_relative_to(source)]
        return [source for target in targets for source in self.sources(target / name)]


NO_IMAGE = ImageFiles()


@dataclass(frozen=True, slots=True)
class SearchPath:
    """Folders to search for roles and collections, in order. All are absolute."""

    roles: tuple[Path, ...]
    """Folders that contain roles."""
    collections: tuple[Path, ...]
    """Folders named `ansible_collections`, whether they exist or not."""
    given: Mapping[str, tuple[Path, ...]]
    """Folders by variable of Ansible; empty if the user set no path."""
    image: ImageFiles = NO_IMAGE


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of a search; `path` is None if it failed."""

    path: Path | None
    searched: tuple[Path, ...]


def search_path(*, cwd: Path, roles_path: str, collections_path: str, environ: Mapping[str, str]) -> SearchPath:
    """Return the search path for two colon-separated lists (`ANSIBLE_ROLES_PATH`, `ANSIBLE_COLLECTIONS_PATH`).

    Entries can be relative to `cwd` or begin with `~`. Empty entries are ignored, as in Ansible.
    """
    home = environ.get("HOME", "")
    roles: list[Path] = []
    for entry in _entries(roles_path, cwd, home):
        roles += (entry, entry / "roles")
    default = [Path(home) / ".ansible/collections"] if home else []
    default.append(Path("/usr/share/ansible/collections"))
    configured = list(_entries(collections_path, cwd, home))
    python_path = [Path(entry).absolute() for entry in sys.path if entry]
    return SearchPath(
        roles=_once([*roles, cwd / "roles"]),
        collections=_once(_collections_below(entry) for entry in (*configured, *default, *python_path, _SHIPPED)),
        given=MappingProxyType(
            {
                "ANSIBLE_ROLES_PATH": _once(roles),
                "ANSIBLE_COLLECTIONS_PATH": _once([*configured, *default]) if configured else (),
            }
        ),
    )


def find_role(name: str, search_path: SearchPath, *, cwd: Path | None = None) -> SearchResult:
    """Find a role by absolute path, by name, or by `namespace.collection.role`.

    `cwd` is the project's folder, where a role of `watches.yaml` can also be; Ansible searches no such folder for the
    roles of a play. The order of the Go operator applies.
    """
    if Path(name).is_absolute():
        searched = _absolute_or_in_project(name, cwd)
    else:
        searched = [entry / name for entry in search_path.roles]
        parts = name.split(".")
        if len(parts) == _FQCN_PARTS and all(parts):
            namespace, collection, role = parts
            # Of Python's many folders, only those with collections are relevant.
            roots = [root for root in search_path.collections if _is_relevant(root)]
            searched = [*(root / namespace / collection / "roles" / role for root in roots), *searched]
        if cwd is not None:
            searched.append(cwd / name)
    image, folders = search_path.image, (*search_path.roles, *((cwd,) if cwd else ()))
    searched += [path for folder in folders for path in image.beside(folder, name)]
    searched += [path for folder in image.roles for path in image.sources(folder / name)]
    # normpath: errors and runs show `roles/a`, not `./roles/a`; symbolic links are kept.
    searched = list(_once(Path(os.path.normpath(path)) for path in searched))
    return SearchResult(next((path for path in searched if path.is_dir()), None), tuple(searched))


def find_file(name: str, cwd: Path, image: ImageFiles = NO_IMAGE) -> SearchResult:
    """Find a playbook by absolute path, or by path relative to the project's folder `cwd`."""
    candidates = (*_absolute_or_in_project(name, cwd), *image.beside(cwd, name))
    searched = _once(absolute(str(path), cwd) for path in candidates)
    return SearchResult(next((path for path in searched if path.is_file()), None), searched)


def _absolute_or_in_project(name: str, cwd: Path | None) -> list[Path]:
    """Return a path, and for one in the image the path in the project, to run outside the image."""
    path = Path(name)
    if cwd is None or not path.is_relative_to(IMAGE):
        return [path]
    return list(_once([path, cwd / path.relative_to(IMAGE)]))


def find_collection(name: str, search_path: SearchPath) -> SearchResult:
    """Find a collection by `namespace.collection`."""
    namespace, _, collection = name.partition(".")
    searched = tuple(root / namespace / collection for root in search_path.collections if _is_relevant(root))
    return SearchResult(next((path for path in searched if path.is_dir()), None), searched)


def ansible_environment(search_path: SearchPath, environ: Mapping[str, str], cwd: Path) -> dict[str, str]:
    """Return Ansible's variables for the search path, with absolute paths, since runs have another working directory.

    Variables that the user did not set are omitted, because they would override an ansible.cfg. Only if no file sets
    `roles_path`, plays also find the roles in `roles/` of the working directory, as in the image.
    """
    variables = {name: ":".join(map(str, entries)) for name, entries in search_path.given.items() if entries}
    configs = ansible_configs(environ, cwd)
    if environ.get("ANSIBLE_CONFIG"):
        variables["ANSIBLE_CONFIG"] = str(configs[0])
    defaults = _defaults(configs)
    if "ANSIBLE_ROLES_PATH" not in variables and "roles_path" not in defaults:
        home = environ.get("ANSIBLE_HOME") or defaults.get("home") or "~/.ansible"
        variables["ANSIBLE_ROLES_PATH"] = ":".join([str(cwd / "roles"), f"{home}/roles", *_ROLES_OF_ANSIBLE])
    return variables


def _defaults(configs: Iterable[Path]) -> Mapping[str, str]:
    """Return the section `defaults` of the file that Ansible reads. Ansible itself reports a file that is invalid."""
    config = next((path for path in configs if os.access(path, os.R_OK)), None)
    parser = ConfigParser(inline_comment_prefixes=(";",), interpolation=None)
    try:
        parser.read_string(config.read_text(encoding="utf-8", errors="replace") if config else "")
    except ConfigParserError:
        return {}
    return parser["defaults"] if parser.has_section("defaults") else {}


def ansible_configs(environ: Mapping[str, str], cwd: Path) -> tuple[Path, ...]:
    """Return the files of which Ansible reads the first that exists.

    An `ansible.cfg` in the operator's working directory is not one of them: runs have another working directory.
    """
    config, home = environ.get("ANSIBLE_CONFIG", ""), environ.get("HOME", "")
    own = [absolute(str(Path(config).expanduser()), cwd)] if config else []
    own = [path / "ansible.cfg" if path.is_dir() else path for path in own]
    return (*own, *([Path(home, ".ansible.cfg")] if home else []), Path("/etc/ansible/ansible.cfg"))


def absolute(text: str, cwd: Path) -> Path:
    """Return the absolute form of a path that can be relative to `cwd`."""
    return Path(os.path.normpath(cwd / text))


def run_dir(root: Path, gvk: GVK, key: ObjectKey) -> Path:
    """Return an object's run folder: `root/<group>/<version>/<Kind>/<namespace>/<name>`.

    Empty parts (the core group, no namespace) add no folder.
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
    """Return the folder `ansible_collections` of an entry, which is its parent or, as in Ansible, the folder itself."""
    return entry if entry.name == _COLLECTIONS else entry / _COLLECTIONS


def _is_relevant(root: Path) -> bool:
    return root.is_dir() or str(root.parent) not in sys.path


def _once(paths: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(paths))
