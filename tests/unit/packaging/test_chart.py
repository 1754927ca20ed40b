"""What of a project's manifests becomes a template, and where a chart's version and image come from.

Whether helm takes a chart is tested on the real control plane.
"""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from runner.sdk.packaging import chart, manifests
from runner.values.errors import ConfigError
from tests.kit import commands

Type = Callable[..., tuple[int, str, str]]
RELEASE = chart.Release("shop", "1.2.3", "1.2.3", "example.org/shop", "")


def obj(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": f"shop-{name}", "namespace": "shop-system"}, **more}


def deployment(name: str = "controller-manager", **container: Any) -> dict[str, Any]:
    labels = {"control-plane": "controller-manager"}
    pod = {"serviceAccountName": "shop-controller-manager", "containers": [{"name": "manager", **container}]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    return obj("Deployment", name, spec={"selector": {"matchLabels": labels}, "template": template})


def texts(*documents: dict[str, Any]) -> dict[str, str]:
    made = chart.make([deployment(), *documents], RELEASE)
    return {path.name: text for path, text in made.items()}


def test_names_and_the_namespace_are_those_of_the_release_in_all_values() -> None:
    config = obj("ConfigMap", "config", data={"of": "shop-controller-manager", "in": "shop-system", "else": "shop-x"})
    text = texts(config)["configmap-config.yaml"]
    assert 'name: {{ include "shop.fullname" $ }}-config\n' in text
    assert "namespace: {{ $.Release.Namespace }}\n" in text
    assert 'of: {{ include "shop.fullname" $ }}-controller-manager\n' in text
    assert "in: {{ $.Release.Namespace }}\n" in text
    assert "else: shop-x\n" in text


def test_a_deployment_by_another_name_gives_names_that_kubernetes_accepts() -> None:
    services = [obj("Service", name, spec={}) for name in ("operator", "operator-metrics")]
    made = {path.name: text for path, text in chart.make([deployment("operator"), *services], RELEASE).items()}
    fullname = '{{ include "shop.fullname" $ }}'
    assert f"\n  name: {fullname}\n" in made["deployment-shop-operator.yaml"]
    assert f"\n  name: {fullname}\n" in made["service-shop-operator.yaml"]
    assert f"\n  name: {fullname}-metrics\n" in made["service-metrics.yaml"]


def test_text_that_looks_like_a_number_or_a_boolean_of_helm_remains_text() -> None:
    text = texts(obj("ConfigMap", "config", data={"commit": "1234e56", "y": "n"}))["configmap-config.yaml"]
    assert "data:\n  commit: '1234e56'\n  'y': 'n'\n" in text


def test_the_account_has_a_name_of_its_own_and_the_deployment_of_the_same_name_has_not() -> None:
    made = texts(obj("ServiceAccount", "controller-manager"))
    account = '{{ include "shop.serviceAccountName" $ }}'
    assert f"\n  name: {account}\n" in made["serviceaccount-controller-manager.yaml"]
    assert f" serviceAccountName: {account}\n" in made["deployment-controller-manager.yaml"]
    assert (
        '\n  name: {{ include "shop.fullname" $ }}-controller-manager\n' in made["deployment-controller-manager.yaml"]
    )


def test_the_account_of_runs_and_the_right_to_impersonate_it_have_the_prefix_of_the_operators_account() -> None:
    """The operator determines the prefix from its own account; see runner/core/kube/service_accounts.py."""
    rule = {"resources": ["serviceaccounts"], "resourceNames": ["shop-runs"], "verbs": ["get", "impersonate"]}
    made = texts(obj("ServiceAccount", "runs"), obj("Role", "acting", rules=[rule]))
    name = '{{ include "shop.fullname" $ }}-runs'
    assert f"\n  name: {name}\n" in made["serviceaccount-runs.yaml"]
    assert f"resourceNames:\n      - {name}\n" in made["role-acting.yaml"]


def test_the_network_policy_selects_the_pod_of_its_release_and_can_be_disabled() -> None:
    selector = {"matchLabels": {"control-plane": "controller-manager"}}
    other = {"matchLabels": {"app": "database"}}
    made = texts(
        obj("NetworkPolicy", "metrics", spec={"podSelector": selector, "ingress": []}),
        obj("NetworkPolicy", "database", spec={"podSelector": other, "ingress": []}),
    )
    policy = made["networkpolicy-metrics.yaml"]
    assert policy.startswith("{{- if $.Values.networkPolicy.enabled }}\n")
    assert "control-plane: controller-manager\n      app.kubernetes.io/instance: {{ $.Release.Name }}\n" in policy
    assert "Values" not in made["networkpolicy-database.yaml"]
    assert "Release.Name }}" not in made["networkpolicy-database.yaml"].partition("spec:")[2]


def test_the_service_for_pods_of_runs_does_not_depend_on_metrics() -> None:
    pods = obj("Service", "pods", spec={"ports": [{"name": "pods", "port": 8444, "targetPort": "pods"}]})
    metrics = obj("Service", "metrics", spec={"ports": [{"name": "https", "port": 8443, "targetPort": "metrics"}]})
    env = [{"name": "ANSIBLE_OPERATOR_PODS_ADDRESS", "value": "shop-pods"}]
    made = {path.name: text for path, text in chart.make([deployment(env=env), pods, metrics], RELEASE).items()}
    assert "metrics.enabled" in made["service-metrics.yaml"]
    assert "metrics.enabled" not in made["service-pods.yaml"]
    assert "port: https\n" in made["servicemonitor.yaml"]
    name = '{{ include "shop.fullname" $ }}-pods\n'
    assert f"  name: {name}" in made["service-pods.yaml"]
    assert f"value: {name}" in made["deployment-controller-manager.yaml"]


def test_templates_in_manifests_are_escaped() -> None:
    text = texts(obj("ConfigMap", "config", data={"jinja": "{{ item }}"}))["configmap-config.yaml"]
    assert """jinja: '{{ "{{" }} item }}'\n""" in text


def test_cluster_wide_rights_can_be_limited_to_single_namespaces() -> None:
    role = obj("ClusterRole", "manager-role", rules=[{"verbs": ["get"]}])
    people = obj("ClusterRole", "viewer-role", rules=[])
    reference = {"kind": "ClusterRole", "name": "shop-manager-role"}
    binding = obj("ClusterRoleBinding", "manager-rolebinding", roleRef=reference, subjects=[])
    made = texts(role, people, binding)
    for name, kind in (
        ("clusterrole-manager-role.yaml", "Role"),
        ("clusterrolebinding-manager-rolebinding.yaml", "RoleBinding"),
    ):
        single, _, whole = made[name].partition("{{- else }}")
        assert f"kind: {kind}\n" in single
        assert "namespace: {{ . }}\n" in single
        assert f"kind: Cluster{kind}\n" in whole
    assert "$.Values.rbac.userRoles" in made["clusterrole-viewer-role.yaml"]
    assert "Namespaced" not in made["clusterrole-viewer-role.yaml"]


def test_the_right_to_review_readers_of_metrics_is_always_cluster_wide() -> None:
    review = {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}
    made = texts(
        obj("ClusterRole", "metrics-auth-role", rules=[review]),
        obj("ClusterRoleBinding", "metrics-auth", roleRef={"kind": "ClusterRole", "name": "shop-metrics-auth-role"}),
    )
    for name in ("clusterrole-metrics-auth-role.yaml", "clusterrolebinding-metrics-auth.yaml"):
        assert "kind: ClusterRole" in made[name]
        assert "Namespaced" not in made[name]
        assert made[name].startswith("{{- if $.Values.rbac.create }}")


def test_rights_for_cluster_scoped_kinds_stay_cluster_wide() -> None:
    rules = [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get"]}]
    reference = {"kind": "ClusterRole", "name": "shop-manager-role"}
    made = texts(
        obj("ClusterRole", "manager-role", rules=rules),
        obj("ClusterRoleBinding", "manager-rolebinding", roleRef=reference, subjects=[]),
    )
    confined, _, whole = made["clusterrole-manager-role.yaml"].partition("{{- else }}")
    wide, _, single = confined.partition("{{- range ")
    assert ("nodes" in wide, "pods" in wide, "kind: ClusterRole\n" in wide) == (True, False, True)
    assert ("nodes" in single, "pods" in single, "kind: Role\n" in single) == (False, True, True)
    assert ("nodes" in whole, "pods" in whole) == (True, True)
    wide, _, single = made["clusterrolebinding-manager-rolebinding.yaml"].partition("{{- range ")
    assert "kind: ClusterRoleBinding\n" in wide
    assert "kind: RoleBinding\n" in single


def test_watched_namespaces_of_the_manifests_are_the_default() -> None:
    manager = deployment(env=[{"name": "WATCH_NAMESPACE", "value": "a,b"}])
    made = chart.make([manager], RELEASE)
    assert yaml.safe_load(made[PurePosixPath("values.yaml")])["watchNamespaces"] == ["a", "b"]


@pytest.mark.parametrize("names", [(), ("one", "two"), ("a-controller-manager", "b-controller-manager")])
def test_manifests_without_one_operator_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=f"contain {len(names)} Deployments that may be the operator's"):
        chart.make([deployment(name) for name in names], RELEASE)


@pytest.fixture
def typed(typed: commands.Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Type:
    """Type a command in a project's folder; `manifests` are on standard input."""
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(line: str, manifests: list[dict[str, Any]] | None = None) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump_all(manifests or [deployment()])))
        return typed(line)

    assert run("init --domain example.org --project-name shop")[0] == 0
    return run


def chart_yaml() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(Path("dist/chart/shop/Chart.yaml").read_text())
    return found


@pytest.mark.parametrize(
    ("tag", "commits", "version"),
    [
        ("v1.2.3", 0, "1.2.3"),
        ("v1.2.3", 2, "1.2.4-dev.2+g"),
        ("v2.0.0-rc.1", 1, "2.0.0-rc.1.dev.1+g"),
        ("x", 0, "0.0.1"),
    ],
)
def test_the_version_is_that_of_the_last_tag(typed: Type, tag: str, commits: int, version: str) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)

    git("init")
    git("commit", "--allow-empty", "--message=one")
    git("tag", tag)
    for _ in range(commits):
        git("commit", "--allow-empty", "--message=more")
    assert typed("generate chart --manifests -")[0] == 0
    assert chart_yaml()["version"].startswith(version)
    assert chart_yaml()["appVersion"] == chart_yaml()["version"]


@pytest.mark.parametrize(
    ("flags", "image", "repository", "tag"),
    [
        ("", "controller:latest", "example.org/shop", ""),
        ("", "registry:5000/a/b", "registry:5000/a/b", ""),
        ("", "registry:5000/a/b:v7", "registry:5000/a/b", "v7"),
        ("--image other/c:1", "controller:latest", "other/c", "1"),
    ],
)
def test_the_image_is_the_one_given_or_that_of_the_manifests(
    typed: Type, flags: str, image: str, repository: str, tag: str
) -> None:
    assert typed(f"generate chart --manifests - {flags}", [deployment(image=image)])[0] == 0
    values = yaml.safe_load(Path("dist/chart/shop/values.yaml").read_text())
    assert (values["image"]["repository"], values["image"]["tag"]) == (repository, tag)


def test_a_chart_replaces_the_one_before_whole_and_nothing_else(typed: Type) -> None:
    assert typed("generate chart --manifests - --chart-version 1.0.0", [deployment(), obj("Secret", "old")])[0] == 0
    assert typed("generate chart --manifests - --chart-version 1.1.0")[0] == 0
    assert chart_yaml()["version"] == "1.1.0"
    assert not Path("dist/chart/shop/templates/secret-old.yaml").exists()
    assert [path.name for path in Path("dist/chart").iterdir()] == ["shop"]
    code, _, err = typed("generate chart --manifests - --output config")
    assert (code, "exists and contains no chart" in err) == (2, True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("generate chart --manifests - --chart-version 1.2", "invalid version '1.2'; use a semantic version"),
        ("generate chart --manifests gone.yaml", "cannot read gone.yaml: No such file"),
        ("generate chart --manifests - --image a@sha256:0", "pinned by digest"),
    ],
)
def test_invalid_arguments_are_an_error_and_write_nothing(typed: Type, line: str, message: str) -> None:
    code, _, err = typed(line)
    assert code == 2
    assert message in err
    assert not Path("dist").exists()


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (["a"], "found a document without kind; remove it, or complete it"),
        ({"kind": "List", "items": []}, "found List without metadata.name; remove it, or complete it"),
        (obj("ClusterRoleBinding", "a", subjects=[]), "ClusterRoleBinding shop-a has no roleRef.kind and name"),
    ],
)
def test_a_manifest_without_a_field_that_packages_depend_on_is_an_error(typed: Type, document: Any, why: str) -> None:
    for command in ("chart", "bundle", "manifests --namespaces a"):
        code, _, err = typed(f"generate {command} --manifests -", [deployment(), document])
        assert (code, err) == (2, f"error: -: {why}\n")


def test_outside_of_a_project_the_error_of_generate_manifests_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"^no folder config/default in .*; run the command in a project's folder"):
        manifests.read(None, "config/default")


def test_a_kustomization_whose_remote_base_does_not_answer_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("KUBECTL", str(program))
    monkeypatch.setattr(manifests, "_MINUTE", 0.05)
    with pytest.raises(
        ConfigError, match=r"^`kubectl kustomize config/default` did not end within 0.05 s; check access"
    ):
        manifests.read(None, "config/default")
