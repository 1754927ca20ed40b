"""The file PROJECT with the project's name, domain and kinds.

It has the format of Operator SDK projects (version "3"), so that both programs read it:
https://book.kubebuilder.io/reference/project-config. Unknown content remains unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import yaml

from runner import __version__
from runner.base.yamlfile.edits import BlockDumper
from runner.sdk.scaffold import names, templates
from runner.sdk.scaffold.changeset import ChangeSet
from runner.sdk.scaffold.names import Resource, plural_of
from runner.values.errors import ConfigError

FILE = PurePosixPath("PROJECT")
LAYOUT = "ansible.sdk.operatorframework.io/v1"
_HEADER = "# Kept by `ansible-operator init` and `create api`: which kinds this project has.\n"


@dataclass(frozen=True, slots=True)
class Project:
    """A project's name, its domain, and its kinds."""

    name: str
    domain: str
    resources: tuple[Resource, ...] = ()
    _document: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def having(self, resource: Resource) -> Project:
        """Return the same project with one more kind or version."""
        return Project(self.name, self.domain, (*self.resources, resource), self._document)

    def text(self) -> str:
        """Return the file's text."""
        known = self._document.get("resources") or []
        document = {
            **_EMPTY,
            **self._document,
            "domain": self.domain,
            "projectName": self.name,
            "resources": [*known, *map(_entry, self.resources[len(known) :])],
        }
        if not document["resources"]:
            del document["resources"]
        return _HEADER + yaml.dump(document, Dumper=BlockDumper, default_flow_style=False)


_EMPTY: dict[str, Any] = {
    "layout": [LAYOUT],
    "plugins": {
        "manifests.sdk.operatorframework.io/v2": {},
        "scorecard.sdk.operatorframework.io/v2": {},
    },
    "version": "3",
}


def read(changes: ChangeSet) -> Project:
    """Return the project in a folder.

    Raises:
        ConfigError: there is none, or its file is invalid.
    """
    if not (changes.root / FILE).exists():
        raise ConfigError(
            f"no file {FILE} in {changes.root}; run the command in a project's folder, or create a project with "
            "`ansible-operator init`"
        )
    return parse(changes.text(FILE))


def parse(text: str) -> Project:
    """Return the project of the file's text.

    Raises:
        ConfigError: the file is invalid, or not of an Ansible project.
    """
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{FILE}: invalid YAML: {error}") from None
    if not isinstance(document, dict) or not all(
        isinstance(document.get(key), str) for key in ("domain", "projectName")
    ):
        raise ConfigError(
            f"{FILE}: `domain` and `projectName` are required; create a project with `ansible-operator init`"
        )
    layout = document.get("layout")
    names = layout if isinstance(layout, list) else [layout]
    if not any(str(name).startswith("ansible.") for name in names):
        raise ConfigError(f"{FILE}: not an Ansible project: the layout is {', '.join(map(str, names))}, not {LAYOUT}")
    entries = document.get("resources") or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) and "kind" in entry for entry in entries):
        raise ConfigError(f"{FILE}: `resources` must be a list of kinds")
    return Project(document["projectName"], document["domain"], tuple(_resource(entry) for entry in entries), document)


def _resource(entry: dict[str, Any]) -> Resource:
    kind = str(entry["kind"])
    return Resource(
        group=str(entry.get("group", "")),
        domain=str(entry.get("domain", "")),
        version=str(entry.get("version", "")),
        kind=kind,
        plural=str(entry.get("plural") or plural_of(kind)),
        namespaced=(entry.get("api") or {}).get("namespaced", False) is not False,
    )


def _entry(resource: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "api": {"crdVersion": "v1", "namespaced": resource.namespaced},
        "domain": resource.domain,
        "group": resource.group,
        "kind": resource.kind,
        "version": resource.version,
    }
    if resource.plural != plural_of(resource.kind):
        entry["plural"] = resource.plural
    return entry


_REGISTRY = ""
"""Where releases publish images, such as `ghcr.io/acme/`. RELEASING.md says when to set it."""
BASE_IMAGE = f"{_REGISTRY}ansible-operator-runner:{__version__}"
"""Image from `--target base` of this distribution's own Dockerfile."""


def begin(changes: ChangeSet, name: str, domain: str) -> Project:
    """Add the files of every project. Return the project. An empty `name` is replaced by the folder's name.

    Raises:
        ConfigError: the folder is a project, or a name is invalid.
    """
    if (changes.root / FILE).exists():
        raise ConfigError(
            f"{FILE} exists: this folder is already a project; add a kind with `ansible-operator create api`"
        )
    named = name or changes.root.resolve().name.lower()
    problems = []
    if why := names.domain_problem(domain):
        problems.append(f"--domain {domain}: {why}")
    if why := names.project_problem(named):
        problems.append(f"--project-name {named}: {why}{'' if name else '; the default is the name of the folder'}")
    names.refuse(problems)
    values = {"project_name": named, "domain": domain, "base_image": BASE_IMAGE}
    for path, text in templates.tree("project", values):
        changes.create(path, text)
    begun = Project(named, domain)
    changes.create(FILE, begun.text())
    return begun
