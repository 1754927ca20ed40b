"""`generate rbac`, as a user types it in a new project."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from runner.cli import main
from runner.core.kube.rights import Right
from runner.features.rights import cli as rights_cli
from runner.features.rights import record as roles

ROLE = Path("config/rbac/role.yaml")
RECORD = Path("recorded.yaml")
GROUP = "cache.example.com"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(["init", "--domain", "example.com", "--project-name", "cache-operator"]) == 0
    assert main.main(["create", "api", "--group", "cache", "--version", "v1", "--kind", "Memcached"]) == 0
    capsys.readouterr()


def merge(*found: Right) -> int:
    RECORD.write_text(yaml.safe_dump_all(roles.documents(found)))
    return main.main(["generate", "rbac", str(RECORD)])


@pytest.mark.lengthy
def test_recorded_permissions_that_are_missing_get_into_the_role_once(capsys: pytest.CaptureFixture[str]) -> None:
    before = ROLE.read_text()
    recorded = [
        *(Right("", "", GROUP, "memcacheds", verb) for verb in ("get", "list", "watch")),
        *(Right("", "", "", "configmaps", verb) for verb in ("create", "watch")),
        Right("", "", "apps", "deployments", "create"),
        Right("", "", "", "", "get", path="/logs/kubelet"),
        Right("", "operators", "coordination.k8s.io", "leases", "update"),
        Right("", "operators", "", "configmaps", "patch"),
        Right("shop/runs", "", "", "secrets", "get"),
    ]
    assert merge(*recorded) == 0
    printed = capsys.readouterr().out
    assert f"{ROLE}: 3 rules added\n" in printed
    assert "shop/runs" in printed
    added = ROLE.read_text().removeprefix(before)
    assert added != ROLE.read_text()
    assert yaml.safe_load(added) == [
        {"nonResourceURLs": ["/logs/kubelet"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "watch"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["create"]},
    ]
    after = ROLE.read_text()
    assert merge(*recorded) == 0
    assert f"{ROLE}: no permission is missing\n" in capsys.readouterr().out
    assert ROLE.read_text() == after


def test_a_role_of_the_operators_own_namespace_grants_nothing_in_a_watched_one() -> None:
    assert merge(Right("", "shop", GROUP, "memcacheds", "watch"), Right("", "shop", "", "configmaps", "patch")) == 0
    assert yaml.safe_load(ROLE.read_text())["rules"][-1] == {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "verbs": ["patch"],
    }


@pytest.mark.parametrize(
    "manifest",
    [
        "{kind: ClusterRole, metadata: , rules: []}",
        "{kind: ClusterRoleBinding, metadata: {name: a}, subjects: [{kind: ServiceAccount, name: controller-manager}]}",
        "{kind: ClusterRoleBinding, roleRef: {kind: ClusterRole, name: a}, subjects: [{name: controller-manager}, x]}",
        "{kind: ClusterRole, metadata: {name: manager-role}, rules: {verbs: [get]}}",
    ],
)
def test_a_manifest_of_another_shape_grants_nothing(manifest: str) -> None:
    ROLE.with_name("odd.yaml").write_text(manifest)
    assert merge(Right("", "", "apps", "deployments", "create")) == 0
    assert "deployments" in ROLE.read_text()


def test_roles_for_users_of_the_kind_are_not_the_operators() -> None:
    assert merge(Right("", "", GROUP, "memcacheds", "deletecollection")) == 0
    assert "deletecollection" in ROLE.read_text()


@pytest.mark.lengthy
def test_verbs_that_are_only_inferred_are_added_and_listed(capsys: pytest.CaptureFixture[str]) -> None:
    used = {Right("", "", "apps", "deployments", verb) for verb in ("create", "get")}
    RECORD.write_text(yaml.safe_dump_all(roles.documents(used, roles.inferred(used))))
    (rule,) = rights_cli.lacking(RECORD)
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    assert yaml.safe_load(rule) == {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": verbs}
    assert main.main(["generate", "rbac", str(RECORD)]) == 0
    printed = capsys.readouterr().out
    assert f"{ROLE}: 1 rule added\n" in printed
    assert "because runs write the kind: delete, list, patch, update, watch deployments\n" in printed
    assert yaml.safe_load(ROLE.read_text())["rules"][-1]["verbs"] == verbs
    assert rights_cli.lacking(RECORD) == []


@pytest.mark.lengthy
def test_permissions_of_the_manifests_for_pods_are_not_added(capsys: pytest.CaptureFixture[str]) -> None:
    with Path("watches.yaml").open("a") as file:
        file.write("  isolation: pod\n  podTemplate: {image: example.com/ee:1}\n")
    assert main.main(["generate", "pods"]) == 0
    found = [Right("", "", "", "secrets", "list"), Right("", "", "batch", "jobs", "create")]
    assert merge(*found) == 0
    assert f"{ROLE}: no permission is missing\n" in capsys.readouterr().out


@pytest.mark.parametrize("content", [None, "kind: ConfigMap\nmetadata: {name: a}\n"])
def test_a_file_that_is_not_a_record_is_refused(capsys: pytest.CaptureFixture[str], content: str | None) -> None:
    if content is not None:
        RECORD.write_text(content)
    assert main.main(["generate", "rbac", str(RECORD)]) == 2
    assert capsys.readouterr().err.startswith("error: recorded.yaml: ")


def test_the_roles_of_an_account_of_runs_grant_the_operator_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    name = {"name": "memcached-runs"}
    role = {"kind": "ClusterRole", "metadata": name, "rules": [{"apiGroups": [""], "resources": ["*"], "verbs": ["*"]}]}
    subject = {"kind": "ServiceAccount", "namespace": "system", **name}
    binding = {"kind": "ClusterRoleBinding", "metadata": name, "roleRef": {"kind": "ClusterRole", **name}}
    patch = {"kind": "Deployment", "metadata": name, "spec": {"replicas": 2}}
    documents = [role, {**binding, "subjects": [subject]}, patch]
    Path("config/rbac/memcached_runs.yaml").write_text(yaml.safe_dump_all(documents))
    assert merge(Right("", "", "", "configmaps", "watch")) == 0
    assert f"{ROLE}: 1 rule added\n" in capsys.readouterr().out
