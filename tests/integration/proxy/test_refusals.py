"""A narrow service account through the proxy, judged by the API server's own authorizer and admission."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import urllib3

from runner.core.proxy.identity import RunIdentity, RunStats
from tests.kit.cluster import kubectl_of
from tests.kit.wait import patience, wait_until

if TYPE_CHECKING:
    from runner.sdk.devcluster import DevCluster
    from tests.integration.proxy.bed import Standing

Ask = Callable[..., urllib3.BaseHTTPResponse]
POD: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "example.com/c"}]}}


@pytest.fixture
def narrow(standing: Standing, devcluster: DevCluster, namespace: str) -> RunIdentity:
    """A run as an account that may do little in the test's namespace and nothing elsewhere."""
    kubectl = kubectl_of(devcluster, f"--namespace={namespace}")
    for words in (
        "create serviceaccount narrow",
        "create role narrow --verb=get,create --resource=configmaps,pods",
        f"create rolebinding narrow --role=narrow --serviceaccount={namespace}:narrow",
        "create quota no-more --hard=configmaps=1",
        # Nothing is refused before the quota's controller has seen it.
        "wait quota/no-more --for=jsonpath={.status.hard.configmaps}=1 --timeout=120s",
        f"label namespace {namespace} pod-security.kubernetes.io/enforce=restricted",
    ):
        kubectl(*words.split())
    return replace(standing.run, service_account=f"{namespace}/narrow", stats=RunStats())


@pytest.fixture
def ask(standing: Standing, narrow: RunIdentity) -> Ask:
    """Ask through the proxy with that run's token."""
    token = standing.identities.issue(narrow)

    def send(method: str, path: str, body: object = None, **headers: str) -> urllib3.BaseHTTPResponse:
        return urllib3.request(
            method,
            f"{standing.proxy.url}{path}",
            body=None if body is None else json.dumps(body),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json", **headers},
            retries=False,
            timeout=patience(),
        )

    return send


def test_a_run_of_a_service_account_has_its_rights_and_groups_and_no_others(ask: Ask, namespace: str) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    user = ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review).json()["status"]["userInfo"]
    assert user["username"] == f"system:serviceaccount:{namespace}:narrow"
    assert sorted(user["groups"]) == [
        "system:authenticated",
        "system:serviceaccounts",
        f"system:serviceaccounts:{namespace}",
    ]
    space = f"/api/v1/namespaces/{namespace}"
    assert ask("GET", f"{space}/configmaps/owner").status == 200
    assert ask("GET", f"{space}/secrets").status == 403
    assert ask("GET", "/api/v1/namespaces/default/configmaps/any").status == 403
    escape = ask("GET", f"{space}/secrets", **{"Impersonate-User": "admin", "Impersonate-Group": "system:masters"})
    assert (escape.status, "cannot impersonate another" in escape.json()["message"]) == (403, True)


def test_every_kind_of_refused_call_ends_in_the_rule_that_would_allow_it(
    ask: Ask, narrow: RunIdentity, namespace: str
) -> None:
    space = f"/api/v1/namespaces/{namespace}"
    refused = [
        ("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", {"metadata": {"name": "d"}}),
        ("GET", f"{space}/secrets", None),
        ("GET", f"{space}/secrets?watch=1", None),
        ("GET", f"{space}/pods/p/log?follow=true", None),
        ("POST", f"{space}/serviceaccounts/narrow/token", {}),
        ("GET", "/api/v1/nodes", None),
        ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": {"user": "u"}}),
        ("GET", "/metrics", None),
    ]
    for method, path, body in refused:
        assert ask(method, path, body).status == 403, path
    account = f"(as system:serviceaccount:{namespace}:narrow); add to its"
    here = f"in namespace {namespace} {account} Role"
    everywhere = f"at the cluster scope {account} ClusterRole"
    assert narrow.stats.forbidden() == (
        f"forbidden: get /metrics {account} ClusterRole: {{nonResourceURLs: [/metrics], verbs: [get]}}",
        f'forbidden: list nodes {everywhere}: {{apiGroups: [""], resources: [nodes], verbs: [list]}}',
        f'forbidden: get pods/log {here}: {{apiGroups: [""], resources: [pods/log], verbs: [get]}}',
        f'forbidden: list, watch secrets {here}: {{apiGroups: [""], resources: [secrets], verbs: [list, watch]}}',
        (
            f"forbidden: create serviceaccounts/token {here}: "
            '{apiGroups: [""], resources: [serviceaccounts/token], verbs: [create]}'
        ),
        f"forbidden: create deployments.apps {here}: {{apiGroups: [apps], resources: [deployments], verbs: [create]}}",
        (
            f"forbidden: create subjectaccessreviews.authorization.k8s.io {everywhere}: "
            "{apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}"
        ),
    )


def test_refusals_by_admission_contain_no_rule(ask: Ask, narrow: RunIdentity, namespace: str) -> None:
    def refused() -> urllib3.BaseHTTPResponse | None:
        """Its admission learns of the namespace's label a moment later."""
        answer = ask("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", POD)
        return answer if answer.status != 201 else None

    insecure = wait_until(refused, "the pod to be refused")
    assert insecure is not None
    assert (insecure.status, insecure.json()["reason"]) == (403, "Forbidden")
    assert "violates PodSecurity" in insecure.json()["message"]
    answers = [
        ask("POST", f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": f"c{n}"}}) for n in range(3)
    ]
    assert answers[-1].status == 403
    assert "exceeded quota" in answers[-1].json()["message"]
    assert narrow.stats.forbidden() == ()
