"""CRDs, samples and manifests of a project, compared with its watches; for `ansible-operator validate`.

The check reads files and executes nothing. It compares only groups that have a CRD in the project: a project may watch
kinds of other projects.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml

from runner.base.yamlfile import nodes, tree
from runner.base.yamlfile.tree import Problem, Problems, SourceText
from runner.core.watches.watch import Watch
from runner.engines.pod.fields import POD_POLICY
from runner.features.references.fields import REFERENCES
from runner.sdk.schema import structural
from runner.sdk.schema.structural import Schema, suggestion
from runner.values.errors import ConfigError
from runner.values.objects import GVK

_CRDS = Path("config/crd/bases")
_MANIFESTS = Path("config")
_SAMPLES = Path("config/samples")
_DEFAULT = Path("config/default/kustomization.yaml")
_CREATE = "ansible-operator create api"
_PODS = Path("config/pods")
_WITHOUT_ACCOUNT = (
    "isolation: pod without serviceAccount: the role in the pod has all permissions of the operator; set a service "
    "account with the permissions of the role"
)
_SUFFIXES = {".yaml", ".yml"}


def report(watches: Iterable[Watch], file: Path, *, cwd: Path, problems: Problems) -> None:
    """Add errors of watches and samples that the project's CRDs do not allow, and problems of missing manifests.

    `file`: the watches file.
    """
    source = tree.expand(str(file), tree.read(cwd / file, str(file)), {})
    for root in tree.documents(source, Problems()):  # variables that are not expanded can make it invalid
        tree.report_unreadable(source, root, problems)
    crds = _Crds.of(cwd, problems)
    domain = _domain(cwd)
    for watch in watches:
        group = watch.gvk.group
        if domain and f".{group}".endswith(f".{domain}") and all(group != of_crd for of_crd, _ in crds.kinds):
            message = f"no CRD in {_CRDS} defines the watched kind {watch.gvk.kind}; create it with `{_CREATE}`"
            problems.warnings.append(Problem(str(file), watch.line, str(watch.gvk), message))
        for message in (*crds.kind_problems(watch.gvk, "the watched kind"), *crds.path_problems(watch)):
            problems.errors.append(Problem(str(file), watch.line, str(watch.gvk), message))
        if message := _account_problem(watch.service_account, cwd):
            problems.errors.append(Problem(str(file), watch.line, str(watch.gvk), message))
        if watch.more.get(POD_POLICY) is not None and (message := _pods_problem(cwd)):
            problems.warnings.append(Problem(str(file), watch.line, str(watch.gvk), message))
        if watch.more.get(POD_POLICY) is not None and not watch.service_account:
            problems.warnings.append(Problem(str(file), watch.line, str(watch.gvk), _WITHOUT_ACCOUNT))
    crds.check_samples(cwd, problems)


def report_samples(cwd: Path, problems: Problems) -> None:
    """Add the errors of the project's samples, and their fields without effect."""
    _Crds.of(cwd, problems).check_samples(cwd, problems)


def _domain(cwd: Path) -> str:
    """Return the domain of the project's own groups; empty if it is unknown."""
    try:
        project = yaml.safe_load((cwd / "PROJECT").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return ""
    return str(project.get("domain") or "") if isinstance(project, dict) else ""


def _pods_problem(cwd: Path) -> str:
    """Return why a project whose manifests deploy the operator cannot run a watch with `isolation: pod`."""
    default = cwd / _DEFAULT
    if not default.is_file():
        return ""
    then = "so a deployed operator has no Service and no permissions for its pods; run `ansible-operator generate pods`"
    if not (cwd / _PODS).is_dir():
        return f"isolation: pod: the project has no {_PODS}, {then}"
    try:
        included = yaml.safe_load(default.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        return f"isolation: pod: {_DEFAULT} cannot be read: {error}"
    listed = included.get("components") if isinstance(included, dict) else None
    return "" if f"../{_PODS.name}" in (listed or ()) else f"isolation: pod: {_DEFAULT} lacks ../{_PODS.name}, {then}"


def _account_problem(written: str, cwd: Path) -> str:
    """Return why the manifests that deploy the operator lack the service account of a watch."""
    if not written or "/" in written or not (cwd / _DEFAULT).is_file():
        return ""
    accounts = set(_accounts(cwd))
    # kustomize adds its `namePrefix`, which the name in the watch can contain.
    if any(written == name or written.endswith(f"-{name}") for name in accounts):
        return ""
    names = ", ".join(sorted(accounts)) or "none"
    return (
        f"serviceAccount: no manifest in {_MANIFESTS} defines the ServiceAccount {written} (found: {names}); add it "
        "with its Role and RoleBinding, and the operator's right to impersonate it"
    )


def _accounts(cwd: Path) -> Iterator[str]:
    """Yield the names of the ServiceAccounts in the project's manifests. Other files are ignored."""
    for _, root in _documents(cwd / _MANIFESTS, cwd, Problems()):
        with contextlib.suppress(ValueError):  # a value that no manifest can contain
            document = tree.plain(root)
            if isinstance(document, dict) and document.get("kind") == "ServiceAccount":
                yield str((document.get("metadata") or {}).get("name"))


@dataclass(slots=True)
class _Crds:
    """Versions and schemas of the project's kinds."""

    kinds: dict[tuple[str, str], dict[str, Schema]] = field(default_factory=dict)
    """Schemas of the served versions, by group and kind."""
    files: dict[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def of(cls, cwd: Path, problems: Problems) -> Self:
        """Read the CRDs of a project."""
        crds = cls()
        for source, root in _documents(cwd / _CRDS, cwd, problems):
            try:
                crds.add(source, root)
            except ValueError as error:  # a value that JSON cannot represent
                problems.errors.append(Problem(source.file, source.line(root.start_mark), "", str(error)))
        return crds

    def check_samples(self, cwd: Path, problems: Problems) -> None:
        """Add the errors of the project's samples."""
        for source, root in _documents(cwd / _SAMPLES, cwd, problems):
            self.check_sample(source, root, problems)

    def add(self, source: SourceText, root: yaml.Node) -> None:
        """Add a CRD. Other objects are ignored. Raises ValueError for a value that JSON cannot represent."""
        try:
            document = tree.plain(root)
            if document["kind"] != "CustomResourceDefinition":
                return
            spec = document["spec"]
            name = (str(spec["group"]), str(spec["names"]["kind"]))
            versions = {
                str(version["name"]): _schema_of(version) for version in spec["versions"] if version.get("served", True)
            }
        except (KeyError, TypeError, AttributeError):
            return  # not a CRD in the form of apiextensions.k8s.io/v1, which the API server would reject
        self.kinds.setdefault(name, {}).update(versions)
        self.files[name] = source.file

    def kind_problems(self, gvk: GVK, what: str) -> Iterator[str]:
        """Yield why a kind of the project's groups does not exist."""
        versions = self.kinds.get((gvk.group, gvk.kind))
        if versions is None:
            own = tuple(kind for group, kind in self.kinds if group == gvk.group)
            if own:
                yield f"no CRD in {_CRDS} defines {what} {gvk.kind}{suggestion(gvk.kind, own)}"
        elif gvk.version not in versions:
            served = ", ".join(sorted(versions)) or "no version"
            yield f"{self.files[gvk.group, gvk.kind]} does not serve the version {gvk.version}; it serves {served}"

    def path_problems(self, watch: Watch) -> Iterator[str]:
        """Yield the paths of a watch to fields that no object of the kind can have."""
        schema = self.kinds.get((watch.gvk.group, watch.gvk.kind), {}).get(watch.gvk.version)
        spec = (schema or {}).get("properties", {}).get("spec")
        if not isinstance(spec, dict):
            return
        references = watch.more.get(REFERENCES)
        paths = [(f"references[{n}].path", item.path) for n, item in enumerate(references)]
        paths += [(f"snakeCaseExcept[{n}]", path) for n, path in enumerate(watch.snake_case_except)]
        for subject, path in paths:
            missing = structural.unknown_field(spec, path.steps) if path is not None else None
            if path is not None and missing is not None:
                name, known = missing
                yield (
                    f"{subject}: {path.text} matches no object: "
                    f"{self.files[watch.gvk.group, watch.gvk.kind]} has no field {name} there"
                    f"{suggestion(name, known)}"
                )

    def check_sample(self, source: SourceText, root: yaml.Node, problems: Problems) -> None:
        """Add the errors of a sample of one of the project's groups, and warnings about fields without effect."""
        gvk = _gvk_of(root)
        if gvk is None:
            return
        line = source.line(root.start_mark)
        problems.errors += [Problem(source.file, line, "", message) for message in self.kind_problems(gvk, "the kind")]
        schema = self.kinds.get((gvk.group, gvk.kind), {}).get(gvk.version)
        try:
            violations = list(structural.violations(root, schema)) if schema is not None else []
        except ValueError as error:
            problems.errors.append(Problem(source.file, line, "", str(error)))
            return
        for violation in violations:
            level = problems.warnings if violation.is_dropped else problems.errors
            level.append(
                Problem(source.file, source.line(violation.node.start_mark), violation.path, violation.message)
            )


def _schema_of(version: Mapping[str, Any]) -> Schema:
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return schema if isinstance(schema, dict) else {}


def _gvk_of(root: yaml.Node) -> GVK | None:
    """Return the kind of an object; None if it has none."""
    scalars = {
        str(key.value): str(value.value) for key, value in nodes.pairs(root) if isinstance(value, yaml.ScalarNode)
    }
    group, _, version = scalars.get("apiVersion", "").rpartition("/")
    return GVK(group, version, scalars["kind"]) if version and "kind" in scalars else None


def _documents(folder: Path, cwd: Path, problems: Problems) -> Iterator[tuple[SourceText, yaml.Node]]:
    """Yield the YAML documents of a folder; add errors of files that cannot be read."""
    for path in sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES and path.is_file()):
        file = os.path.relpath(path, cwd)
        try:
            text = tree.read(path, file)
        except ConfigError as error:
            problems.errors.append(Problem(file, 0, "", str(error).removeprefix(f"{file}: ")))
            continue
        source = tree.expand(file, text, {})
        for root in tree.documents(source, problems):
            tree.report_unreadable(source, root, problems)
            yield source, root
