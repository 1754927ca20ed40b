"""OLM bundle from a project's manifests. Pure.

Input: parsed documents, including the project's ClusterServiceVersion. Output: the bundle's files. OLM creates the
operator's Deployment and RBAC from the ClusterServiceVersion, so they are moved into it. All other documents are added
unchanged.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import yaml

from runner.base.yamlfile.edits import BlockDumper
from runner.sdk.packaging import deployments, descriptors, scopes
from runner.values.errors import ConfigError

Json = dict[str, Any]
Files = dict[PurePosixPath, str]

_PREFIX = "operators.operatorframework.io.bundle."
_SCORECARD = "operators.operatorframework.io.test."
_TARGETS = {
    "name": "WATCH_NAMESPACE",
    "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['olm.targetNamespaces']"}},
}
"""OLM sets this annotation to the namespaces of the OperatorGroup; empty means all."""
_BINDINGS = {"RoleBinding", "ClusterRoleBinding"}
_OURS = {"Namespace", "ClusterServiceVersion", "Configuration", "Deployment"}


@dataclass(frozen=True, slots=True)
class BundleMetadata:
    """Metadata of a bundle."""

    package: str
    version: str
    """SemVer 2, without `v`."""
    channels: tuple[str, ...]
    default_channel: str
    replaces: str
    """Name of the bundle that this one upgrades; empty for none."""
    skip_range: str
    image: str
    created_at: str
    """RFC 3339."""


def make(documents: Iterable[Json], edition: BundleMetadata) -> tuple[Json, Files]:
    """Return a bundle's ClusterServiceVersion and all of its files.

    Raises:
        ConfigError: a required manifest is missing.
    """
    maker = _Maker(list(documents), edition)
    csv = maker.csv()
    folder = PurePosixPath("bundle")
    files = {
        folder / "manifests" / f"{edition.package}.clusterserviceversion.yaml": _dump(csv),
        **{folder / "manifests" / _file_name(document): _dump(document) for document in maker.others()},
        **_metadata(folder, maker.annotations(), maker.scorecard()),
    }
    return csv, files


class _Maker:
    def __init__(self, documents: list[Json], edition: BundleMetadata) -> None:
        self._documents = documents
        self._edition = edition
        self._manager = self._one("Deployment")
        self._account = str(deployments.pod(self._manager).get("serviceAccountName") or "default")
        self._granted: dict[str, dict[tuple[str, str], bool]] = {self._account: {}}
        """Roles of each service account of the project, and whether they are bound in the whole cluster."""
        accounts = {self._account}
        accounts |= {_name(document) for document in documents if document.get("kind") == "ServiceAccount"}
        for document in documents:
            for subject in (document.get("subjects") or ()) if document.get("kind") in _BINDINGS else ():
                if subject.get("kind") == "ServiceAccount" and subject.get("name") in accounts:
                    role = document["roleRef"]["kind"], document["roleRef"]["name"]
                    self._granted.setdefault(subject["name"], {})[role] = document["kind"] == "ClusterRoleBinding"

    def csv(self) -> Json:
        edition = self._edition
        csv = copy.deepcopy(self._one("ClusterServiceVersion"))
        metadata, spec = csv["metadata"], csv["spec"]
        examples = [document for document in self._documents if self._is_example(document)]
        metadata["name"] = f"{edition.package}.v{edition.version.replace('+', '-')}"
        metadata["namespace"] = "placeholder"
        metadata["annotations"] = {
            **(metadata.get("annotations") or {}),
            "alm-examples": json.dumps([_without_namespace(example) for example in examples], indent=2),
            "containerImage": edition.image,
            "createdAt": edition.created_at,
            **({"olm.skipRange": edition.skip_range} if edition.skip_range else {}),
        }
        spec |= {
            "version": edition.version,
            "customresourcedefinitions": {
                **(spec.get("customresourcedefinitions") or {}),
                "owned": list(self._owned()),
            },
            "install": {"strategy": "deployment", "spec": self._strategy()},
        }
        if edition.replaces:
            spec["replaces"] = edition.replaces
        return csv

    def others(self) -> list[Json]:
        """Return the documents that are added unchanged."""
        return [
            _without_namespace(document)
            for document in self._documents
            if document.get("kind") not in _OURS
            and not self._is_example(document)
            and not self._is_made_by_olm(document)
        ]

    def scorecard(self) -> Json | None:
        configs = (document for document in self._documents if str(document.get("apiVersion")).startswith("scorecard."))
        return next(configs, None)

    def annotations(self) -> dict[str, str]:
        edition = self._edition
        made = {
            f"{_PREFIX}mediatype.v1": "registry+v1",
            f"{_PREFIX}manifests.v1": "manifests/",
            f"{_PREFIX}metadata.v1": "metadata/",
            f"{_PREFIX}package.v1": edition.package,
            f"{_PREFIX}channels.v1": ",".join(edition.channels),
            f"{_PREFIX}channel.default.v1": edition.default_channel,
        }
        if self.scorecard() is not None:
            made |= {f"{_SCORECARD}mediatype.v1": "scorecard+v1", f"{_SCORECARD}config.v1": "tests/scorecard/"}
        return made

    def _one(self, kind: str) -> Json:
        matching = [document for document in self._documents if document.get("kind") == kind]
        if len(matching) != 1:
            raise ConfigError(
                f"the manifests contain {len(matching)} objects of kind {kind}; a bundle needs exactly one"
            )
        return matching[0]

    def _crds(self) -> list[Json]:
        return [document for document in self._documents if document.get("kind") == "CustomResourceDefinition"]

    def _is_example(self, document: Json) -> bool:
        group, _, _ = str(document.get("apiVersion")).partition("/")
        return (group, document.get("kind")) in {
            (crd["spec"]["group"], crd["spec"]["names"]["kind"]) for crd in self._crds()
        }

    def _is_made_by_olm(self, document: Json) -> bool:
        kind, name = str(document.get("kind")), _name(document)
        if kind == "ServiceAccount":
            return name in self._granted
        granted = {role for roles in self._granted.values() for role in roles}
        if kind in {"Role", "ClusterRole"}:
            return (kind, name) in granted
        reference = document.get("roleRef") or {}
        return (reference.get("kind"), reference.get("name")) in granted

    def _owned(self) -> Iterator[Json]:
        works = descriptors.resources([*self._of_roles(self._account, "ClusterRole")])
        for crd in self._crds():
            names = crd["spec"]["names"]
            for version in crd["spec"]["versions"]:
                if not version.get("served"):
                    continue
                schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
                fields = schema.get("properties") or {}
                text = str(schema.get("description") or "").strip()
                yield {
                    "kind": names["kind"],
                    "name": crd["metadata"]["name"],
                    "version": version["name"],
                    "displayName": descriptors.title(names["kind"]),
                    "description": text or f"{descriptors.title(names['kind'])}, managed by {self._edition.package}.",
                    "resources": works,
                    "specDescriptors": descriptors.of_spec(fields.get("spec") or {}),
                    "statusDescriptors": descriptors.of_status(fields.get("status") or {}),
                }

    def _of_roles(self, account: str, kind: str) -> Iterator[Json]:
        for role in self._granting(account, kind):
            yield from role.get("rules") or ()

    def _granting(self, account: str, *kinds: str) -> Iterator[Json]:
        """Yield the roles of an account that are bound in the whole cluster, or in its namespace."""
        for document in self._documents:
            wide = self._granted[account].get((str(document.get("kind")), _name(document)))
            if wide is not None and ("ClusterRole" if wide else "Role") in kinds:
                yield document

    def _permissions(self, account: str) -> tuple[list[Json], list[Json]]:
        """Return an account's rules for the namespaces of an OperatorGroup, and its cluster-wide rules.

        For an OperatorGroup of all namespaces, OLM grants the former cluster-wide too.
        """
        narrow = [*self._of_roles(account, "Role")]
        wide: list[Json] = []
        own = scopes.own(self._documents)
        for role in self._granting(account, "ClusterRole"):
            of_namespaces, of_cluster = scopes.split(role, own)
            narrow += of_namespaces
            wide += of_cluster
        return narrow, wide

    def _strategy(self) -> Json:
        deployment = copy.deepcopy(self._manager)
        container = deployments.container(deployment)
        env = [variable for variable in container.get("env") or () if variable["name"] != _TARGETS["name"]]
        container["env"] = [*env, _TARGETS]
        container["image"] = self._edition.image
        labels = deployment["metadata"].get("labels")
        made: Json = {
            "deployments": [
                {
                    "name": deployment["metadata"]["name"],
                    **({"label": labels} if labels else {}),
                    "spec": deployment["spec"],
                }
            ]
        }
        for account in self._granted:
            narrow, wide = self._permissions(account)
            for key, rules in (("clusterPermissions", wide), ("permissions", narrow)):
                if rules:
                    made.setdefault(key, []).append({"serviceAccountName": account, "rules": rules})
        return made


def _name(document: Json) -> str:
    return str((document.get("metadata") or {}).get("name"))


def _metadata(folder: PurePosixPath, annotations: Mapping[str, str], scorecard: Json | None) -> Files:
    """Return the files that describe a bundle: its annotations, its tests, and the Dockerfile with the same labels."""
    files = {folder / "metadata/annotations.yaml": _dump({"annotations": dict(annotations)})}
    if scorecard is not None:
        files[folder / "tests/scorecard/config.yaml"] = _dump(scorecard)
    labels = "".join(f"LABEL {key}={value}\n" for key, value in annotations.items())
    copies = "COPY bundle/manifests /manifests/\nCOPY bundle/metadata /metadata/\n"
    tests = "COPY bundle/tests/scorecard /tests/scorecard/\n" if scorecard is not None else ""
    files[PurePosixPath("bundle.Dockerfile")] = f"FROM scratch\n\n{labels}\n{copies}{tests}"
    return files


def _file_name(document: Json) -> str:
    kind, name = str(document["kind"]), str(document["metadata"]["name"])
    if kind == "CustomResourceDefinition":
        plural, _, group = name.partition(".")
        return f"{group}_{plural}.yaml"
    group, _, version = str(document["apiVersion"]).rpartition("/")
    return f"{name}_{group or 'core'}_{version}_{kind.lower()}.yaml"


def _without_namespace(document: Json) -> Json:
    metadata = {key: value for key, value in document["metadata"].items() if key != "namespace"}
    return {**document, "metadata": metadata}


def _dump(document: Json) -> str:
    return yaml.dump(document, Dumper=BlockDumper, sort_keys=False, allow_unicode=True, width=100)
