"""File with the Roles that the operator and its runs used (`--record-rbac`).

Rights of earlier runs and processes stay in the file, and the same rights result in the same bytes. The file is
replaced atomically. A file that is not a record is not overwritten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

from runner.base import log
from runner.base.config import atomic_file
from runner.base.yamlfile.edits import BlockDumper
from runner.core.kube.client import NO_RESPONSE
from runner.core.kube.rights import Right
from runner.core.proxy import request
from runner.core.proxy.calls import Answer, Call
from runner.core.proxy.request import RequestInfo
from runner.values.errors import ConfigError

NAME = "ansible-operator-recorded"
RECORDED_FOR = "ansible.sdk.operatorframework.io/recorded-for"
"""Annotation of each recorded role: the account whose calls it allows."""
INFERRED = "ansible.sdk.operatorframework.io/inferred"
"""Annotation of each role with verbs that no call used, for kinds that runs write."""
OPERATOR = "the operator's own service account"
_API = "rbac.authorization.k8s.io/v1"
_GRANTED_TO_ALL_PATHS = ("/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz")
_GRANTED_TO_ALL = frozenset({"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"})
_CONNECTS = frozenset({"exec", "attach", "portforward"})
_APPLY = "application/apply-patch"
_WRITES = frozenset({"create", "patch", "update", "delete"})
_WRITTEN = ("create", "delete", "get", "list", "patch", "update", "watch")
"""Verbs for a kind that a run writes: the next run can update or delete what this one created."""
_WITHOUT_OBJECTS = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
"""Groups whose objects are only created, as requests."""
_LEASES = ("coordination.k8s.io", "leases")
_CONFIG_MAPS = ("", "configmaps")
_PAUSE = 1.0
"""Seconds between two writes of the file."""
_HEADER = (
    "# Permissions that the operator and its runs used, from --record-rbac. For kinds that runs write, the roles with\n"
    f"# the annotation {INFERRED} have the other verbs.\n"
    "# `ansible-operator generate rbac FILE` adds them to config/rbac/role.yaml.\n"
)
_ACCOUNT = "system:serviceaccount:"
_log = log.get(__name__)


class RightsRecord:
    """Records rights, and writes them to the file."""

    def __init__(self, path: Path, *, everywhere: bool, own_namespace: str = "") -> None:
        """`everywhere`: the operator watches all namespaces, so that a right in one is required in all.

        `own_namespace` is the operator's, empty outside of a cluster.

        Raises:
            ConfigError: the file cannot be used.
        """
        self._path = path
        self._everywhere = everywhere
        self._own_namespace = own_namespace
        self._rights, self._inferred = read(path)
        self._written = 0
        """Number of rights in the file."""
        self._changed = asyncio.Event()
        self._logged = log.Once()

    def add(self, required: Iterable[Right]) -> None:
        """Record rights of the operator itself."""
        self._add(spread_own(required, self._own_namespace) if self._everywhere else set(required))

    def _add(self, new: set[Right]) -> None:
        if not new <= self._rights:
            self._rights |= new
            self._changed.set()

    def noted(
        self, method: str, path: str, params: Mapping[str, str], content_type: str, status: int, user: str = ""
    ) -> None:
        """Record a call of the operator itself. `user`: the service account that it impersonates; empty: none."""
        if status == NO_RESPONSE:
            return
        info = request.parse(method, f"{path}?{urlencode(params)}")
        account = user.removeprefix(_ACCOUNT).replace(":", "/", 1)
        required = of_call(info, status, content_type, account)
        if account:
            self._add(spread(required) if self._everywhere else required)
            return
        if info.verb == "watch":
            # A server without streamed lists requires a plain list before the watch.
            required |= {Right("", right.namespace, right.group, right.resource, "list") for right in required}
        self.add(required)

    async def answered(self, call: Call, answer: Answer) -> None:
        """Record a run's call: an observer in the proxy."""
        required = of_call(call.info, answer.status, call.media, call.run.run.service_account)
        required = spread(required) if self._everywhere else required
        self._inferred |= inferred(required)
        self._add(required)

    async def follow(self) -> None:
        """Write new rights until canceled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await asyncio.to_thread(self.write)
            await asyncio.sleep(_PAUSE)

    def write(self) -> None:
        """Write the file if there are new rights."""
        used, more = frozenset(self._rights), frozenset(self._inferred)
        if self._written == len(used) + len(more):  # rights are only added
            return
        roles = yaml.dump_all(documents(used, more), Dumper=BlockDumper, sort_keys=False, explicit_start=True)
        try:
            atomic_file.write(self._path, _HEADER + roles)
        except OSError as error:
            if self._logged.is_new():
                _log.warning("Cannot record the required rights", file=str(self._path), error=str(error))
            return
        self._written = len(used) + len(more)
        self._logged.reset()


def read(path: Path) -> tuple[set[Right], set[Right]]:
    """Return the rights in a record that were used, and those that are only inferred; none if there is no file.

    Raises:
        ConfigError: the file is not a record.
    """
    try:
        return rights_in([document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document])
    except FileNotFoundError:
        return set(), set()
    except (OSError, yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path}: not a record of --record-rbac ({error}); name another file, or remove this one"
        ) from error


def of_call(info: RequestInfo, status: int, content_type: str, account: str) -> set[Right]:
    """Return the rights that a call required, even if it was refused.

    Rights that every authenticated user has by Kubernetes' default roles (discovery, self-reviews) are omitted. Source:
    https://kubernetes.io/docs/reference/access-authn-authz/rbac/.
    """
    if status == HTTPStatus.UNAUTHORIZED:
        return set()
    if not info.is_resource:
        granted_to_all = any(
            info.path.rstrip("/") == root or info.path.startswith(f"{root}/") for root in _GRANTED_TO_ALL_PATHS
        )
        return set() if granted_to_all else {Right(account, "", "", "", info.verb, path=info.path)}
    if info.resource in _GRANTED_TO_ALL:
        return set()
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    right = Right(account, info.namespace, info.group, resource, info.verb)
    makes = info.verb == "update" or (info.verb == "patch" and content_type.startswith(_APPLY))
    if (makes and status == HTTPStatus.CREATED) or (info.verb == "get" and info.subresource in _CONNECTS):
        # A write that created its object, and an exec by websocket, require the right to create as well.
        return {right, replace(right, verb="create")}
    return {right}


def inferred(rights: Iterable[Right]) -> set[Right]:
    """Return the rights that later runs will require for the kinds that these calls of a run wrote."""
    return {
        replace(right, verb=verb)
        for right in rights
        if right.verb in _WRITES and "/" not in right.resource and right.group not in _WITHOUT_OBJECTS
        for verb in _WRITTEN
    }


def spread(rights: Iterable[Right]) -> set[Right]:
    """Extend the rights of runs in single namespaces to all, for an operator that watches all namespaces."""
    return {right if right.verb == "impersonate" else replace(right, namespace="") for right in rights}


def spread_own(rights: Iterable[Right], own_namespace: str) -> set[Right]:
    """Extend the rights of the operator's own calls, except those on objects that only the operator itself uses.

    These are its Leases, and the ConfigMap in its own namespace.
    """
    required = set(rights)
    stay = {
        right
        for right in required
        if (right.group, right.resource) == _LEASES
        or ((right.group, right.resource) == _CONFIG_MAPS and own_namespace and right.namespace == own_namespace)
    }
    return stay | spread(required - stay)


def documents(rights: Iterable[Right], more: Iterable[Right] = ()) -> list[dict[str, Any]]:
    """Return Roles and ClusterRoles with these rights, in a stable order. `more` are those that are only inferred."""
    by_role: dict[tuple[str, str, bool], list[Right]] = {}
    used = set(rights)
    for right in sorted(used | set(more)):
        by_role.setdefault((right.account, right.namespace, right not in used), []).append(right)
    return [_role(*head, of_role) for head, of_role in sorted(by_role.items())]


def _role(account: str, namespace: str, is_inferred: bool, rights: Sequence[Right]) -> dict[str, Any]:  # noqa: FBT001 - a part of the key
    meta = {"name": "-".join((NAME, *filter(None, (account.replace("/", "-"), "inferred" if is_inferred else ""))))}
    if namespace:
        meta["namespace"] = namespace
    notes = {RECORDED_FOR: account or OPERATOR, **({INFERRED: "true"} if is_inferred else {})}
    return {
        "apiVersion": _API,
        "kind": "Role" if namespace else "ClusterRole",
        "metadata": {**meta, "annotations": notes},
        "rules": rules(rights),
    }


def rules(rights: Iterable[Right]) -> list[dict[str, Any]]:
    """Return rules with these rights, whatever their accounts and namespaces, in a stable order."""
    verbs: dict[tuple[str, str, str, str], set[str]] = {}
    for right in rights:
        verbs.setdefault((right.group, right.name, right.resource, right.path), set()).add(right.verb)
    alike: dict[tuple[str, str, bool, tuple[str, ...]], list[str]] = {}
    for (group, name, resource, path), granted in sorted(verbs.items()):
        alike.setdefault((group, name, bool(resource), tuple(sorted(granted))), []).append(resource or path)
    return [
        _rule(*head, sorted(about)) for head, about in sorted(alike.items(), key=lambda item: (item[0][:3], item[1]))
    ]


def _rule(group: str, name: str, is_resource: bool, verbs: Sequence[str], about: list[str]) -> dict[str, Any]:  # noqa: FBT001 - a part of the key
    if not is_resource:
        return {"nonResourceURLs": about, "verbs": list(verbs)}
    named = {"resourceNames": [name]} if name else {}
    return {"apiGroups": [group], "resources": about, **named, "verbs": list(verbs)}


def rights_in(documents: Collection[Any]) -> tuple[set[Right], set[Right]]:
    """Return the rights of recorded roles: those that calls used, and those that are only inferred.

    Raises:
        ValueError: a document is not a recorded role.
    """
    used: set[Right] = set()
    more: set[Right] = set()
    for document in documents:
        meta = document.get("metadata") if isinstance(document, Mapping) else None
        notes = (meta or {}).get("annotations", {})
        owner = notes.get(RECORDED_FOR)
        if owner is None:
            raise ValueError(f"it contains a document that is not a role with the annotation {RECORDED_FOR}")
        account = "" if owner == OPERATOR else str(owner)
        for rule in document.get("rules") or []:
            (more if INFERRED in notes else used).update(_read_rule(rule, account, (meta or {}).get("namespace", "")))
    return used, more


def _read_rule(rule: Mapping[str, Any], account: str, namespace: str) -> set[Right]:
    if "nonResourceURLs" in rule:
        return {
            Right(account, "", "", "", verb, path=path) for path in rule["nonResourceURLs"] for verb in rule["verbs"]
        }
    return {
        Right(account, namespace, group, resource, verb, name)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }
