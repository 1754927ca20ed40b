"""Kinds: not served yet, gone and back, cluster-scoped, in several namespaces, selected by label, with odd schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import urllib3

from tests.kit.objects import GROUP, MEMCACHED, Objects, OwnKind, Things, memcacheds
from tests.kit.wait import patience, wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api
    from tests.kit.operator import Project

HELLO = "- name: Say hello\n  ansible.builtin.debug:\n    msg: hello\n"


@pytest.fixture
def make_kind(api: Api, namespace: str, project: Project) -> Iterator[Callable[[str], OwnKind]]:
    """Make a watched kind that is not installed yet, with rights for the project's operator."""
    made = []
    project.role("thing", HELLO)

    def make(prefix: str) -> OwnKind:
        made.append(OwnKind(api, namespace, prefix))
        project.grant_kind(made[-1].plural)
        project.watch("thing", kind=made[-1].kind)
        return made[-1]

    yield make
    for kind in made:
        kind.remove()


@pytest.fixture
def kind(make_kind: Callable[[str], OwnKind]) -> OwnKind:
    """A watched kind that is not installed yet."""
    return make_kind("k")


WAITS = """
- name: Wait
  ansible.builtin.wait_for: {path: "{{ lookup('env', 'NOTES') }}", timeout: 60}
  when: ansible_operator_meta.name == 'slow'
"""


def _waiting(page: str) -> set[str]:
    """The kinds that wait for their CRD, on the status page."""
    answer = urllib3.request("GET", f"{page}api/overview", retries=False, timeout=patience())
    return {kind["kind"] for kind in answer.json()["kinds"] if kind["waits"]}


@pytest.mark.full
def test_the_operator_serves_other_kinds_while_one_is_not_served_or_deleted_even_during_a_run(
    project: Project, things: Things, kind: OwnKind, make_kind: Callable[[str], OwnKind]
) -> None:
    project.watches[-1]["finalizer"] = {"name": f"{GROUP}/finalizer", "role": "thing"}
    fleeting = make_kind("fleeting")
    fleeting.install()
    project.role("thing", WAITS)
    project.watch("thing")
    operator = project.start(environment={"NOTES": str(project.folder / "notes")})
    things.create("one", {})
    things.await_success("one")
    assert [line for line in operator.lines(level="warning") if kind.kind in str(line)]
    page = operator.await_line("Serving the status page")["url"]
    assert _waiting(page) == {kind.kind}
    kind.install()
    kind.create("first", {})
    operator.await_line("Run ended", name="first")
    kind.remove()
    operator.await_line("Run ended", name="first", reason="deleted")
    wait_until(lambda: not kind.is_served(), "the kind to go")
    operator.await_line("The API server does not serve this kind; waiting for it")
    wait_until(lambda: _waiting(page) == {kind.kind}, "the page to say so")
    kind.install()
    kind.create("second", {})
    operator.await_line("Run ended", name="second")

    fleeting.create("slow", {})
    operator.await_line("Run started", name="slow")
    fleeting.remove()
    wait_until(lambda: not fleeting.is_served(), "the kind to go")
    (project.folder / "notes").touch()
    operator.await_line("Run ended", name="slow")
    things.create("two", {})
    things.await_success("two")
    assert operator.stop() == 0
    assert [line for line in operator.lines(level="error") if fleeting.kind in str(line)] == []


def test_cluster_scoped_kinds_several_namespaces_and_schemas_that_drop_or_refuse_our_status_are_served(
    project: Project, things: Things, kind: OwnKind, api: Api, make_kind: Callable[[str], OwnKind]
) -> None:
    kind.crd["spec"]["scope"] = "Cluster"
    whole, refusing, partial, without = (make_kind(prefix) for prefix in ("dropping", "refusing", "partial", "without"))
    del whole.schema["status"]
    texts = {name: {"type": "string"} for name in ("type", "status", "reason", "message", "lastTransitionTime")}
    for each, items in ((refusing, {"type": "string"}), (partial, {"type": "object", "properties": texts})):
        each.schema["status"] = {"type": "object", "properties": {"conditions": {"type": "array", "items": items}}}
    del without.served["subresources"]
    for each in (whole, refusing, partial, without, kind):
        each.install()
    second, third = f"{things.namespace}-b", f"{things.namespace}-c"
    for name in (second, third):
        api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    project.bind_everywhere()
    project.watch("thing")
    operator = project.start(f"--namespace={second}")
    names = [f"{each.plural}-{number}" for each in (whole, refusing, partial, without) for number in (1, 2)]
    for each in (whole, refusing, partial, without):
        for number in (1, 2):
            each.create(f"{each.plural}-{number}", {})
    for namespace in (things.namespace, second, third):
        Things(api, namespace).create("in-" + namespace, {})
    Things(api, "", kind.plural, kind.kind).create("everywhere", {})
    names += ["in-" + things.namespace, "in-" + second, "everywhere"]
    for name in names:
        operator.await_line("Run ended", name=name)
    assert operator.stop() == 0
    assert operator.runs("in-" + third) == []
    assert [len(operator.runs(name)) for name in names] == [1] * len(names)

    def logged(kind: OwnKind, text: str) -> list[dict[str, Any]]:
        return [line for line in operator.lines(level="warning") if kind.kind in str(line) and text in line["msg"]]

    assert len(logged(whole, "drops our conditions")) == 1
    assert len(logged(without, "no status subresource")) == 1
    refused = logged(refusing, "is not written")
    assert all("the API server refuses it" in line["msg"] for line in refused)
    errors = [line["error"] for line in refused]  # that of `Running`, if it was written alone, names fewer conditions
    assert errors
    assert len(errors) == len(set(errors))
    assert partial.conditions(f"{partial.plural}-1")["Successful"]["status"] == "True"
    assert sorted(logged(partial, "drops part of our conditions")[0]["fields"]) == [
        "status.conditions[].observedGeneration",
        "status.observedGeneration",
    ]


REQUESTS = """
- name: Come back
  operator_sdk.util.requeue_after:
    time: "{{ after }}"
    done: "{{ done | default(false) }}"
  when: after is defined and (ansible_operator_run.reason == 'created' or done is defined)
"""


def test_runs_come_by_the_period_of_the_watch_or_of_the_object_at_the_request_of_the_role_and_by_changes_of_content(
    project: Project, things: Things, api: Api
) -> None:
    project.role("thing", REQUESTS)
    project.watch("thing", reconcilePeriod="1s")
    project.watch("thing", **MEMCACHED, manageStatus=False)
    project.grant([""], ["configmaps"])
    selector = {"matchLabels": {"watched": "yes"}}
    project.watch("thing", group="", kind="ConfigMap", manageStatus=False, selector=selector)
    operator = project.start()
    things.create("often", {})
    off = {"ansible.sdk.operatorframework.io/reconcile-period": "0s"}
    things.create("never", {}, annotations=off)
    operator.await_line("Run ended", name="often", reason="periodic resync")
    operator.await_line("Run ended", name="never")
    before = things.get("often")
    runs = len(operator.runs("often"))
    operator.await_line("Run started", name="often", reason="periodic resync")
    assert len(operator.runs("never")) == 1
    assert runs >= 2
    assert things.get("often")["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    things.delete("often")

    things.create("one", {"after": "1s"}, annotations=off)
    things.create("waits", {"after": "1h"}, annotations=off)
    things.create("renews", {"after": "1h", "done": True}, annotations=off)
    operator.await_line("Run ended", name="one", reason="requested by the last run")
    things.await_success("one")
    things.await_success("renews")
    assert things.await_condition("waits", "Successful", status="False")["reason"] == "Requeued"
    assert {kind: things.conditions("waits")[kind]["status"] for kind in ("Running", "Failure", "Ready")} == {
        "Running": "True",
        "Failure": "False",
        "Ready": "Unknown",
    }

    # A kind without generation runs for any change of its content.
    config_maps = Objects(api, f"/api/v1/namespaces/{things.namespace}/configmaps")
    config_maps.post({"metadata": {"name": "map", "labels": {"watched": "yes"}}, "data": {"a": "1"}})
    operator.await_line("Run ended", name="map", reason="created")
    config_maps.merge("map", {"data": {"a": "2"}})
    operator.await_line("Run ended", name="map", reason="changed")

    # Without managed status, nothing is written.
    unmanaged = memcacheds(api, things.namespace)
    unmanaged.create("unmanaged", {"size": 1})
    operator.await_line("Run ended", name="unmanaged")
    assert operator.stop() == 0
    assert "status" not in unmanaged.get("unmanaged")
