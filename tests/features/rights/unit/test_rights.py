"""Which rights a call or a watch needs, and how they are written as roles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from runner.app.features import REQUIRED_RIGHTS
from runner.base.credentials.auth import OwnNamespaces
from runner.core.kube.client import NO_RESPONSE
from runner.core.kube.discovery import ApiResource
from runner.core.kube.rights import Places, Right
from runner.core.proxy import request
from runner.core.watches.watch import Finalizer, Role, Watch
from runner.engines.pod.fields import PodPolicy, isolated
from runner.features.rights import record as roles
from runner.features.rights.record import OPERATOR, RECORDED_FOR, RightsRecord
from runner.features.unchanged.fields import SKIPS
from runner.values.errors import ConfigError
from runner.values.objects import GVK
from runner.values.slots import EMPTY

MEMCACHED = ApiResource(
    GVK("cache.example.com", "v1alpha1", "Memcached"),
    "memcacheds",
    namespaced=True,
    verbs=frozenset(),
    subresources=frozenset({"status"}),
)


def needed(call: str, status: int = 200, content_type: str = "application/json") -> list[str]:
    """What `METHOD /path` needs, as `verb resource.group namespace`."""
    method, target = call.split()
    found = roles.of_call(request.parse(method, target), status, content_type, "")
    return sorted(f"{each.verb} {each.resource or each.path}.{each.group} {each.namespace}" for each in found)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("GET /api/v1/namespaces/a/pods/x", ["get pods. a"]),
        ("GET /api/v1/pods?watch=true", ["watch pods. "]),
        ("DELETE /apis/apps/v1/namespaces/a/deployments", ["deletecollection deployments.apps a"]),
        ("PATCH /apis/apps/v1/namespaces/a/deployments/x/scale", ["patch deployments/scale.apps a"]),
        ("GET /api/v1/namespaces/a/pods/x/exec?command=ls", ["create pods/exec. a", "get pods/exec. a"]),
        ("POST /api/v1/namespaces/a/pods/x/exec?command=ls", ["create pods/exec. a"]),
        ("GET /logs/kubelet", ["get /logs/kubelet. "]),
        ("GET /apis/apps/v1", []),
        ("GET /version", []),
        ("GET /openapi/v3/apis/apps/v1", []),
        ("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", []),
    ],
)
def test_a_call_needs_the_rights_that_the_api_server_checks(call: str, expected: list[str]) -> None:
    assert needed(call) == expected


def test_an_apply_or_a_replacement_that_made_its_object_needs_to_create_too() -> None:
    apply = "application/apply-patch+yaml"
    path = "/api/v1/namespaces/a/configmaps/x"
    assert needed(f"PATCH {path}", 201, apply) == ["create configmaps. a", "patch configmaps. a"]
    assert needed(f"PATCH {path}", 200, apply) == ["patch configmaps. a"]
    assert needed(f"PUT {path}", 201) == ["create configmaps. a", "update configmaps. a"]


def test_a_forbidden_call_counts_and_an_unauthenticated_one_does_not() -> None:
    assert needed("GET /api/v1/namespaces/a/secrets/x", 403) == ["get secrets. a"]
    assert needed("GET /api/v1/namespaces/a/secrets/x", 401) == []


def test_a_watch_needs_what_the_operator_does_with_its_objects(make_watch: Callable[..., Watch]) -> None:
    plain = of_watch(make_watch(), "a")
    assert sorted(f"{each.verb} {each.resource} {each.namespace}" for each in plain) == [
        "get memcacheds a",
        "list memcacheds a",
        "patch memcacheds/status a",
        "watch memcacheds a",
    ]
    silent = of_watch(make_watch(manage_status=False))
    assert {each.verb for each in silent} == {"get", "list", "watch"}
    assert {each.namespace for each in silent} == {""}
    finalizer = Finalizer("f", Role("r", Path("/roles/r")), {}, None)
    for patched in (make_watch(finalizer=finalizer), make_watch(more=EMPTY.having(SKIPS, value=True))):
        assert Right("", "", MEMCACHED.gvk.group, "memcacheds", "patch") in of_watch(patched)
    planning = of_watch(make_watch(mode="approve"), "a")
    assert planning - plain == {Right("", "a", "", "configmaps", verb) for verb in ("create", "delete", "get", "patch")}
    acting = of_watch(make_watch(service_account="b/runs"), "a")
    assert acting - plain == {Right("", "b", "", "serviceaccounts", verb, "runs") for verb in ("get", "impersonate")}


def of_watch(watch: Watch, *namespaces: str, resource: ApiResource = MEMCACHED) -> set[Right]:
    """Return the rights for a watch, of an operator in the namespace `home`."""
    places = Places(namespaces, OwnNamespaces("home", "home", "home"))
    return set().union(*(required.of_watch(watch, resource, places) for required in REQUIRED_RIGHTS))


def test_runs_in_pods_need_secrets_and_jobs_where_their_resources_are(make_watch: Callable[..., Watch]) -> None:
    finalizer = Finalizer("f", Role("r", Path("/roles/r")), {}, None)

    def needed_for_pods(resource: ApiResource, *namespaces: str, finalizes: bool = False) -> dict[str, set[str]]:
        """Return the namespaces of each right for runs in pods."""
        plain = make_watch(finalizer=finalizer if finalizes else None)
        in_pods = replace(plain, more=isolated(PodPolicy(1, {}, {"image": "ee:1"})))
        by_right: dict[str, set[str]] = {}
        for right in of_watch(in_pods, *namespaces, resource=resource) - of_watch(
            plain, *namespaces, resource=resource
        ):
            by_right.setdefault(f"{right.verb} {right.resource}", set()).add(right.namespace)
        return by_right

    of_runs = [f"{verb} {what}" for verb in ("create", "delete", "list") for what in ("jobs", "secrets")]
    everywhere = needed_for_pods(MEMCACHED)
    assert everywhere == {each: {""} for each in (*of_runs, "list events", "list pods", "watch pods")}
    confined = needed_for_pods(MEMCACHED, "a", "b")
    assert {each: confined[each] for each in of_runs} == {each: {"a", "b"} for each in of_runs}
    assert confined["watch pods"] == {"a", "b", "home"}
    finalizing = needed_for_pods(MEMCACHED, "a", finalizes=True)
    assert {each: finalizing[each] for each in of_runs} == {each: {"a", "home"} for each in of_runs}
    assert needed_for_pods(MEMCACHED, finalizes=True) == everywhere
    of_cluster = needed_for_pods(replace(MEMCACHED, namespaced=False), "a")
    assert {each: of_cluster[each] for each in of_runs} == {each: {"home"} for each in of_runs}


def test_roles_are_one_for_each_namespace_and_account_with_few_rules() -> None:
    made = roles.documents(
        [
            *(Right("", "a", "", each, verb) for each in ("pods", "configmaps") for verb in ("list", "get")),
            Right("", "a", "apps", "deployments", "get"),
            Right("", "", "", "", "get", path="/logs"),
            Right("b/runs", "a", "", "pods", "get"),
        ]
    )
    shown = [
        (each["kind"], each["metadata"]["name"], each["metadata"].get("namespace"), each["rules"]) for each in made
    ]
    assert shown == [
        ("ClusterRole", roles.NAME, None, [{"nonResourceURLs": ["/logs"], "verbs": ["get"]}]),
        (
            "Role",
            roles.NAME,
            "a",
            [
                {"apiGroups": [""], "resources": ["configmaps", "pods"], "verbs": ["get", "list"]},
                {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
            ],
        ),
        ("Role", f"{roles.NAME}-b-runs", "a", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]),
    ]
    assert [each["metadata"]["annotations"][RECORDED_FOR] for each in made] == [OPERATOR, OPERATOR, "b/runs"]


WORD = st.sampled_from(["", "a", "b"])
RIGHTS = st.sets(
    st.one_of(
        st.builds(
            Right,
            account=st.sampled_from(["", "n/x"]),
            namespace=WORD,
            group=WORD,
            resource=st.sampled_from(["pods", "pods/log", "secrets"]),
            verb=st.sampled_from(["get", "list", "impersonate"]),
            name=WORD,
        ),
        st.builds(
            lambda path, verb: Right("", "", "", "", verb, path=path),
            st.sampled_from(["/logs", "/metrics"]),
            st.sampled_from(["get", "post"]),
        ),
    )
)


ALL = ("create", "delete", "get", "list", "patch", "update", "watch")


@given(RIGHTS, RIGHTS)
def test_rights_are_read_back_from_roles_unchanged(found: set[Right], more: set[Right]) -> None:
    assert roles.rights_in(roles.documents(found, more)) == (found, more - found)
    assert roles.documents(sorted(found, reverse=True), more) == roles.documents(found, more)


@pytest.mark.parametrize(
    ("call", "verbs"),
    [
        (
            "POST /apis/apps/v1/namespaces/a/deployments",
            {"create", "delete", "get", "list", "patch", "update", "watch"},
        ),
        ("PATCH /api/v1/namespaces/a/secrets/x", {"create", "delete", "get", "list", "patch", "update", "watch"}),
        ("GET /api/v1/namespaces/a/secrets/x", set()),
        ("PATCH /apis/apps/v1/namespaces/a/deployments/x/scale", set()),
        ("POST /api/v1/namespaces/a/pods/x/exec?command=ls", set()),
        ("POST /apis/authentication.k8s.io/v1/tokenreviews", set()),
    ],
)
def test_a_kind_that_a_run_writes_needs_all_that_later_runs_do_with_it(call: str, verbs: set[str]) -> None:
    method, target = call.split()
    used = roles.of_call(request.parse(method, target), 201, "application/json", "")
    assert {right.verb for right in roles.inferred(used)} == verbs


async def _run_called(record: RightsRecord, call: str, account: str = "") -> None:
    method, target = call.split()
    run = SimpleNamespace(run=SimpleNamespace(service_account=account))
    made: Any = SimpleNamespace(info=request.parse(method, target), media="application/json", run=run)
    answer: Any = SimpleNamespace(status=200)
    await record.answered(made, answer)


async def test_an_operator_of_all_namespaces_needs_in_all_what_its_runs_used_in_one(tmp_path: Path) -> None:
    path = tmp_path / "roles.yaml"
    record = RightsRecord(path, everywhere=True, own_namespace="own")
    for kind in ("configmaps", "pods"):
        await _run_called(record, f"POST /api/v1/namespaces/a/{kind}")
    await _run_called(record, "GET /apis/coordination.k8s.io/v1/namespaces/own/leases/x")
    await _run_called(record, "GET /api/v1/namespaces/a/secrets/x", "a/runs")
    # The operator itself: the object's reference, its own Lease and ConfigMap, and the account of the runs.
    record.noted("GET", "/api/v1/namespaces/a/configmaps", {"watch": "true"}, "", 200)
    record.noted("PATCH", "/api/v1/namespaces/own/configmaps/x", {}, "", 200)
    record.noted("PUT", "/apis/coordination.k8s.io/v1/namespaces/own/leases/x", {}, "", 200)
    # For prune, with the rights of the runs.
    record.noted("DELETE", "/api/v1/namespaces/a/secrets/x", {}, "", 200, "system:serviceaccount:a:runs")
    record.add({Right("", "a", "", "serviceaccounts", "impersonate", "runs")})
    record.write()
    shown = [
        (role["kind"], role["metadata"].get("namespace"), rule["resources"], rule["verbs"])
        for role in yaml.safe_load_all(path.read_text())
        for rule in role["rules"]
    ]
    assert shown == [
        ("ClusterRole", None, ["configmaps"], ["create", "list", "watch"]),
        ("ClusterRole", None, ["pods"], ["create"]),
        ("ClusterRole", None, ["leases"], ["get"]),
        ("ClusterRole", None, ["configmaps"], ["delete", "get", "patch", "update"]),
        ("ClusterRole", None, ["pods"], ["delete", "get", "list", "patch", "update", "watch"]),
        ("Role", "a", ["serviceaccounts"], ["impersonate"]),
        ("Role", "own", ["configmaps"], ["patch"]),
        ("Role", "own", ["leases"], ["update"]),
        ("ClusterRole", None, ["secrets"], ["delete", "get"]),
    ]


def test_a_call_without_a_response_requires_no_right(tmp_path: Path) -> None:
    path = tmp_path / "roles.yaml"
    record = RightsRecord(path, everywhere=False)
    record.noted("GET", "/api/v1/namespaces/a/pods", {}, "application/json", NO_RESPONSE)
    record.write()
    assert not path.exists()


def test_a_record_grows_and_the_same_rights_make_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "roles.yaml"
    first = RightsRecord(path, everywhere=False)
    first.noted("GET", "/api/v1/namespaces/a/pods", {"watch": "true"}, "application/json", 200)
    first.write()
    before = path.read_bytes()
    second = RightsRecord(path, everywhere=False)
    second.noted("GET", "/api/v1/namespaces/a/pods", {}, "application/json", 200)
    second.write()
    assert path.read_bytes() == before
    second.noted("DELETE", "/api/v1/namespaces/a/pods/x", {}, "application/json", 200)
    second.write()
    (role,) = yaml.safe_load_all(path.read_text())
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["delete", "list", "watch"]}]
    assert [each.name for each in tmp_path.iterdir()] == ["roles.yaml"]


@pytest.mark.parametrize(
    "text", ["kind: ConfigMap\nmetadata: {name: a}\n", "a: [", "- 1\n", "metadata: {annotations: 1}\n"]
)
def test_a_file_that_is_not_a_record_is_not_overwritten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "roles.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"roles.yaml: not a record of --record-rbac"):
        RightsRecord(path, everywhere=False)
    assert path.read_text() == text
