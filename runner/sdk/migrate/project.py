"""Files of a project of the Go operator: watches, Dockerfiles, collections, manifests. Reads files only."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from runner.app.features import FEATURE_FIELDS
from runner.base.config import paths
from runner.base.config.paths import SearchPath
from runner.base.yamlfile import nodes, tree
from runner.base.yamlfile.tree import Problems, SourceText
from runner.compatibility import validation
from runner.compatibility.validation import ValidationResult
from runner.core.watches.watch import Watch
from runner.sdk.migrate import image
from runner.sdk.migrate.dockerfile import Dockerfile
from runner.values.errors import ConfigError

_WATCHES = ("watches.yaml", "watches.yml")
_MANIFESTS = ("config", "deploy", "manifests", "samples", "examples")
"""Folders with manifests, CRDs and samples."""
_CONTENTS = {"role", "playbook"}
_SUFFIXES = {".yaml", ".yml"}
_REQUIREMENTS = "requirements.yml"
_GALAXY = re.compile(r"ansible-galaxy\s+collection\s+install\s+((?:\\\n|[^&|;\n])*)")
_GIT = re.compile(r"^git[+@]|://|\.git(?:$|[#,])")
_NAME = re.compile(r"[a-z_][a-z0-9_]*\.[a-z_][a-z0-9_]*")
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


def watches_files(given: Path | None = None) -> tuple[Path, ...]:
    """Return the watches files of the project in the working directory: `given`, watches.yaml, or all by their content.

    Raises ConfigError if there is none.
    """
    if given is not None:
        return (given,)
    standard = next((Path(name) for name in _WATCHES if Path(name).is_file()), None)
    files = (standard,) if standard else other_watches_files(None)
    if not files:
        raise ConfigError(
            f"{Path.cwd()} is not a project of an Ansible operator: no file has the content of a watches file; "
            "set --watches-file"
        )
    return files


def other_watches_files(one: Path | None) -> tuple[Path, ...]:
    """Return the files whose content is that of a watches file, without one of them."""
    paths_of_yaml = image.own_files([f"*{suffix}" for suffix in sorted(_SUFFIXES)])
    return tuple(path for path in paths_of_yaml if path != one and _is_watches_file(path))


def git_collection(text: str) -> tuple[str, str]:
    """Return name and version of a collection; of a Git URL, the name of the repository or folder, if it is one."""
    if not _GIT.search(text):
        return text, ""
    address, _, version = text.removeprefix("git+").partition(",")
    url, _, folder = address.partition("#")
    name = ".".join(folder.strip("/").split("/")[-2:]) if folder.strip("/") else url.rstrip("/").rpartition("/")[2]
    name = name.removesuffix(".git").removeprefix("ansible-collection-").replace("-", "_")
    return (name if _NAME.fullmatch(name) else text), version


def _is_watches_file(path: Path) -> bool:
    """Return whether a file is a list of watches."""
    text = _text(path)
    if "kind" not in text or not ("role" in text or "playbook" in text):
        return False  # most files; parsing takes longer
    roots = _compose(path, Problems())
    entries = [{key.value for key, _ in nodes.pairs(item)} for _, root in roots[:1] for item in nodes.items(root)]
    return bool(entries) and all({"kind", "version"} <= keys and keys & _CONTENTS for keys in entries)


class Project:
    """A project with one watches file. Its folder must be the working directory."""

    def __init__(self, environ: Mapping[str, str], watches_file: Path | None = None) -> None:
        """Without `watches_file`, use the first that is found. Raises ConfigError if there is none."""
        self.root = Path.cwd()
        self.environ = environ
        self.watches_file = watches_file or watches_files()[0]

    @cached_property
    def search_path(self) -> SearchPath:
        """Folders of roles and collections."""
        search_path = paths.search_path(
            cwd=self.root,
            roles_path=self.environ.get("ANSIBLE_ROLES_PATH", ""),
            collections_path=self.environ.get("ANSIBLE_COLLECTIONS_PATH", ""),
            environ=self.environ,
        )
        return replace(search_path, image=image.files(self._all_dockerfiles, self.watches_file))

    @cached_property
    def content(self) -> ValidationResult:
        """Watches, roles and playbooks, with their problems."""
        return validation.validate(
            self.watches_file,
            environ=self.environ,
            cwd=self.root,
            search_path=self.search_path,
            features=FEATURE_FIELDS,
            whole_project=True,
        )

    @cached_property
    def dockerfiles(self) -> tuple[Dockerfile, ...]:
        """Dockerfiles of operators: of the Go operator's image, or of this distribution's."""
        return tuple(parsed for parsed in self._all_dockerfiles if parsed.base is not None)

    @cached_property
    def _all_dockerfiles(self) -> tuple[Dockerfile, ...]:
        return image.dockerfiles()

    @cached_property
    def collections(self) -> Mapping[str, Collection]:
        """Collections of requirements.yml by name, those from Git by that of the repository; empty without a file."""
        path = Path(_REQUIREMENTS)
        roots = _compose(path, Problems()) if path.is_file() else []
        collections: dict[str, Collection] = {}
        for source, root in roots[:1]:
            for entry in nodes.items(nodes.at(root, "collections")):
                fields = {key.value: nodes.text(value) for key, value in nodes.pairs(entry)}
                written = fields.get("name") or fields.get("source", "") if fields else nodes.text(entry)
                name, version = git_collection(written)
                collections[name] = Collection(fields.get("version", version), source.line(entry.start_mark))
        return collections

    @cached_property
    def installed_collections(self) -> frozenset[str]:
        """Return the collections of requirements.yml, and those that Dockerfiles install by name or from Git."""
        commands = [command for parsed in self.dockerfiles for command in _GALAXY.findall(parsed.text)]
        named = {name for command in commands for name in _COLLECTION.findall(command)}
        from_git = {git_collection(word)[0] for command in commands for word in command.split() if _GIT.search(word)}
        return frozenset(self.collections) | named | from_git

    @property
    def unnamed_collections(self) -> tuple[str, ...]:
        """Git repositories whose collection cannot be known from their URL."""
        return tuple(sorted(name for name in self.installed_collections if _GIT.search(name)))

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
    def crds(self) -> Mapping[tuple[str, str], Document]:
        """CRDs of the manifests by group and kind, the first of each; patches of CRDs are not complete."""
        crds: dict[tuple[str, str], Document] = {}
        for document in self.documents:
            spec = document.value.get("spec")
            if document.value.get("kind") == "CustomResourceDefinition" and isinstance(spec, dict):
                names = spec.get("names")
                if isinstance(names, dict) and isinstance(spec.get("versions"), list):
                    crds.setdefault((str(spec.get("group")), str(names.get("kind"))), document)
        return crds

    @cached_property
    def examples(self) -> tuple[Document, ...]:
        """Samples in the annotation `alm-examples` of ClusterServiceVersions."""
        pairs: list[tuple[SourceText, yaml.Node]] = []
        for document in self.documents:
            node = nodes.at(document.root, "metadata", "annotations", "alm-examples")
            if isinstance(node, yaml.ScalarNode):
                # Its lines are those of the file, where a block scalar begins in the next line.
                before = document.source.line(node.start_mark) - (node.style not in {"|", ">"})
                source = tree.expand(document.source.file, "\n" * before + node.value, {})
                pairs += [(source, item) for root in tree.documents(source, Problems()) for item in nodes.items(root)]
        return tuple(_documents(pairs))

    def fields_of(self, watch: Watch) -> frozenset[str]:
        """Return the fields that the watches file sets for a watch, in lower case."""
        return self._fields.get(watch.line, frozenset())

    @cached_property
    def _fields(self) -> Mapping[int, frozenset[str]]:
        return {
            source.line(entry.start_mark): frozenset(key.value.lower() for key, _ in nodes.pairs(entry))
            for source, root in _compose(self.watches_file, Problems(), self.environ)
            for entry in nodes.items(root)
        }

    def _manifests(self) -> Iterator[Path]:
        for folder in _MANIFESTS:
            for path in sorted(entry for entry in Path(folder).rglob("*") if entry.suffix in _SUFFIXES):
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


def _compose(
    path: Path, problems: Problems, environ: Mapping[str, str] | None = None
) -> list[tuple[SourceText, yaml.Node]]:
    source = tree.expand(str(path), _text(path), environ or {})
    return [(source, root) for root in tree.documents(source, problems)]
