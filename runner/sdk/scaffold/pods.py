"""`generate pods`: the manifests of an operator whose runs are in pods of their own.

They are a Kustomize component in `config/pods`, which `config/default` includes: so are charts, bundles and manifests
for single namespaces. Existing files are only extended.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath

import yaml

from runner.base.yamlfile import edits, nodes
from runner.core.watches.watch import Watch
from runner.engines.pod.fields import POD_POLICY
from runner.sdk.scaffold import templates
from runner.sdk.scaffold.changeset import ChangeSet
from runner.sdk.scaffold.project import Project
from runner.values.errors import ConfigError

_FOLDER = PurePosixPath("config/pods")
_ROLE, _OWN_ROLE = _FOLDER / "role.yaml", _FOLDER / "authority_role.yaml"
_FOR_WARM_PODS = """
- {apiGroups: [batch], resources: [jobs], verbs: [create, delete]}
- {apiGroups: [""], resources: [pods], verbs: [patch]}
"""
"""Rules in the operator's namespace, beside those of the template."""
_DEFAULT = PurePosixPath("config/default/kustomization.yaml")
_CONFINED = "ownNamespaceOnly"


def add(changes: ChangeSet, known: Project, watches: Sequence[Watch], file: Path) -> None:
    """Add the manifests to a project. The first time, also confine the watches of `file` to namespaces.

    Raises:
        ConfigError: no watch uses pods, or a file cannot be extended.
    """
    kinds = {(watch.gvk.group, watch.gvk.kind) for watch in watches if watch.more.get(POD_POLICY) is not None}
    if not kinds:
        raise ConfigError(
            f"watches.yaml: no watch sets isolation: pod; set it first. To remove earlier manifests, delete {_FOLDER} "
            f"and its entry in {_DEFAULT}"
        )
    if not (changes.root / _FOLDER).exists():
        clustered = {(resource.api_group, resource.kind) for resource in known.resources if not resource.namespaced}
        open_watches = [watch for watch in watches if not watch.own_namespace_only]
        kept = [watch for watch in open_watches if (watch.gvk.group, watch.gvk.kind) in kinds - clustered]
        changes.edit(PurePosixPath(file), lambda text: _confined(text, kept))
    texts = dict(templates.tree("pods", {"project_name": known.name}))
    for path, text in texts.items():
        if not (changes.root / path).exists():
            changes.create(path, text)
    is_cluster_scoped = any(
        (resource.api_group, resource.kind) in kinds for resource in known.resources if not resource.namespaced
    )
    # Finalizers run in the operator's namespace if that of their object is being deleted.
    if is_cluster_scoped or any(
        watch.more.get(POD_POLICY) is not None and watch.finalizer is not None for watch in watches
    ):
        for rule in yaml.safe_load(texts[_ROLE])["rules"]:
            _insert(changes, _OWN_ROLE, "rules", edits.dump([rule]))
    if any((policy := watch.more.get(POD_POLICY)) is not None and policy.warm for watch in watches):
        for rule in yaml.safe_load(_FOR_WARM_PODS):
            _insert(changes, _OWN_ROLE, "rules", edits.dump([rule]))
    _insert(changes, _DEFAULT, "components", f"- ../{_FOLDER.name}\n")


def _confined(text: str, watches: Collection[Watch]) -> str:
    """Return a watches file that sets `ownNamespaceOnly` for these watches, unless it sets the field already."""
    try:
        root = next(yaml.compose_all(text, Loader=yaml.SafeLoader), None)
    except yaml.YAMLError:
        root = None  # only its expansion is valid
    entries, lines = {entry.start_mark.line + 1: entry for entry in nodes.items(root)}, text.split("\n")
    for watch in sorted(watches, key=lambda watch: -watch.line):
        entry = entries.get(watch.line)
        keys = {key.value.lower(): (key, value) for key, value in nodes.pairs(entry)}
        if entry is None or "isolation" not in keys or (entry.flow_style and _CONFINED.lower() not in keys):
            raise ConfigError(
                f"watches.yaml:{watch.line}: cannot edit the watch; add `{_CONFINED}: true` to it by hand"
            )
        if _CONFINED.lower() not in keys:
            key, value = keys["isolation"]
            lines.insert(value.end_mark.line + 1, f"{' ' * key.start_mark.column}{_CONFINED}: true")
    return "\n".join(lines)


def _insert(changes: ChangeSet, file: PurePosixPath, key: str, item: str) -> None:
    changes.edit(file, lambda text: edits.insert(text, (key,), item, file=str(file)))
