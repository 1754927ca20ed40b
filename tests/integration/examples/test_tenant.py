"""The example `tenant`: a team's namespace is created, corrected, and deleted when it is empty."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.examples.deployed import Example, Install, Resources
from tests.integration.scaffold.installed import Json
from tests.kit.go_programs import get_helm
from tests.kit.wait import wait_until

# Many runs of Ansible a test: on a machine with much to do they take their time.
pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("examples-tenant")]

SPEC = {
    "admins": [{"name": "alice"}],
    "viewers": [{"kind": "Group", "name": "support"}],
    "quota": {"pods": "2", "requests.cpu": "1"},
    "ingressFrom": ["ingress-nginx"],
    "secrets": ["registry"],
}
SOURCE = "tenant-secrets"
POD = {"containers": [{"name": "web", "image": "example.com/web:1"}]}


@pytest.fixture
def example(install: Install, monkeypatch: pytest.MonkeyPatch) -> Iterator[Example]:
    """The operator, with helm in its PATH as in its image, and the Secret that tenants are given copies of."""
    example = install("tenant")
    monkeypatch.setenv("PATH", os.pathsep.join([str(get_helm(os.environ, sys.stderr).parent), os.environ["PATH"]]))
    namespaces = example.objects("v1", "namespaces")
    namespaces.post({"metadata": {"name": SOURCE}})
    secrets = example.objects("v1", "secrets", SOURCE)
    secrets.post({"metadata": {"name": "registry"}, "stringData": {"password": "the first password"}})
    example.start()
    yield example
    namespaces.delete(SOURCE)
    namespaces.await_gone(SOURCE)


@pytest.fixture
def tenants(example: Example) -> Resources:
    return example.resources("Tenant")


def can(example: Example, verb: str, resource: str, *who: str) -> bool:
    """Return whether the authorizer permits that in the namespace `shop`."""
    told = example.sh("kubectl", "auth", "can-i", verb, resource, "--namespace=shop", *who, check=False)
    return told.splitlines()[-1] == "yes"


def run_pod(example: Example, name: str, namespace: str = "shop") -> str:
    """Let a person make a pod; returns what the API server says to it."""
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": POD}
    file = example.scratch / f"{name}.json"
    file.write_text(json.dumps(made))
    return example.sh("kubectl", "create", f"--filename={file}", check=False)


def owners(thing: Json) -> list[str]:
    return [f"{each['kind']} {each['name']}" for each in thing["metadata"].get("ownerReferences") or ()]


def test_a_tenant_is_a_namespace_with_bounds_rights_secrets_and_a_release(example: Example, tenants: Resources) -> None:
    tenants.create("shop", SPEC)
    tenants.await_success("shop")
    made = {
        kind: example.objects(version, plural, "shop").get(name)
        for kind, version, plural, name in (
            ("quota", "v1", "resourcequotas", "tenant"),
            ("limits", "v1", "limitranges", "tenant"),
            ("policy", "networking.k8s.io/v1", "networkpolicies", "tenant"),
            ("admin", "rbac.authorization.k8s.io/v1", "rolebindings", "tenant-admin"),
            ("secret", "v1", "secrets", "registry"),
            ("release", "v1", "secrets", "sh.helm.release.v1.gateway.v1"),
            ("gateway", "apps/v1", "deployments", "gateway"),
        )
    }
    made["namespace"] = example.objects("v1", "namespaces").get("shop")
    assert {kind: owners(thing) for kind, thing in made.items()} == {kind: ["Tenant shop"] for kind in made}
    assert made["policy"]["spec"] == {
        "podSelector": {},
        "policyTypes": ["Ingress"],
        "ingress": [
            {
                "from": [
                    {"podSelector": {}},
                    {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}},
                ]
            }
        ],
    }

    alice, support = ("--as=alice",), ("--as=bob", "--as-group=support")
    # The API server itself learns of bindings and quotas by watches.
    wait_until(lambda: can(example, "create", "pods", *alice), "alice to be let in")
    wait_until(lambda: can(example, "list", "pods", *support), "the support to see")
    assert not can(example, "create", "pods", *support)
    assert not can(example, "list", "pods", "--as=mallory")
    assert not can(example, "update", "resourcequotas", *alice)

    wait_until(lambda: len(example.objects("v1", "pods", "shop").all()) == 1, "the gateway's pod")
    assert "created" in run_pod(example, "one")
    pod = example.objects("v1", "pods", "shop").get("one")
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "100m", "memory": "128Mi"}
    assert "exceeded quota: tenant, requested: pods=1, used: pods=2, limited: pods=2" in run_pod(example, "two")

    tenants.change("shop", quota={"pods": "3", "requests.cpu": None}, admins=[], secrets=[])
    tenants.await_success("shop")
    assert example.objects("v1", "resourcequotas", "shop").get("tenant")["spec"]["hard"] == {"pods": "3"}
    wait_until(lambda: not can(example, "create", "pods", *alice), "alice to be put out")
    assert example.objects("v1", "secrets", "shop").get("registry") == {}
    wait_until(lambda: "created" in run_pod(example, "two"), "the wider quota to count")
    example.upgrades((tenants, "shop"))

    tenants.delete("shop")
    tenants.await_condition("shop", "Failure", saying="Still inside: Pod one, Pod two.")
    assert example.objects("v1", "namespaces").get("shop")["status"]["phase"] == "Active"
    for name in ("one", "two"):
        example.objects("v1", "pods", "shop").delete(name)
    tenants.await_gone("shop")
    assert example.objects("v1", "namespaces").get("shop") == {}
    example.remove()


def test_objects_changed_or_removed_by_hand_are_restored(example: Example, tenants: Resources) -> None:
    tenants.create("shop", {**SPEC, "deletionPolicy": "WithContent"})
    tenants.await_success("shop")
    quotas, deployments = (
        example.objects("v1", "resourcequotas", "shop"),
        example.objects("apps/v1", "deployments", "shop"),
    )
    policies = example.objects("networking.k8s.io/v1", "networkpolicies", "shop")
    bindings = example.objects("rbac.authorization.k8s.io/v1", "rolebindings", "shop")
    secrets = example.objects("v1", "secrets", "shop")

    quotas.merge("tenant", {"spec": {"hard": {"pods": "1000"}}})
    policies.delete("tenant")
    mallory = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "mallory"}
    bindings.merge("tenant-admin", {"subjects": [mallory]})
    deployments.merge("gateway", {"spec": {"replicas": 0}})
    example.objects("v1", "services", "shop").delete("gateway")
    secrets.delete("registry")

    def whole() -> bool:
        made: list[Any] = [
            quotas.get("tenant")["spec"]["hard"]["pods"] == "2",
            policies.get("tenant"),
            bindings.get("tenant-admin")["subjects"][0]["name"] == "alice",
            deployments.get("gateway")["spec"]["replicas"] == 1,
            example.objects("v1", "services", "shop").get("gateway"),
            secrets.get("registry"),
        ]
        return all(made)

    wait_until(whole, "everything to be as the tenant says")
    example.objects("v1", "secrets", SOURCE).merge("registry", {"stringData": {"password": "the second password"}})
    source = example.objects("v1", "secrets", SOURCE).get("registry")["data"]
    wait_until(lambda: secrets.get("registry").get("data") == source, "the copy to follow its source")

    tenants.change("shop", gateway={"replicas": 2})
    tenants.await_success("shop")
    assert deployments.get("gateway")["spec"]["replicas"] == 2
    assert owners(secrets.get("sh.helm.release.v1.gateway.v2")) == ["Tenant shop"]

    tenants.change("shop", secrets=["registry", "tls"])
    tenants.await_condition("shop", "Failure", saying=f"There is no Secret tls in the namespace {SOURCE}.")
    example.objects("v1", "secrets", SOURCE).post({"metadata": {"name": "tls"}})
    tenants.await_success("shop")
    assert secrets.get("tls")["metadata"]["labels"]["platform.example.com/copied-from"] == SOURCE

    example.remove()
    assert example.objects("v1", "namespaces").get("shop") == {}


def test_a_namespace_without_the_tenant_is_neither_adopted_nor_removed(
    example: Example, tenants: Resources, namespace: str
) -> None:
    tenants.create(namespace, {})
    tenants.await_condition(namespace, "Failure", saying=f"The namespace {namespace} is there, and does not belong to")
    assert example.objects("v1", "resourcequotas", namespace).all() == []
    tenants.delete(namespace)
    tenants.await_gone(namespace)
    assert example.objects("v1", "namespaces").get(namespace)["status"]["phase"] == "Active"

    refused = example.scratch / "tenant.json"
    tenant = {"apiVersion": tenants.version, "kind": "Tenant", "metadata": {"name": "kube-system"}, "spec": {}}
    for wrong, message in (
        ({}, "default and kube-* are Kubernetes' own namespaces"),
        ({"metadata": {"name": "a.b"}}, "the name must be that of a namespace, without dots"),
        ({"spec": {"gateway": {"replicas": 9}}}, "gateway.replicas must be between 0 and 5"),
        ({"spec": {"deletionPolicy": "Never"}}, 'supported values: "WhenEmpty", "WithContent"'),
    ):
        refused.write_text(json.dumps({**tenant, **wrong}))
        assert message in example.sh("kubectl", "create", f"--filename={refused}", check=False)
    example.remove()
