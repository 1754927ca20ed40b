"""`ansible-operator generate rbac`: recorded permissions in the operator's role.

Owns the argument and output of the command. Errors pass through as ConfigError; the caller prints them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.base.config import commands
from runner.base.config.commands import Subparsers
from runner.base.page import plural
from runner.values.errors import ConfigError
from runner.values.objects import mapping, maps

if TYPE_CHECKING:
    from runner.core.kube.rights import Right

_ROLE = Path("config/rbac/role.yaml")
_FOLDERS = (_ROLE.parent, Path("config/pods"), Path("config/manager"))
_DESCRIPTION = """\
Add the permissions in FILE, which `dev` or `run --record-rbac=FILE` wrote, to config/rbac/role.yaml. For kinds that
runs write, this includes the verbs that later runs require; the output lists them. The roles that config/rbac and
config/pods bind to the operator already grant some permissions; these are not added again. All other lines remain
unchanged."""


def add_commands(subparsers: Subparsers) -> None:
    """Add `rbac` to the commands of `generate`."""
    text = "add recorded permissions to the operator's role"
    parser = commands.add(subparsers, "rbac", _rbac, text, _DESCRIPTION, ("rights.yaml",), "FILE [flags]")
    parser.add_argument("file", type=Path, metavar="FILE", help="file that `run --record-rbac=FILE` wrote")


def _rbac(arguments: argparse.Namespace) -> int:
    from runner.base.yamlfile import edits, tree  # noqa: PLC0415 - as above
    from runner.features.rights import record  # noqa: PLC0415 - help needs none of their imports

    if not arguments.file.exists():
        raise ConfigError(f"{arguments.file}: file not found; `ansible-operator run --record-rbac=FILE` writes it")
    text = tree.read(_ROLE, str(_ROLE))
    used, inferred = record.read(arguments.file)
    missing = _missing({right for right in used | inferred if not right.account}, list(_granted(_FOLDERS)))
    added = record.rules(missing)
    for rule in added:
        text = edits.insert(text, ("rules",), edits.dump([rule]), file=str(_ROLE))
    if added:
        edits.write(_ROLE, text)
    sys.stdout.write(f"{_ROLE}: {plural(len(added), 'rule') + ' added' if added else 'no permission is missing'}\n")
    for rule in record.rules(missing - used):
        about = f"{', '.join(rule['verbs'])} {', '.join(rule['resources'])}"
        sys.stdout.write(f"not used yet, but included, because runs write the kind: {about}\n")
    for account in sorted({right.account for right in used if right.account}):
        sys.stdout.write(f"not added: the permissions of the service account {account}; apply its Roles in the file\n")
    return 0


def lacking(file: Path) -> list[str]:
    """Return the rules with the permissions in a record that config/rbac does not grant; none without such a folder.

    Raises:
        ConfigError: the record or a file of config/rbac is invalid.
    """
    import yaml  # noqa: PLC0415 - as above

    from runner.features.rights import record  # noqa: PLC0415 - as above

    if not _ROLE.exists():
        return []
    rights = set().union(*record.read(file))
    missing = _missing({right for right in rights if not right.account}, list(_granted(_FOLDERS)))
    return ["  " + yaml.safe_dump(rule, default_flow_style=True, width=1000).strip() for rule in record.rules(missing)]


def _granted(folders: Iterable[Path]) -> Iterator[Mapping[str, Any]]:
    """Yield the Roles and ClusterRoles in folders that these bind to the account of a Deployment, or to any account."""
    import yaml  # noqa: PLC0415 - as above

    from runner.base.yamlfile import tree  # noqa: PLC0415 - as above

    documents: list[Mapping[str, Any]] = []
    for path in sorted(path for folder in folders for path in folder.glob("*.yaml")):
        try:
            documents += [
                document for document in yaml.safe_load_all(tree.read(path, str(path))) if isinstance(document, dict)
            ]
        except (yaml.YAMLError, ValueError) as error:
            raise ConfigError(
                f"{path}: invalid YAML ({getattr(error, 'problem', error)}); fix the file first"
            ) from None
    deployments = (mapping(document.get("spec")) for document in documents if document.get("kind") == "Deployment")
    pods = [mapping(mapping(spec.get("template")).get("spec")) for spec in deployments]
    accounts = {str(pod.get("serviceAccountName") or "default") for pod in pods if pod}  # a patch can have no pod
    bound = [
        (reference.get("kind"), reference.get("name"))
        for document in documents
        if document.get("kind") in {"RoleBinding", "ClusterRoleBinding"}
        for reference in [mapping(document.get("roleRef"))]
        if any(
            subject.get("kind") == "ServiceAccount" and (subject.get("name") in accounts or not accounts)
            for subject in maps(document.get("subjects"))
        )
    ]
    for document in documents:
        if (document.get("kind"), mapping(document.get("metadata")).get("name")) in bound:
            yield document


def _missing(recorded: set[Right], roles: Sequence[Mapping[str, Any]]) -> set[Right]:
    """Return the rights that no role grants.

    A Role only applies to the operator's own namespace. There the operator uses its own objects, so a Role that names
    them grants what the record contains without names.
    """
    watched = {right.namespace for right in recorded if right.verb == "watch"}

    def is_granted(right: Right, role: Mapping[str, Any]) -> bool:
        rules = maps(role.get("rules"))
        if role.get("kind") == "ClusterRole":
            return any(_grants(rule, right) for rule in rules)
        is_own = bool(right.namespace) and right.namespace not in watched
        return is_own and any(_grants({**rule, "resourceNames": []}, right) for rule in rules)

    return {right for right in recorded if not any(is_granted(right, role) for role in roles)}


def _grants(rule: Mapping[str, Any], right: Right) -> bool:
    def has(field: str, *values: str) -> bool:
        return not {"*", *values}.isdisjoint(rule.get(field) or ())

    if not has("verbs", right.verb):
        return False
    if right.path:
        return any(
            right.path == url or (url.endswith("*") and right.path.startswith(url[:-1]))
            for url in rule.get("nonResourceURLs") or ()
        )
    _, _, subresource = right.resource.partition("/")
    matches = has("apiGroups", right.group) and has("resources", right.resource, f"*/{subresource}")
    return matches and (not rule.get("resourceNames") or right.name in rule["resourceNames"])
