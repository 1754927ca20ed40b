"""What `init` and `create api` write is linted, installed, granted, run and removed as a user does it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml

from runner.sdk import devcluster as clusters
from tests.integration.scaffold.developer import running
from tests.kit.places import BIN
from tests.kit.processes import captured
from tests.kit.shell import Sh
from tests.kit.wait import wait_until

pytestmark = pytest.mark.xdist_group("scaffold")

ROLE = "roles/basket/tasks/main.yml"


@pytest.mark.full
def test_a_generated_project_passes_the_linters_also_when_its_role_uses_what_comes_with_the_operator(
    project: Path, tmp_path: Path
) -> None:
    project = shutil.copytree(project, tmp_path / project.name)
    with (project / ROLE).open("a") as tasks:
        tasks.write("\n- name: Look again\n  operator_sdk.util.requeue_after:\n    time: 30s\n")
    environ = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    environ.pop("ANSIBLE_COLLECTIONS_PATH", None)
    for command in (["yamllint", "--strict", "."], ["ansible-lint", "--offline", "--strict", "--profile=production"]):
        done = captured(*command, cwd=project, env=environ)
        assert done.returncode == 0, done.stdout + done.stderr
    done = captured(BIN / "ansible-operator", "validate", "--strict", cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_api_server_accepts_the_manifests_in_a_dry_run_and_without_one(sh: Sh) -> None:
    sh("kubectl", "apply", "--dry-run=server", "-k", "config/crd")
    policy = "kubectl kustomize config/network-policy | sed 's/namespace: system/namespace: default/'"
    sh("sh", "-c", f"{policy} | kubectl apply --dry-run=server -f -")
    sh("make", "install", "deploy", "IMG=registry.example.org/shop-operator:v1")
    sh.wait("--for=condition=Established", "crd", "--all")
    deployment = sh.get("deployment", "shop-operator-controller-manager", "--namespace=shop-operator-system")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.org/shop-operator:v1"
    assert "bk" in sh("kubectl", "api-resources", "--api-group=shop.example.org")
    sh("kubectl", "apply", "-k", "config/samples")
    assert sh.get("markets.shop.example.org")["items"]


def test_the_generated_roles_for_users_grant_exactly_their_rights(sh: Sh) -> None:
    sh("make", "install", "deploy")
    _check_role(sh, "basket-viewer-role", ["get", "list", "watch"], ["create", "update", "delete"])
    _check_role(sh, "basket-editor-role", ["get", "create", "patch", "delete"], ["deletecollection", "escalate"])
    _check_role(sh, "basket-admin-role", ["get", "create", "delete", "deletecollection"], [])


def _check_role(sh: Sh, role: str, allowed: list[str], denied: list[str]) -> None:
    name = f"shop-operator-{role}"
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"test-{role}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": role}],
    }
    sh.apply(binding)

    def may(verb: str, resource: str) -> str:
        return sh("kubectl", "auth", "can-i", verb, resource, f"--as={role}", check=False).splitlines()[-1]

    # The authorizer learns of rights a moment after they were given.
    wait_until(lambda: all(may(verb, "baskets.shop.example.org") == "yes" for verb in allowed), f"{allowed}")
    assert {verb: may(verb, "baskets.shop.example.org") for verb in denied} == dict.fromkeys(denied, "no")
    assert may("get", "secrets") == "no"
    assert may("get", "secrets.shop.example.org") == "no"


def test_a_role_of_three_lines_reconciles_and_its_deletion_waits_for_the_finalizer(
    sh: Sh, project: Path, devcluster: clusters.DevCluster, tmp_path: Path
) -> None:
    tasks = project / "roles/secret/tasks/main.yml"
    tasks.write_text(
        "---\n- name: Keep a core Secret of the same name\n  kubernetes.core.k8s:\n    definition:\n"
        "      {apiVersion: v1, kind: Secret, metadata: {name: '{{ ansible_operator_meta.name }}', "
        "namespace: '{{ ansible_operator_meta.namespace }}'}}\n"
    )
    sh("make", "install")
    sh.wait("--for=condition=Established", "crd", "--all")
    with running(project, devcluster.kubeconfig, tmp_path):
        sh("kubectl", "apply", "-k", "config/samples")
        for kind, name in (("baskets", "basket-sample"), ("secrets", "secret-sample"), ("markets", "market-sample")):
            done = "--for=condition=Successful"
            sh.wait(done, f"{kind}.shop.example.org/{name}")
        (owner,) = sh.get("secret", "secret-sample")["metadata"]["ownerReferences"]
        named = (owner["apiVersion"], owner["kind"], owner["name"])
        assert named == ("shop.example.org/v1alpha1", "Secret", "secret-sample")
        assert sh.get("bk", "basket-sample")["metadata"]["finalizers"] == ["shop.example.org/finalizer"]
        sh("make", "uninstall", "TIMEOUT=120s")
    assert "basket-sample is being deleted" in (tmp_path / "log").read_text()
    assert "example.org" not in sh("kubectl", "get", "crd")


def test_the_installer_holds_all_manifests_in_one_file(sh: Sh, project: Path) -> None:
    sh("make", "build-installer", "IMG=registry.example.org/shop-operator:v1")
    documents = list(yaml.safe_load_all((project / "dist/install.yaml").read_text()))
    kinds = [document["kind"] for document in documents]
    assert kinds.count("CustomResourceDefinition") == 3
    assert {"Namespace", "Deployment", "ServiceAccount", "ClusterRole", "Role", "Service"} <= set(kinds)
    sh("kubectl", "apply", "--dry-run=client", "-f", "dist/install.yaml")
    written = (project / "dist/install.yaml").read_text()
    assert "Error" in sh("make", "build-installer", "KUBECTL=false", check=False).splitlines()[-1]
    assert "Error" in sh("make", "build-installer", "WATCH_NAMESPACES=No", check=False).splitlines()[-1]
    assert (project / "dist/install.yaml").read_text() == written
    sh("make", "chart", "bundle")
    generated = ("dist/install.yaml", "dist/chart/*/templates/deployment-*.yaml", "bundle/manifests/*.clusterservice*")
    for (file,) in map(list, map(project.glob, generated)):
        assert "startupProbe" in file.read_text(), "a busy node can start the operator slowly"


def test_the_api_server_accepts_the_manifests_that_olm_generates_from_the_bundle(sh: Sh, project: Path) -> None:
    sh("make", "bundle", "VERSION=0.3.0", "IMG=example.org/shop:v0.3.0", "CHANNELS=alpha,stable")
    manifests = [yaml.safe_load(path.read_text()) for path in (project / "bundle/manifests").iterdir()]
    (csv,) = (each for each in manifests if each["kind"] == "ClusterServiceVersion")
    install = csv["spec"]["install"]["spec"]
    made = [each for each in manifests if each is not csv]
    for each in install["deployments"]:
        metadata = {"name": each["name"], "labels": each["label"]}
        made.append({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": each["spec"]})
    for kind, key in (("ClusterRole", "clusterPermissions"), ("Role", "permissions")):
        rules = install[key][0]["rules"]
        rbac = "rbac.authorization.k8s.io/v1"
        made.append({"apiVersion": rbac, "kind": kind, "metadata": {"name": "of-olm"}, "rules": rules})
    output = sh.apply(*made, flags=("--dry-run=server", "--namespace=default"))
    assert output.count("(server dry run)") == len(made)
    owned = {(each["kind"], each["version"]) for each in csv["spec"]["customresourcedefinitions"]["owned"]}
    assert owned == {("Basket", "v1alpha1"), ("Basket", "v1"), ("Market", "v1alpha1"), ("Secret", "v1alpha1")}
