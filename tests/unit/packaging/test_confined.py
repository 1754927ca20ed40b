"""Manifests of an operator of single namespaces: a Role in each, and in the whole cluster what no Role can grant."""

from __future__ import annotations

import io
from typing import Any

import pytest
import yaml

from runner.cli import main
from runner.sdk.packaging import confined, scopes
from runner.values.errors import ConfigError

Json = dict[str, Any]
ACCOUNT = "shop-controller-manager"


def obj(kind: str, name: str, **more: Any) -> Json:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **more}


def rule(groups: list[str], resources: list[str], *verbs: str) -> Json:
    return {"apiGroups": groups, "resources": resources, "verbs": [*verbs] or ["get"]}


def crd(plural: str, scope: str) -> Json:
    spec = {"group": "shop.example.org", "scope": scope, "names": {"plural": plural}}
    return obj("CustomResourceDefinition", f"{plural}.shop.example.org", spec=spec)


def deployment() -> Json:
    env = [{"name": "POD_NAME", "value": "x"}, {"name": "WATCH_NAMESPACE", "value": "before"}]
    pod = {"serviceAccountName": ACCOUNT, "containers": [{"name": "manager", "env": env}]}
    return obj("Deployment", ACCOUNT, spec={"template": {"spec": pod}})


def bound(role: str, account: str = ACCOUNT) -> Json:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    return obj(
        "ClusterRoleBinding", f"{role}s", roleRef=reference, subjects=[{"kind": "ServiceAccount", "name": account}]
    )


def made(*documents: Json, namespaces: tuple[str, ...] = ("a", "b")) -> list[Json]:
    return confined.make([deployment(), *documents], namespaces)


def spots(documents: list[Json]) -> list[tuple[str, str, str]]:
    return [(each["kind"], each["metadata"]["name"], each["metadata"].get("namespace", "")) for each in documents]


def test_a_role_and_a_binding_in_each_namespace_replace_those_of_the_cluster() -> None:
    rules = [rule([""], ["configmaps"]), rule(["shop.example.org"], ["baskets", "baskets/status"])]
    found = made(crd("baskets", "Namespaced"), obj("ClusterRole", "manager", rules=rules), bound("manager"))
    assert spots(found)[2:] == [
        ("Role", "manager", "a"),
        ("RoleBinding", "managers", "a"),
        ("Role", "manager", "b"),
        ("RoleBinding", "managers", "b"),
    ]
    assert [each["rules"] for each in found if each["kind"] == "Role"] == [rules, rules]
    assert {each["roleRef"]["kind"] for each in found if each["kind"] == "RoleBinding"} == {"Role"}


def test_rules_for_cluster_scoped_kinds_stay_in_the_cluster_role() -> None:
    rules = [
        rule(["shop.example.org"], ["baskets", "markets", "markets/status"]),
        rule(["", "events.k8s.io"], ["events"], "create"),
        rule([""], ["namespaces", "pods"]),
        rule(["authentication.k8s.io"], ["tokenreviews"]),
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
    ]
    kinds = (crd("baskets", "Namespaced"), crd("markets", "Cluster"))
    found = made(*kinds, obj("ClusterRole", "manager", rules=rules), bound("manager"), namespaces=("a",))
    (wide,) = (each["rules"] for each in found if each["kind"] == "ClusterRole")
    (narrow,) = (each["rules"] for each in found if each["kind"] == "Role")
    assert narrow == [rule(["shop.example.org"], ["baskets"]), rule([""], ["pods"])]
    assert wide == [
        rule(["shop.example.org"], ["markets", "markets/status"]),
        # Events about a market stand in the namespace `default`.
        rule(["", "events.k8s.io"], ["events"], "create"),
        rule([""], ["namespaces"]),
        *rules[3:],
    ]
    assert ("ClusterRoleBinding", "managers", "") in spots(found)


def test_rights_about_the_cluster_alone_have_no_role() -> None:
    reviews = obj("ClusterRole", "reviews", rules=[rule(["authorization.k8s.io"], ["subjectaccessreviews"], "create")])
    assert made(reviews, bound("reviews"))[1:] == [reviews, bound("reviews")]


def test_a_marked_cluster_role_is_not_changed() -> None:
    role = obj("ClusterRole", "issuers", rules=[rule(["cert-manager.io"], ["clusterissuers"])])
    role["metadata"]["annotations"] = {scopes.MARK: "Cluster"}
    assert made(role, bound("issuers"))[1:] == [role, bound("issuers")]


def test_roles_of_other_accounts_are_not_changed() -> None:
    others = [obj("ClusterRole", "viewer", rules=[rule([""], ["pods"])]), bound("viewer", "somebody")]
    assert made(*others)[1:] == others


def test_a_role_of_the_cluster_itself_is_bound_in_each_namespace() -> None:
    found = made(bound("view"), namespaces=("a",))[1:]
    assert spots(found) == [("RoleBinding", "views", "a")]
    assert found[0]["roleRef"]["kind"] == "ClusterRole"


@pytest.mark.parametrize(
    ("names", "why"), [(("Team",), "invalid namespace 'Team'"), (("a_b",), "'a_b'"), ((), "the list is empty")]
)
def test_invalid_names_of_namespaces_are_refused(names: tuple[str, ...], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        made(namespaces=names)


def test_the_command_writes_them_to_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump(deployment())))
    assert main.main(["generate", "manifests", "--manifests=-", "--namespaces=b, a,b", "--image=i:1"]) == 0
    (found,) = yaml.safe_load_all(capsys.readouterr().out)
    container = found["spec"]["template"]["spec"]["containers"][0]
    assert (container["image"], container["env"][-1]["value"]) == ("i:1", "b,a")


def test_the_command_keeps_text_that_looks_like_a_number_and_numbers_with_an_exponent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = '\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {commit: "1234e56"}, most: 1e+21}\n'
    monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump(deployment()) + data))
    assert main.main(["generate", "manifests", "--manifests=-", "--namespaces=a"]) == 0
    assert capsys.readouterr().out.endswith("data:\n  commit: '1234e56'\nmost: 1.0e+21\n")
