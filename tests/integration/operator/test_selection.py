"""Watches of single objects, by name or by a field of theirs; the API server selects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.kit.objects import GROUP, MEMCACHED, OwnKind

if TYPE_CHECKING:
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Project

HELLO = "- name: Say hello\n  ansible.builtin.debug:\n    msg: hello\n"
FINALIZER = f"{GROUP}/finalizer"


@pytest.fixture
def selectables(api: Api, namespace: str, project: Project) -> Iterator[OwnKind]:
    """A kind whose objects can be selected by `spec.mode`."""
    kind = OwnKind(api, namespace, "s")
    kind.schema["spec"]["properties"] = {"mode": {"type": "string"}}
    kind.served["selectableFields"] = [{"jsonPath": ".spec.mode"}]
    project.grant_kind(kind.plural)
    kind.install()
    yield kind
    kind.remove()


def test_only_the_object_of_one_name_is_run_and_finalized_and_an_unsupported_field_selector_is_logged_with_its_remedy(
    project: Project, things: Things
) -> None:
    project.role("thing", HELLO)
    project.watch("thing", name="main", finalizer={"name": FINALIZER, "role": "thing"})
    project.watch("thing", **MEMCACHED, fieldSelector="spec.mode=managed")
    # Another operator's, of the same make: it has the same finalizer, and this one was never its watcher.
    things.create("theirs", {}, finalizers=[FINALIZER])
    operator = project.start(ready=False)
    logged = operator.await_line("Watch failed; retrying")
    assert "field label not supported: spec.mode" in logged["error"]
    assert "selectableFields" in logged["needs"]
    assert not operator.is_ready()
    things.create("main", {})
    things.await_success("main")
    things.delete("theirs")
    things.merge("main", {"spec": {"size": 2}})
    operator.await_line("Run ended", name="main", reason="changed")
    things.delete("main")
    things.await_gone("main")
    assert operator.lines(msg="Run started", name="theirs") == []
    assert things.get("theirs")["metadata"]["finalizers"] == [FINALIZER]


@pytest.mark.full
def test_an_object_comes_and_goes_with_its_field_and_is_finalized_all_the_same(
    project: Project, selectables: OwnKind
) -> None:
    project.role("thing", HELLO)
    project.watch(
        "thing",
        fieldSelector="spec.mode=managed",
        finalizer={"name": FINALIZER, "role": "thing"},
        kind=selectables.kind,
    )
    operator = project.start()
    for name in ("one", "two"):
        selectables.create(name, {"mode": "manual"})
    selectables.create("three", {"mode": "managed"})
    selectables.await_success("three")
    selectables.merge("one", {"spec": {"mode": "managed"}})
    selectables.await_success("one")
    selectables.merge("one", {"spec": {"mode": "manual", "size": 2}})
    selectables.merge("three", {"spec": {"size": 2}})
    operator.await_line("Run ended", name="three", reason="changed")
    assert [run["reason"] for run in operator.runs("one")] == ["created"]
    selectables.delete("one")
    selectables.await_gone("one")
    assert [run["reason"] for run in operator.runs("one")] == ["created", "deleted"]
    selectables.merge("three", {"spec": {"mode": "manual"}})
    assert operator.stop() == 0
    operator = project.start()
    selectables.delete("three")
    selectables.await_gone("three")
    assert [run["reason"] for run in operator.runs("three")] == ["deleted"]
    assert operator.lines(msg="Run started", name="two") == []
