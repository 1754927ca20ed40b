"""Files of a project of the Go operator: watches, Dockerfiles, collections, manifests. Reads files only."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from runner.compatibility import task_fields
from runner.config import paths
from runner.config.paths import SearchPath
from runner.errors import ConfigError
from runner.sdk.migrate import dockerfile
from runner.sdk.migrate.dockerfile import Dockerfile
from runner.watches import validation
from runner.watches.validation import ValidationResult
from runner.watches.watch import Watch
from runner.yamlfile import tree
from runner.yamlfile.tree import Problems, SourceText

_WATCHES = ("watches.yaml", "watches.yml")
_MANIFESTS = ("config", "deploy", "manifests", "samples", "examples")
"""Folders with manifests, CRDs and samples."""
_DOCKERFILES = ("Dockerfile*", "Containerfile*", "build/Dockerfile*", "build/Containerfile*", "*/Dockerfile")
_SUFFIXES = {".yaml", ".yml"}
_REQUIREMENTS = "requirements.yml"
_GALAXY = re.compile(r"ansible-galaxy\s+collection\s+install\s+((?:\\\n|[^&|;\n])*)")
_COLLECTION = re.compile(r"(?<!\S)([a-z_][a-z0-9_]*\.[a-z_][a-z0-9_]*)(?=[\s:=<>]|$)")


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection in requirements.yml."""

    version: str
    """As written; empty: any."""
    line: int


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML document of a manifest."""

    source: SourceText
    root: yaml.Node
    value: Mapping[str, Any]


class Project:
    """A project, whose folder must be the working directory."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Find the watches file. Raises ConfigError if there is none."""
        self.root = Path.cwd()
        self.environ = environ
        found = next((name for name in _WATCHES if Path(name).is_file()), None)
        if found is None:
            raise ConfigError(f"{self.root} is not a project of an Ansible operator: it has no watches.yaml")
        self.watches_file = Path(found)

    @cached_property
    def search_path(self) -> SearchPath:
        """Folders of roles and collections."""
        return paths.search_path(
            cwd=self.root,
            roles_path=self.environ.get("ANSIBLE_ROLES_PATH", ""),
            collections_path=self.environ.get("ANSIBLE_COLLECTIONS_PATH", ""),
            environ=self.environ,
        )

    @cached_property
    def content(self) -> ValidationResult:
        """Watches, roles and playbooks, with their problems."""
        return validation.validate(
            self.watches_file,
            environ=self.environ,
            cwd=self.root,
            search_path=self.search_path,
            whole_project=True,
        )

    @cached_property
    def dockerfiles(self) -> tuple[Dockerfile, ...]:
        """Dockerfiles of operators: of the Go operator's image, or of this distribution's."""
        found = sorted({path for pattern in _DOCKERFILES for path in Path().glob(pattern) if path.is_file()})
        parsed = (dockerfile.parse(str(path), _text(path)) for path in found)
        return tuple(each for each in parsed if each.base is not None)

    @cached_property
    def collections(self) -> Mapping[str, Collection]:
        """Collections of requirements.yml by name; empty without such a file."""
        path = Path(_REQUIREMENTS)
        roots = _compose(path, Problems()) if path.is_file() else []
        found: dict[str, Collection] = {}
        for source, root in roots[:1]:
            for entry in _items(task_fields.value_of(root, "collections")):
                name = (
                    _scalar(task_fields.value_of(entry, "name"))
                    if isinstance(entry, yaml.MappingNode)
                    else _scalar(entry)
                )
                line = source.line(entry.start_mark)
                found[name] = Collection(_scalar(task_fields.value_of(entry, "version")), line)
        return found

    @cached_property
    def installed_collections(self) -> frozenset[str]:
        """Return the collections of requirements.yml, and those that Dockerfiles install by name."""
        commands = (each for parsed in self.dockerfiles for each in _GALAXY.findall(parsed.text))
        return frozenset(self.collections) | {name for each in commands for name in _COLLECTION.findall(each)}

    def installs(self, package: str) -> bool:
        """Return whether a Dockerfile, or a file of Python requirements, names a Python package."""
        files = (_text(path) for path in Path().glob("*requirements*.txt"))
        return any(package in text for text in (*(parsed.text for parsed in self.dockerfiles), *files))

    @cached_property
    def documents(self) -> tuple[Document, ...]:
        """Documents of all manifests; files that are not valid YAML are omitted."""
        pairs = [pair for path in self._manifests() for pair in _compose(path, Problems())]
        return tuple(_documents(pairs))

    @cached_property
    def examples(self) -> tuple[Document, ...]:
        """Samples in the annotation `alm-examples` of ClusterServiceVersions."""
        pairs: list[tuple[SourceText, yaml.Node]] = []
        for document in self.documents:
            node: yaml.Node | None = document.root
            for key in ("metadata", "annotations", "alm-examples"):
                node = task_fields.value_of(node, key)
            if isinstance(node, yaml.ScalarNode):
                # Its lines are those of the file, where a block scalar begins in the next line.
                before = document.source.line(node.start_mark) - (node.style not in {"|", ">"})
                source = tree.expand(document.source.file, "\n" * before + node.value, {})
                pairs += [(source, item) for root in tree.documents(source, Problems()) for item in _items(root)]
        return tuple(_documents(pairs))

    def fields_of(self, watch: Watch) -> frozenset[str]:
        """Return the fields that the watches file sets for a watch."""
        return self._fields.get(watch.line, frozenset())

    @cached_property
    def _fields(self) -> Mapping[int, frozenset[str]]:
        return {
            source.line(entry.start_mark): frozenset(key.value for key, _ in task_fields.pairs(entry))
            for source, root in _compose(self.watches_file, Problems())
            for entry in _items(root)
        }

    def _manifests(self) -> Iterator[Path]:
        for folder in _MANIFESTS:
            for path in sorted(each for each in Path(folder).rglob("*") if each.suffix in _SUFFIXES):
                if path.is_file() and _is_used(path):
                    yield path

    def shown(self, path: Path) -> str:
        """Return a path relative to the project."""
        return os.path.relpath(path, self.root) if path.is_relative_to(self.root) else str(path)


def _is_used(path: Path) -> bool:
    """Return False for a patch that the kustomization in its folder does not list."""
    kustomization = path.with_name("kustomization.yaml")
    if "patch" not in path.name or not kustomization.is_file():
        return True
    return any(path.name in line and not line.lstrip().startswith("#") for line in _text(kustomization).splitlines())


def _documents(pairs: Iterable[tuple[SourceText, yaml.Node]]) -> Iterator[Document]:
    for source, root in pairs:
        try:
            value = tree.plain(root)
        except ValueError:
            continue  # kubectl rejects the file as well
        yield Document(source, root, value if isinstance(value, dict) else {"items": value})


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _compose(path: Path, problems: Problems) -> list[tuple[SourceText, yaml.Node]]:
    source = tree.expand(str(path), _text(path), {})
    return [(source, root) for root in tree.documents(source, problems)]


def _items(node: yaml.Node | None) -> list[yaml.Node]:
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _scalar(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""
