"""What a bundle for OLM is made of."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.sdk.packaging import descriptors
from runner.sdk.packaging.manifests import key as version_key
from tests.kit import commands

pytestmark = pytest.mark.lengthy

Json = dict[str, Any]
Type = Callable[..., tuple[int, str, str]]

BASE = Path("config/manifests/bases/shop.clusterserviceversion.yaml")
CSV = Path("bundle/manifests/shop.clusterserviceversion.yaml")
ACCOUNT = "shop-controller-manager"


def obj(kind: str, name: str, api: str = "v1", **more: Any) -> Json:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "shop-system"}, **more}


def manifests(*more: Json) -> list[Json]:
    """What kustomize would write: a kind of two versions, an operator and its rights."""
    schema = {"properties": {"spec": {"properties": {"size": {"type": "integer"}}}}}
    versions = [{"name": name, "served": True, "schema": {"openAPIV3Schema": schema}} for name in ("v1alpha1", "v1")]
    names = {"kind": "Basket", "plural": "baskets"}
    crd = obj("CustomResourceDefinition", "baskets.example.org", "apiextensions.k8s.io/v1")
    crd["spec"] = {"group": "example.org", "names": names, "versions": versions}
    rbac = "rbac.authorization.k8s.io/v1"
    subjects = [{"kind": "ServiceAccount", "name": ACCOUNT}]
    wide, narrow = {"kind": "ClusterRole", "name": "shop-manager"}, {"kind": "Role", "name": "shop-leases"}
    env = [{"name": "A", "value": "b"}, {"name": "WATCH_NAMESPACE", "value": "x"}]
    container = {"name": "manager", "image": "controller:latest", "env": env}
    pod = {"serviceAccountName": ACCOUNT, "containers": [container]}
    deployment = obj("Deployment", ACCOUNT, "apps/v1", spec={"template": {"spec": pod}})
    return [
        yaml.safe_load(BASE.read_text()),
        crd,
        obj("Basket", "one", "example.org/v1alpha1"),
        obj("Basket", "two", "example.org/v1"),
        obj("ServiceAccount", ACCOUNT),
        obj("ClusterRole", "shop-manager", rbac, rules=[{"resources": ["deployments", "nodes"], "verbs": ["create"]}]),
        obj("ClusterRoleBinding", "shop-managers", rbac, roleRef=wide, subjects=subjects),
        obj("Role", "shop-leases", rbac, rules=[{"resources": ["leases"], "verbs": ["get"]}]),
        obj("RoleBinding", "shop-leases", rbac, roleRef=narrow, subjects=subjects),
        obj("ClusterRole", "shop-viewer", rbac, rules=[]),
        obj("Service", "shop-metrics"),
        deployment,
        *more,
    ]


@pytest.fixture
def typed(typed: commands.Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Type:
    """Type a command in a project's folder; kustomize's manifests are in a file."""
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(line: str, *more: Json) -> tuple[int, str, str]:
        if BASE.exists():
            Path("all.yaml").write_text(yaml.safe_dump_all(manifests(*more)))
        return typed(line)

    assert run("init --domain example.org --project-name shop")[0] == 0
    Path("all.yaml").write_text("kind: Nothing\n")
    assert run("generate bundle --manifests all.yaml")[0] == 2
    return run


def csv() -> Json:
    found: Json = yaml.safe_load(CSV.read_text())
    return found


def test_olm_creates_the_service_account_of_runs_with_its_rights_in_the_namespace_that_it_chooses(typed: Type) -> None:
    rbac = "rbac.authorization.k8s.io/v1"
    rules = [{"resources": ["configmaps"], "verbs": ["get"]}]
    impersonate = [{"resources": ["serviceaccounts"], "resourceNames": ["shop-runs"], "verbs": ["get", "impersonate"]}]

    def binding(name: str, account: str) -> Json:
        reference = {"kind": "Role", "name": name}
        subject = {"kind": "ServiceAccount", "name": account, "namespace": "shop-system"}
        return obj("RoleBinding", name, rbac, roleRef=reference, subjects=[subject])

    more = [
        obj("ServiceAccount", "shop-runs"),
        obj("Role", "shop-runs", rbac, rules=rules),
        binding("shop-runs", "shop-runs"),
        obj("Role", "shop-acting", rbac, rules=impersonate),
        binding("shop-acting", ACCOUNT),
    ]
    assert typed("generate bundle --manifests all.yaml --bundle-version 1.0.0 --image i:1", *more)[0] == 0
    own, runs = csv()["spec"]["install"]["spec"]["permissions"]
    assert (own["serviceAccountName"], runs["serviceAccountName"]) == (ACCOUNT, "shop-runs")
    assert impersonate[0] in own["rules"]
    assert runs["rules"] == rules
    left = [path.name for path in Path("bundle/manifests").iterdir()]
    assert not [name for name in left if "runs" in name or "acting" in name or "binding" in name]


def test_rights_and_deployment_are_in_the_csv_and_other_manifests_beside_it(typed: Type) -> None:
    assert typed("generate bundle --manifests all.yaml --bundle-version 1.0.0 --image i:1") == (
        0,
        "bundle: shop.v1.0.0, channels alpha\n",
        "",
    )
    strategy = csv()["spec"]["install"]["spec"]
    (narrow,), (wide,) = strategy["permissions"], strategy["clusterPermissions"]
    assert [each["resources"] for each in narrow["rules"]] == [["leases"], ["deployments"]]
    assert [each["resources"] for each in wide["rules"]] == [["nodes"]]
    assert narrow["serviceAccountName"] == wide["serviceAccountName"] == ACCOUNT
    container = strategy["deployments"][0]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == csv()["metadata"]["annotations"]["containerImage"] == "i:1"
    targets = {"fieldRef": {"fieldPath": "metadata.annotations['olm.targetNamespaces']"}}
    assert container["env"] == [{"name": "A", "value": "b"}, {"name": "WATCH_NAMESPACE", "valueFrom": targets}]
    assert sorted(path.name for path in Path("bundle/manifests").iterdir()) == [
        "example.org_baskets.yaml",
        "shop-metrics_core_v1_service.yaml",
        "shop-viewer_rbac.authorization.k8s.io_v1_clusterrole.yaml",
        "shop.clusterserviceversion.yaml",
    ]
    service = yaml.safe_load(Path("bundle/manifests/shop-metrics_core_v1_service.yaml").read_text())
    assert "namespace" not in service["metadata"]


def test_kinds_are_owned_with_examples_and_descriptors(typed: Type) -> None:
    assert typed("generate bundle --manifests all.yaml")[0] == 0
    owned = csv()["spec"]["customresourcedefinitions"]["owned"]
    assert [(each["name"], each["version"]) for each in owned] == [
        ("baskets.example.org", "v1alpha1"),
        ("baskets.example.org", "v1"),
    ]
    assert [each["path"] for each in owned[0]["specDescriptors"]] == ["size"]
    assert owned[0]["resources"] == [{"kind": "Deployment", "name": "", "version": "v1"}]
    examples = json.loads(csv()["metadata"]["annotations"]["alm-examples"])
    assert [each["metadata"] for each in examples] == [{"name": "one"}, {"name": "two"}]


def test_a_bundle_upgrades_the_older_one_that_it_takes_the_place_of(typed: Type) -> None:
    line = "generate bundle --manifests all.yaml --bundle-version"
    assert typed(f"{line} 0.9.0")[1] == "bundle: shop.v0.9.0, channels alpha\n"
    for _ in range(2):  # made anew, it upgrades the same
        assert typed(f"{line} 0.10.0")[1] == "bundle: shop.v0.10.0, channels alpha, upgrades shop.v0.9.0\n"
        assert csv()["spec"]["replaces"] == "shop.v0.9.0"
    assert typed(f"{line} 0.10.0-rc.1")[1] == "bundle: shop.v0.10.0-rc.1, channels alpha\n"
    assert "replaces" not in csv()["spec"]
    assert typed(f"{line} 0.11.0 --replaces shop.v0.8.0 --skip-range >=0.8.0")[0] == 0
    assert csv()["spec"]["replaces"] == "shop.v0.8.0"
    assert csv()["metadata"]["annotations"]["olm.skipRange"] == ">=0.8.0"


def test_descriptions_in_the_base_csv_are_kept(typed: Type) -> None:
    BASE.write_text(BASE.read_text().replace("maturity: alpha", "maturity: stable"))
    before = BASE.read_text()
    assert typed("generate bundle --manifests all.yaml")[0] == 0
    assert csv()["spec"]["maturity"] == "stable"
    assert BASE.read_text() == before


def test_annotations_and_image_labels_name_the_same_channels(typed: Type) -> None:
    line = "generate bundle --manifests all.yaml --channels alpha,stable --default-channel stable"
    configuration = obj("Configuration", "config", "scorecard.operatorframework.io/v1alpha3")
    assert typed(line, configuration)[0] == 0
    annotations = yaml.safe_load(Path("bundle/metadata/annotations.yaml").read_text())["annotations"]
    assert annotations["operators.operatorframework.io.bundle.channels.v1"] == "alpha,stable"
    assert annotations["operators.operatorframework.io.bundle.channel.default.v1"] == "stable"
    assert annotations["operators.operatorframework.io.test.config.v1"] == "tests/scorecard/"
    lines = Path("bundle.Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("LABEL")] == [f"LABEL {k}={v}" for k, v in annotations.items()]
    for line in lines:
        if line.startswith("COPY"):
            assert Path(line.split()[1]).is_dir()


def test_two_builds_of_one_commit_are_the_same(typed: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    texts = []
    for _ in range(2):
        assert typed("generate bundle --manifests all.yaml")[0] == 0
        texts.append({path: path.read_text() for path in Path("bundle").rglob("*.yaml")})
    assert texts[0] == texts[1]
    assert csv()["metadata"]["annotations"]["createdAt"] == "1970-01-02T00:00:00Z"


def test_the_time_is_the_last_commits(typed: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2020-02-02T02:02:02Z")
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    for command in (("init",), ("commit", "--allow-empty", "--message=one")):
        subprocess.run(["git", *identity, *command], check=True, capture_output=True)
    assert typed("generate bundle --manifests all.yaml")[0] == 0
    assert csv()["metadata"]["annotations"]["createdAt"] == "2020-02-02T02:02:02Z"


def test_fields_are_described_by_what_they_hold() -> None:
    nested = {"properties": {"secretName": {"type": "string", "description": "Where."}, "key": {"format": "password"}}}
    schema = {
        "properties": {
            "tls": nested,
            "on": {"type": "boolean"},
            "level": {"type": "string", "enum": ["a", "b"]},
            "httpURLs": {"type": "array"},
        }
    }
    ui = "urn:alm:descriptor:com.tectonic.ui:"
    assert descriptors.of_spec(schema) == [
        {
            "path": "tls.secretName",
            "displayName": "Secret Name",
            "description": "Where.",
            "x-descriptors": [f"{ui}text"],
        },
        {"path": "tls.key", "displayName": "Key", "x-descriptors": [f"{ui}password"]},
        {"path": "on", "displayName": "On", "x-descriptors": [f"{ui}booleanSwitch"]},
        {"path": "level", "displayName": "Level", "x-descriptors": [f"{ui}select:a", f"{ui}select:b"]},
        {"path": "httpURLs", "displayName": "Http URLs"},
    ]


def test_versions_have_the_order_of_semver() -> None:
    order = ["0.9.0", "0.10.0-alpha", "0.10.0-alpha.1", "0.10.0-alpha.beta", "0.10.0-rc.2", "0.10.0-rc.11", "0.10.0"]
    assert [*map(version_key, order)] == sorted(map(version_key, order))
    with pytest.raises(ValueError, match=r"1\.2"):
        version_key("1.2")
