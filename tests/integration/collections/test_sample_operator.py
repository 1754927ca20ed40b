from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kit.cluster import kubeconfig_of
from tests.kit.places import ROOT
from tests.kit.wait import wait_until

DIRECTORY = "default"
SYSTEM = "memcached-operator-system"
PREFIX = "memcached-operator-"


@pytest.fixture
def operators_kubeconfig(kubectl: Any, namespace: str, login: Callable[[str], dict[str, str]], tmp_path: Path) -> Path:
    """A kubeconfig of the operator's service account, with the rights of config/rbac."""
    manifests = (
        kubectl("kustomize", str(ROOT / "config" / "default"))
        .replace(SYSTEM, namespace)
        .replace(PREFIX, f"{namespace}-")
    )
    rights = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
    kubectl.apply(*(document for document in yaml.safe_load_all(manifests) if document["kind"] in rights))
    options = login(f"{namespace}-controller-manager")
    authority = base64.b64encode(Path(options["ca_cert"]).read_bytes()).decode()
    file = tmp_path / "kubeconfig"
    cluster = {"server": options["host"], "certificate-authority-data": authority}
    file.write_text(kubeconfig_of(cluster, {"token": options["api_key"]}))
    return file


@pytest.mark.full
def test_the_roles_do_their_work_with_the_rights_of_the_operator(
    ansible: Any, kubectl: Any, memcached: dict[str, str], operators_kubeconfig: Path
) -> None:
    namespace = memcached["namespace"]

    def play(playbook: str, *arguments: str, size: int) -> str:
        variables = {"size": size, "ansible_operator_meta": {"name": "cache", "namespace": namespace}}
        given = ("-e", json.dumps(variables), f"playbooks/{playbook}", *arguments)
        return str(ansible("ansible-playbook", *given, kubeconfig=operators_kubeconfig))

    def nodes() -> list[str]:
        return list(kubectl.get("memcached", "cache", "-n", namespace).get("status", {}).get("nodes", []))

    def pods() -> list[str]:
        return sorted(kubectl.names("pods", "-n", namespace))

    entry = ("configmap", f"memcached.{namespace}.cache", "-n", DIRECTORY)

    play("memcached.yml", "--check", size=2)
    assert kubectl.names("deployments,pods", "-n", namespace) == []
    assert nodes() == []

    assert "changed=2" in play("memcached.yml", size=2)
    assert nodes() == pods()
    assert len(nodes()) == 2
    assert kubectl.get(*entry)["data"]["size"] == "2"

    assert "changed=0" in play("memcached.yml", size=2)

    play("memcached_finalizer.yml", size=1)
    assert kubectl.get(*entry) == {}
    wait_until(lambda: kubectl.names("deployments,replicasets,pods", "-n", namespace) == [], "the pods to go")


@pytest.mark.nightly
def test_if_pods_are_missing_the_role_reports_the_others_and_requests_a_requeue(
    ansible: Any, kubectl: Any, memcached: dict[str, str]
) -> None:
    namespace = memcached["namespace"]
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods", "namespace": namespace}}
    kubectl.apply({**quota, "spec": {"hard": {"pods": "1"}}})
    # Nothing is refused before the quota's controller has seen it.
    kubectl.wait("quota/pods", "-n", namespace, "--for=jsonpath={.status.hard.pods}=1")
    variables = {
        "size": 2,
        "ansible_operator_meta": {"name": "cache", "namespace": namespace},
        "memcached_pod_retries": 1,
    }
    output = ansible("ansible-playbook", "-v", "-e", json.dumps(variables), "playbooks/memcached.yml")
    assert '"period": "30s"' in output
    assert len(kubectl.get("memcached", "cache", "-n", namespace)["status"]["nodes"]) == 1


def sized(namespace: str, size: Any) -> dict[str, Any]:
    return {
        "apiVersion": "cache.example.com/v1alpha1",
        "kind": "Memcached",
        "metadata": {"name": "sized", "namespace": namespace},
        "spec": {"size": size},
    }


def test_a_size_that_is_not_given_is_one(kubectl: Any, namespace: str) -> None:
    kubectl.apply({**sized(namespace, 0), "spec": {}})
    assert kubectl.get("memcached", "sized", "-n", namespace)["spec"] == {"size": 1}


def test_a_user_sets_no_variable_of_the_role_without_a_field_in_the_schema(kubectl: Any, namespace: str) -> None:
    chosen = {
        "memcachedDirectoryNamespace": "kube-system",
        "memcachedImage": "example.com/mine",
        "memcachedPodRetries": 9,
    }
    cache = sized(namespace, 0)
    for version in ("v1alpha1", "v1"):
        wanted = {**cache, "apiVersion": f"cache.example.com/{version}", "spec": {"size": 0, **chosen}}
        for name in chosen:
            with pytest.raises(AssertionError, match=rf'unknown field "spec\.{name}"'):
                kubectl.apply(wanted)
        kubectl("apply", "--validate=false", "-f", "-", stdin=json.dumps(wanted))
        assert kubectl.get("memcached", "sized", "-n", namespace)["spec"] == {"size": 0}


def test_the_api_server_takes_the_manifests(kubectl: Any, namespace: str) -> None:
    for folder in ("crd", "default", "network-policy", "testing"):
        manifests = kubectl("kustomize", str(ROOT / "config" / folder))
        for known in (SYSTEM, "osdk-test"):
            manifests = manifests.replace(known, namespace)
        manifests = manifests.replace("namespace: system", f"namespace: {namespace}")
        answer = kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", stdin=manifests)
        assert len(answer.splitlines()) == len([document for document in yaml.safe_load_all(manifests) if document])


def test_the_operators_pod_is_one_that_the_strictest_pod_security_lets_in(kubectl: Any, namespace: str) -> None:
    documents = list(yaml.safe_load_all(kubectl("kustomize", str(ROOT / "config" / "default"))))
    (space,) = (each for each in documents if each["kind"] == "Namespace")
    assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    (template,) = (each["spec"]["template"] for each in documents if each["kind"] == "Deployment")
    spec = {name: value for name, value in template["spec"].items() if name != "serviceAccountName"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "manager", "namespace": namespace}, "spec": spec}

    def admitted() -> str:
        return str(kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod)))

    assert "created" in admitted()
    (container,) = spec["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    written = {each["name"]: each.get("emptyDir") for each in spec["volumes"]}
    assert {each["mountPath"] for each in container["volumeMounts"] if written[each["name"]] is not None} == {"/tmp"}
    spec["securityContext"] = {}
    with pytest.raises(AssertionError, match=r"violates PodSecurity.*runAsNonRoot.*seccompProfile"):
        admitted()
