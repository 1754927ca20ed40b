"""What OLM makes of a bundle, as it documents it: the parts that the API server and the operator notice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from tests.integration.scaffold.installed import Json

_RBAC = "rbac.authorization.k8s.io/v1"


def installed(manifests: Path, home: str, watched: Sequence[str]) -> list[Json]:
    """Return what is there after the installation of the bundle with these `manifests` in the namespace `home`.

    `watched`: the OperatorGroup's target namespaces; none for all.
    """
    return [*_objects([yaml.safe_load(path.read_text()) for path in sorted(manifests.iterdir())], home, watched)]


def _objects(manifests: Sequence[Json], home: str, watched: Sequence[str]) -> Iterator[Json]:
    (csv,) = (each for each in manifests if each["kind"] == "ClusterServiceVersion")
    strategy = csv["spec"]["install"]["spec"]
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": home}}
    yield from (each for each in manifests if each["kind"] == "CustomResourceDefinition")
    (deployment,) = strategy["deployments"]
    spec = deployment["spec"]
    targets = {"olm.targetNamespaces": ",".join(watched), "olm.operatorNamespace": home, "olm.operatorGroup": "group"}
    spec["template"]["metadata"]["annotations"] |= targets
    account = spec["template"]["spec"]["serviceAccountName"]
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": home}}
    # Permissions are granted in the operator's own namespace and in each target; in a group of all, everywhere.
    places = [*dict.fromkeys((home, *watched))] if watched else [""]
    for key, spaces in (("permissions", places), ("clusterPermissions", [""])):
        for number, each in enumerate(strategy[key]):
            for space in spaces:
                name = f"{home.removesuffix('-system')}-{key}-{number}".lower()
                yield from _granted(name, space, each["rules"], {"name": account, "namespace": home})
    metadata = {"name": deployment["name"], "namespace": home, "labels": deployment["label"]}
    yield {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def _granted(name: str, space: str, rules: Sequence[Json], account: Json) -> Iterator[Json]:
    kind = "Role" if space else "ClusterRole"
    head = {"apiVersion": _RBAC, "metadata": {"name": name, **({"namespace": space} if space else {})}}
    yield {**head, "kind": kind, "rules": rules}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    subjects = [{"kind": "ServiceAccount", **account}]
    yield {**head, "kind": f"{kind}Binding", "roleRef": reference, "subjects": subjects}
