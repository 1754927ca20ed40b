"""What a 403 of the API server says, and the rule that would mend it."""

from __future__ import annotations

import pytest
import yaml

from runner.core.kube import rights
from runner.core.kube.rights import Right

ACCOUNT = "system:serviceaccount:tools:narrow"
CREATE = (
    f'deployments.apps is forbidden: User "{ACCOUNT}" cannot create resource "deployments" in API group "apps" in the '
    'namespace "x"'
)


@pytest.mark.parametrize(
    ("message", "right"),
    [
        (CREATE, Right(ACCOUNT, "x", "apps", "deployments", "create")),
        (
            (
                f'pods "web" is forbidden: User "{ACCOUNT}" cannot get resource "pods/log" in API group "" in the '
                'namespace "x": RBAC: role.rbac.authorization.k8s.io "gone" not found'
            ),
            Right(ACCOUNT, "x", "", "pods/log", "get"),
        ),
        (
            f'nodes is forbidden: User "{ACCOUNT}" cannot watch resource "nodes" in API group "" at the cluster scope',
            Right(ACCOUNT, "", "", "nodes", "watch"),
        ),
        (
            f'forbidden: User "{ACCOUNT}" cannot get path "/logs/a&amp;b"',
            Right(ACCOUNT, "", "", "", "get", path="/logs/a&b"),
        ),
        (
            (
                'serviceaccounts "narrow" is forbidden: User "op\\"er\\\\ator" cannot impersonate resource '
                '"serviceaccounts" in API group "" in the namespace "tools"'
            ),
            Right('op"er\\ator', "tools", "", "serviceaccounts", "impersonate", "narrow"),
        ),
    ],
)
def test_a_missing_right_is_parsed_from_the_message_of_the_server(message: str, right: Right) -> None:
    assert rights.read(message) == right


@pytest.mark.parametrize(
    "message",
    [
        'pods "web" is forbidden: exceeded quota: few, requested: pods=1, used: pods=3, limited: pods=3',
        'pods "web" is forbidden: violates PodSecurity "restricted:latest": privileged',
        f'admission webhook "a.example.com" denied the request: {CREATE}',
        f"pods \"web\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: {CREATE}",
        (
            'roles.rbac.authorization.k8s.io "r" is forbidden: user "me" (groups=["a"]) is attempting to grant RBAC '
            'permissions not currently held:\n{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
        ),
        "no such thing",
        "",
    ],
)
def test_a_refusal_that_no_rule_prevents_is_not_a_missing_right(message: str) -> None:
    assert rights.read(message) is None


def test_each_resource_has_one_sentence_with_the_rule_for_all_missing_verbs() -> None:
    found = rights.sentences(
        [
            Right(ACCOUNT, "x", "apps", "deployments", "patch"),
            Right(ACCOUNT, "", "", "", "get", path="/metrics"),
            Right(ACCOUNT, "x", "apps", "deployments", "create"),
            Right(ACCOUNT, "x", "apps", "deployments", "patch"),
            Right(ACCOUNT, "", "", "nodes", "list"),
            Right("op", "tools", "", "serviceaccounts", "impersonate", "on"),
        ]
    )
    assert found == (
        (
            "forbidden: impersonate serviceaccounts on in namespace tools (as op); add to its Role: "
            '{apiGroups: [""], resources: [serviceaccounts], resourceNames: ["on"], verbs: [impersonate]}'
        ),
        (
            f"forbidden: get /metrics (as {ACCOUNT}); add to its ClusterRole: "
            "{nonResourceURLs: [/metrics], verbs: [get]}"
        ),
        (
            f"forbidden: list nodes at the cluster scope (as {ACCOUNT}); add to its ClusterRole: "
            '{apiGroups: [""], resources: [nodes], verbs: [list]}'
        ),
        (
            f"forbidden: create, patch deployments.apps in namespace x (as {ACCOUNT}); add to its Role: "
            "{apiGroups: [apps], resources: [deployments], verbs: [create, patch]}"
        ),
    )


def test_a_rule_is_valid_yaml_with_any_names() -> None:
    right = Right("op", "", "", "", "get", path="/a, b]: '\"#")
    assert yaml.safe_load(rights.rule(right, [right.verb])) == {"nonResourceURLs": [right.path], "verbs": ["get"]}
    right = Right("op", "", "authentication.k8s.io", "userextras/a.b/c", "impersonate", "null")
    assert yaml.safe_load(rights.rule(right, [right.verb])) == {
        "apiGroups": ["authentication.k8s.io"],
        "resources": ["userextras/a.b/c"],
        "resourceNames": ["null"],
        "verbs": ["impersonate"],
    }
