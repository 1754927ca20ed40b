"""`create api`: one more kind in a project, or one more version of a kind.

A kind adds its CRD, RBAC rules, user roles, a sample, a role or playbook, its entry in watches.yaml and a molecule
test. Existing files are only extended.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import yaml

from runner.base.yamlfile.edits import Loader, dump, insert, scalar
from runner.sdk.scaffold import names, project, templates
from runner.sdk.scaffold.changeset import ChangeSet
from runner.sdk.scaffold.names import Resource
from runner.sdk.scaffold.project import Project
from runner.values.errors import ConfigError
from runner.values.objects import maps

_WATCHES = PurePosixPath("watches.yaml")
_WITHOUT_INVENTORY = {"spec_fields": "default: {}", "sample_spec": " {}", "arguments": "", "variables": ""}


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """Parameters of `create api`."""

    group: str
    version: str
    kind: str
    plural: str = ""
    """Empty for the usual plural."""
    short_names: tuple[str, ...] = ()
    namespaced: bool | None = None
    """None for the scope of the kind's other versions, else true."""
    role: bool = False
    playbook: bool = False
    finalizer: bool = False
    inventory: bool = False
    """True if its runs have hosts of the spec."""
    watched: bool = True
    """True if the operator reconciles its objects. Otherwise roles of other kinds read them."""


def add(changes: ChangeSet, before: Project, request: ApiRequest) -> list[str]:
    """Add the files of a kind to a project. Return notes for the user.

    Raises:
        ConfigError: a parameter is invalid, or the kind exists.
    """
    resource, others = _resource(before, request)
    needless = [flag for flag, is_given in _running(request).items() if is_given and not request.watched]
    names.refuse(
        [
            *names.problems_of(resource),
            *(f"{flag} and --watch=false exclude each other: an unwatched kind has no runs" for flag in needless),
            *_inventory_problems(resource, request),
            *(f"--short-name {name}: {why}" for name in request.short_names if (why := names.plural_problem(name))),
        ]
    )
    if any(other.version == resource.version for other in others):
        raise ConfigError(
            f"{resource.api_group}/{resource.version}, Kind={resource.kind} already exists in the project"
        )
    watched = bool(_watched_versions(changes, resource)) if others else request.watched
    values = _values(before, resource, request, watched=watched)
    notes = _add_version(changes, resource, others, request, values) if others else _add_kind(changes, request, values)
    _add_to_list(changes, "config/samples/kustomization.yaml", ("resources",), f"- {values['sample']}.yaml\n")
    changes.edit(project.FILE, lambda _: before.having(resource).text())
    return notes


def _resource(before: Project, request: ApiRequest) -> tuple[Resource, list[Resource]]:
    """Return the requested kind, and its other versions."""
    if not request.group:
        raise ConfigError("--group is required: the API group without its domain, such as `cache` of cache.example.com")
    resource = Resource(request.group, before.domain, request.version, request.kind, request.plural)
    others = [other for other in before.resources if other.is_kind_of(resource)]
    if not others:
        plural, namespaced = request.plural or names.plural_of(request.kind), request.namespaced is not False
        return replace(resource, plural=plural, namespaced=namespaced), []
    first = others[0]
    if request.plural not in {"", first.plural}:
        raise ConfigError(f"--plural {request.plural}: all versions of a kind share one plural, here {first.plural}")
    if request.namespaced not in {None, first.namespaced}:
        raise ConfigError("--namespaced: all versions of a kind share one scope; remove the flag")
    return replace(resource, plural=first.plural, namespaced=first.namespaced), others


def _inventory_problems(resource: Resource, request: ApiRequest) -> list[str]:
    if not request.inventory or resource.namespaced:
        return []
    why = "the generated field names a Secret in the namespace of the object"
    return [f"--inventory and --namespaced=false exclude each other: {why}"]


def _values(before: Project, resource: Resource, request: ApiRequest, *, watched: bool) -> dict[str, str]:
    """Return the values of the templates' names."""
    # A kind of the same name in another group already uses the plain file names.
    taken = any(other.kind == resource.kind and not other.is_kind_of(resource) for other in before.resources)
    group = re.sub(r"[^a-z0-9]", "_", resource.group)
    stem = f"{group}_{resource.singular}" if taken else resource.singular
    short = "".join(f"\n      - {scalar(name)}" for name in request.short_names)
    name, is_sample_applied = stem.replace("_", "-"), watched and not request.inventory
    values = {
        "project_name": before.name,
        "api_group": resource.api_group,
        "version": resource.version,
        "kind": resource.kind,
        "kind_lower": resource.kind.lower(),
        "plural": resource.plural,
        "singular": resource.singular,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "short_names": f"\n    shortNames:{short}" if short else "",
        "stem": stem,
        "role": stem,
        "name": name,
        # Molecule applies samples with two underscores, and waits for their runs. It has no hosts.
        "sample": f"{resource.group}_{resource.version}{'_' if is_sample_applied else '-'}{resource.singular}",
        "hosts": re.sub(r"[^a-z0-9]", "_", resource.plural) if request.inventory else "localhost",
    }
    return values | (_inventory_values(values) if request.inventory else _WITHOUT_INVENTORY)


def _inventory_values(values: Mapping[str, str]) -> dict[str, str]:
    """Return parts of files that contain the fields of hosts, indented for their places."""

    def part(name: str, indent: int) -> str:
        return textwrap.indent(templates.snippet(f"inventory_{name}", values), " " * indent).rstrip()

    return {
        "spec_fields": part("spec.yaml", 10).lstrip(),
        "sample_spec": "\n" + part("sample.yaml", 2),
        "arguments": "\n" + part("arguments.yaml", 6),
        "variables": "\n" + part("variables.md", 0),
    }


def _add_kind(changes: ChangeSet, request: ApiRequest, values: Mapping[str, str]) -> list[str]:
    _refuse_watched(changes, values)
    _create(changes, "api", values)
    if request.watched:
        _create(changes, "inventory_test" if request.inventory else "watched", values)
    crd = f"bases/{values['api_group']}_{values['plural']}.yaml"
    name = "crd_version.yaml" if request.watched else "crd_version_unwatched.yaml"
    _add_to_list(changes, f"config/crd/{crd}", ("spec", "versions"), templates.snippet(name, values))
    _add_to_list(changes, "config/crd/kustomization.yaml", ("resources",), f"- {crd}\n")
    for people in ("admin", "editor", "viewer"):
        file = f"- {values['stem']}_{people}_role.yaml\n"
        _add_to_list(changes, "config/rbac/kustomization.yaml", ("resources",), file)
    for rule in ("rule_resources", "rule_status", "rule_finalizers") if request.watched else ("rule_read",):
        _add_to_list(changes, "config/rbac/role.yaml", ("rules",), templates.snippet(f"{rule}.yaml", values))
    if request.inventory:
        _add_to_list(changes, "config/rbac/role.yaml", ("rules",), templates.snippet("rule_secrets.yaml", values))
    return _add_watch(changes, request, values) if request.watched else []


def _add_watch(changes: ChangeSet, request: ApiRequest, values: Mapping[str, str]) -> list[str]:
    content, notes = _add_content(changes, request, values)
    entry = templates.snippet("watch.yaml", {**values, "content": content})
    if request.inventory:
        entry += templates.snippet("watch_inventory.yaml", values)
        notes = [*notes, f"{_WATCHES} permits hosts of 192.0.2.0/24 only; replace this network in inventory.allow"]
    if request.finalizer:
        _create(changes, "finalizer", values)
        entry += templates.snippet("watch_finalizer.yaml", values)
    changes.edit(_WATCHES, lambda text: insert(text, (), entry, file=str(_WATCHES)))
    return notes


def _add_content(changes: ChangeSet, request: ApiRequest, values: Mapping[str, str]) -> tuple[str, list[str]]:
    """Add a role or playbook. Return its line for watches.yaml, and notes for the user."""
    role, playbook = f"roles/{values['role']}", f"playbooks/{values['stem']}.yml"
    as_role, as_playbook = f"role: {scalar(values['role'])}", f"playbook: {playbook}"
    if not (request.role or request.playbook):
        if (changes.root / role).is_dir():
            return as_role, [f"watches.yaml uses the existing role {role}"]
        if (changes.root / playbook).is_file():
            return as_playbook, [f"watches.yaml uses the existing playbook {playbook}"]
    if request.playbook:
        _create(changes, "playbook_of_role" if request.role else "playbook", values)
    if request.role or not request.playbook:
        _create(changes, "role", values, *(["inventory"] if request.inventory else []))
    return as_playbook if request.playbook else as_role, []


def _add_version(
    changes: ChangeSet, resource: Resource, others: list[Resource], request: ApiRequest, values: Mapping[str, str]
) -> list[str]:
    given = {**_running(request), "--short-name": bool(request.short_names), "--watch=false": not request.watched}
    if flags := [flag for flag, is_given in given.items() if is_given]:
        known = f"{resource.kind} already exists as {others[0].version}"
        raise ConfigError(f"{', '.join(flags)}: {known}; to add a version, remove these flags")
    sample = f"{values['sample']}.yaml"
    for path, text in templates.tree("api", values):
        if path.name == sample:
            changes.create(path, text)
    crd = f"config/crd/bases/{values['api_group']}_{values['plural']}.yaml"
    changes.edit(PurePosixPath(crd), lambda text: _with_version(text, resource.version, file=crd))
    watched = _watched_versions(changes, resource)
    seen, stored = " and ".join(watched) or "no version", others[0].version
    return [
        f"watches.yaml still watches {seen}; the API server converts objects of every version to it",
        f"{stored} remains the storage version; {resource.version} is served with the same schema",
    ]


def _with_version(crd: str, version: str, *, file: str) -> str:
    """Return a CRD with one more version at the end: schema, columns and subresources are those of the stored one.

    Between versions the API server changes only `apiVersion`, so the schema of one version is valid for each.
    """
    try:
        versions = yaml.load(crd, Loader)["spec"]["versions"]  # noqa: S506 - it is a safe loader
        stored = [entry for entry in versions if isinstance(entry, dict) and entry.get("storage") is True]
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{file}: invalid YAML: {error}") from None
    except (KeyError, TypeError):
        stored = []
    if len(stored) != 1:
        raise ConfigError(f"{file}: {len(stored)} versions have `storage: true`; exactly one must have it")
    added = {**stored[0], "name": version, "served": True, "storage": False}
    return insert(crd, ("spec", "versions"), dump([added]), file=file)


def _running(request: ApiRequest) -> dict[str, bool]:
    """Return the flags that request a run, and whether each is set."""
    return {
        "--generate-role": request.role,
        "--generate-playbook": request.playbook,
        "--finalizer": request.finalizer,
        "--inventory": request.inventory,
    }


def _create(changes: ChangeSet, name: str, values: Mapping[str, str], *instead: str) -> None:
    """Create the files of a folder of templates; files of `instead` replace those of the same path."""
    files = {path: text for folder in (name, *instead) for path, text in templates.tree(folder, values)}
    for path, text in files.items():
        changes.create(path, text)


def _add_to_list(changes: ChangeSet, file: str, path: tuple[str, ...], item: str) -> None:
    changes.edit(PurePosixPath(file), lambda text: insert(text, path, item, file=file))


def _refuse_watched(changes: ChangeSet, values: Mapping[str, str]) -> None:
    for entry in _entries(changes):
        if (entry.get("group"), entry.get("kind")) == (values["api_group"], values["kind"]):
            raise ConfigError(f"{_WATCHES} already watches {values['api_group']}, Kind={values['kind']}")


def _watched_versions(changes: ChangeSet, resource: Resource) -> list[str]:
    kind = (resource.api_group, resource.kind)
    return [str(entry.get("version")) for entry in _entries(changes) if (entry.get("group"), entry.get("kind")) == kind]


def _entries(changes: ChangeSet) -> list[dict[str, Any]]:
    try:
        document = yaml.safe_load(changes.text(_WATCHES))
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{_WATCHES}: invalid YAML: {error}; run `ansible-operator validate` for details") from None
    return maps(document)
