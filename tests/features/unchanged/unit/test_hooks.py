"""When a run is skipped, and what stands in its way. The cluster is made up; the real one is in tests/integration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from runner.core.kube.discovery import ApiResource
from runner.core.kube.state import FileState, StateError
from runner.core.queue import reasons
from runner.core.reconcile.attempt import Attempt
from runner.core.reconcile.hooks import Skip
from runner.features.unchanged.hooks import RunSkipper, Seal
from runner.features.unchanged.requests import READ_SET, ReadEntry, ReadSet
from runner.values.digests import digest_of_answer
from runner.values.errors import ForbiddenError, KindNotFoundError, NotFoundError
from runner.values.objects import GVK, LAST_RUN, Object, ObjectKey, ObjectRef
from tests.kit.reasons import REASONS
from tests.kit.watch_values import scope_value, watch_value
from tests.unit.controller.attempts import RESOURCE, THINGS, attempt_value

SETTINGS = {"metadata": {"name": "settings", "uid": "s"}, "data": {"a": "1"}}
PATH = "/api/v1/namespaces/ns/configmaps/settings"
SEEN = ReadEntry(("", "configmaps"), ObjectKey("ns", "settings"), digest_of_answer(SETTINGS))


class Cluster:
    """A client and what objects own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.obj: Object = {"metadata": {"name": "one", "namespace": "ns", "uid": "u"}, "spec": {"size": 1}}
        self.objects: dict[str, Object] = {PATH: SETTINGS}
        self.own: str | None = "owned"
        self.named: str | None = "named"
        self.content = "content"
        self.forbidden = False
        self.pending = False
        self.requests = 0
        self.lookups = 0
        self.unserved: set[str] = set()

    async def owned(self, gvk: GVK, key: ObjectKey) -> str | None:
        assert (gvk, key) == (THINGS, ObjectKey("ns", "one"))
        return self.own

    def unknown(self, gvk: GVK, namespace: str) -> str:
        assert (gvk, namespace) == (THINGS, "ns")
        return "Deployment in the namespace ns: forbidden" if self.own is None else ""

    def owned_keys(self, owner: ObjectRef) -> set[tuple[tuple[str, str], ObjectKey]]:
        assert owner == ObjectRef(THINGS, ObjectKey("ns", "one"))
        self.lookups += 1
        return {(("", "configmaps"), ObjectKey("ns", "owned"))}

    def inputs(self, key: ObjectKey) -> str | None:
        assert key == ObjectKey("ns", "one")
        return self.named

    async def digest(self) -> str:
        return self.content

    async def read(self, path: str) -> bytes:
        self.requests += 1
        if path in self.unserved:
            raise KindNotFoundError("404 page not found")
        if path not in self.objects:
            raise NotFoundError("gone", status=404)
        return orjson.dumps(self.objects[path])

    async def patch(self, resource: ApiResource, key: ObjectKey, body: Any, **_: Any) -> None:
        assert (resource, key.name) == (RESOURCE, "one")
        if self.forbidden:
            raise ForbiddenError("no", status=403)
        self.requests += 1
        annotations = self.obj["metadata"].setdefault("annotations", {})
        for name, value in body["metadata"]["annotations"].items():
            annotations[name] = value
            if value is None:
                del annotations[name]

    @property
    def skipping(self) -> RunSkipper:
        scope = scope_value(watch_value(gvk=THINGS), self)
        fake: Any = self
        return RunSkipper(scope, fake, fake, self.inputs, fake, Seal(FileState(self.folder)), self.must_run)

    async def must_run(self, _attempt: Attempt) -> bool:
        return self.pending

    async def runs(self, read_set: ReadSet | None = None, due: float | None = None) -> None:
        """A run that succeeds."""
        basis = await self.skipping.basis(self.obj)
        seen = read_set or ReadSet(owned=self.own or "", reads={PATH: SEEN})
        await self.skipping.succeeded(RESOURCE, self.obj, basis, seen, due)

    async def why(self, now: float = 0.0) -> str:
        return (await self.skipping.check(self.obj, now)).why


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


async def test_an_unchanged_object_needs_no_run(cluster: Cluster) -> None:
    assert await cluster.why() == "no successful run is on record"
    await cluster.runs()
    assert await cluster.why() == ""
    cluster.obj["status"] = {"conditions": [{"type": "Successful", "status": "True"}]}
    assert await cluster.why() == ""


CHANGES: dict[str, Callable[[Cluster], object]] = {
    "spec": lambda cluster: cluster.obj["spec"].update(size=2),
    "content of the role": lambda cluster: setattr(cluster, "content", "other"),
    "dependents": lambda cluster: setattr(cluster, "own", "other"),
    "references": lambda cluster: setattr(cluster, "named", "other"),
    "unknown dependents": lambda cluster: setattr(cluster, "own", None),
    "an object that was read": lambda cluster: cluster.objects.update({PATH: {**SETTINGS, "data": {"a": "2"}}}),
    "an object that is gone": lambda cluster: cluster.objects.pop(PATH),
    "a failure": lambda cluster: cluster.obj.update(status={"conditions": [{"type": "Failure", "status": "True"}]}),
    "a run that was interrupted": lambda cluster: cluster.obj.update(
        status={"conditions": [{"type": "Successful", "status": "False", "reason": "Running"}]}
    ),
    "a copy of the object": lambda cluster: cluster.obj["metadata"].update(uid="of a copy"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_any_difference_causes_a_run(cluster: Cluster, change: Callable[[Cluster], object]) -> None:
    await cluster.runs()
    change(cluster)
    assert await cluster.why()


@pytest.mark.parametrize(
    "path", ["/api/v1/namespaces/other/services/http:db:80/proxy/reset", "/api/v1/namespaces/other/secrets/guessed"]
)
async def test_of_a_record_that_another_client_changed_the_operator_reads_nothing(cluster: Cluster, path: str) -> None:
    await cluster.runs()
    annotations = cluster.obj["metadata"]["annotations"]
    record = orjson.loads(annotations[LAST_RUN])
    annotations[LAST_RUN] = orjson.dumps({**record, "reads": {path: digest_of_answer(None)}}).decode()
    before = cluster.requests
    assert await cluster.why() == "another client wrote the record of the last run"
    annotations[LAST_RUN] = orjson.dumps({name: record[name] for name in record if name != "seal"}).decode()
    assert await cluster.why() == "another client wrote the record of the last run"
    assert cluster.requests == before


async def test_without_the_right_to_store_the_key_records_are_valid_in_this_process(cluster: Cluster) -> None:
    class Refusing(FileState):
        async def read(self, name: str) -> None:
            raise StateError(f"cannot read {name}", status=403)

    seals = [Seal(Refusing(cluster.folder)) for _ in range(2)]
    with capture_logs() as logs:
        one, again, other = (
            await seals[0].of("u", "text"),
            await seals[0].of("u", "text"),
            await seals[1].of("u", "text"),
        )
    assert one == again != other
    assert [line["log_level"] for line in logs] == ["warning", "warning"]


async def test_a_formerly_absent_object_causes_a_run(cluster: Cluster) -> None:
    del cluster.objects[PATH]
    await cluster.runs(
        ReadSet("owned", "", {PATH: ReadEntry(("", "configmaps"), ObjectKey("ns", "settings"), digest_of_answer(None))})
    )
    assert not await cluster.why()
    cluster.objects[PATH] = SETTINGS
    assert await cluster.why()


async def test_a_kind_that_was_not_served_causes_a_run_when_it_is(cluster: Cluster) -> None:
    attempt = await cluster.skipping.before(attempt_value(cluster.obj))
    assert isinstance(attempt, Attempt)
    read_set = attempt.more.get(READ_SET)
    assert read_set is not None
    read_set.ended("owned")
    message = 'Failed to find API for resource with apiVersion "monitoring.example.com/v1" and kind "ServiceMonitor"'
    for sink in attempt.sinks:
        sink({"event": "runner_on_ok", "event_data": {"res": {"api_found": False, "msg": message}}})
    await cluster.runs(read_set)
    path = "/apis/monitoring.example.com/v1"
    cluster.unserved.add(path)
    assert await cluster.why() == ""
    cluster.unserved.clear()
    cluster.objects[path] = {"kind": "APIResourceList", "resources": []}
    assert path in await cluster.why()


@pytest.mark.parametrize("version", [None, "../api/v1/secrets", "a/b/v1", 1, ["v1"]])
async def test_an_invalid_version_of_a_kind_is_no_path(version: object) -> None:
    read_set = ReadSet("owned")
    read_set.event({"event_data": {"res": {"api_found": False, "msg": f'apiVersion "{version}" and kind "Foo"'}}})
    assert not read_set.reads
    assert read_set.unseen


async def test_a_requeue_requested_by_the_role_runs_at_its_time(cluster: Cluster) -> None:
    await cluster.runs(due=100.0)
    checked = await cluster.skipping.check(cluster.obj, 60.0)
    assert (checked.why, checked.due) == ("", 100.0)
    assert await cluster.why(now=100.0)


async def test_a_failure_removes_the_record_and_needs_no_request_without_one(cluster: Cluster) -> None:
    await cluster.skipping.failed(RESOURCE, cluster.obj)
    assert cluster.requests == 0
    await cluster.runs()
    await cluster.skipping.failed(RESOURCE, cluster.obj)
    assert LAST_RUN not in cluster.obj["metadata"]["annotations"]


async def test_the_same_record_is_not_written_again(cluster: Cluster) -> None:
    await cluster.runs()
    requests = cluster.requests
    await cluster.runs()
    assert cluster.requests == requests


@pytest.mark.parametrize(
    "read_set",
    [
        ReadSet(owned=""),
        ReadSet(owned="owned", unseen="a table"),
        ReadSet("owned", "", {str(number): SEEN for number in range(33)}),
    ],
)
async def test_a_run_of_which_too_little_is_known_is_not_on_record(cluster: Cluster, read_set: ReadSet) -> None:
    await cluster.runs()
    await cluster.runs(read_set)
    assert await cluster.why() == "no successful run is on record"


async def test_the_record_does_not_contain_reads_of_the_object_and_its_dependents(cluster: Cluster) -> None:
    own = ReadEntry(("test.example.com", "things"), ObjectKey("ns", "one"), "x")
    owned = ReadEntry(("", "configmaps"), ObjectKey("ns", "owned"), "x")
    await cluster.runs(ReadSet("owned", "", {"/itself": own, "/owned": owned, PATH: SEEN}))
    assert set(orjson.loads(cluster.obj["metadata"]["annotations"][LAST_RUN])["reads"]) == {PATH}


async def test_the_dependents_of_an_object_are_looked_up_once_for_any_number_of_reads(cluster: Cluster) -> None:
    await cluster.runs(ReadSet("owned", "", {str(number): SEEN for number in range(1000)}))
    assert cluster.lookups == 1


async def test_without_the_right_to_patch_nothing_is_skipped_and_nothing_fails(cluster: Cluster) -> None:
    cluster.forbidden = True
    await cluster.runs()
    assert await cluster.why()


async def test_a_missing_right_is_logged_once_for_each_namespace(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.forbidden, skipping = True, cluster.skipping
    for namespace in ("ns", "other", "ns"):
        metadata = {"name": "one", "namespace": namespace, "uid": "u", "annotations": {LAST_RUN: "{}"}}
        await skipping.failed(RESOURCE, {"metadata": metadata})
    assert capsys.readouterr().out.count("Cannot record runs") == 2


async def test_checking_an_object_whose_run_read_only_dependents_needs_no_request(cluster: Cluster) -> None:
    await cluster.runs(ReadSet("owned"))
    cluster.requests = 0
    assert not await cluster.why()
    assert cluster.requests == 0


async def test_changes_and_dependents_are_never_skipped(cluster: Cluster) -> None:
    await cluster.runs()
    decided = {reason: await cluster.skipping.before(attempt_value(cluster.obj, reason)) for reason in REASONS}
    skipped = {reason for reason, each in decided.items() if isinstance(each, Skip)}
    assert skipped == {reasons.PRESENT, reasons.RESYNC}


async def test_an_unchanged_object_runs_if_another_feature_needs_the_run(cluster: Cluster) -> None:
    await cluster.runs()
    cluster.pending = True
    assert isinstance(await cluster.skipping.before(attempt_value(cluster.obj, reasons.RESYNC)), Attempt)


async def test_a_run_of_an_object_whose_references_are_not_known_is_not_on_record(cluster: Cluster) -> None:
    cluster.named = None
    await cluster.runs()
    cluster.named = "named"
    assert await cluster.why() == "no successful run is on record"


async def test_unknown_dependents_are_named_before_and_after_a_run(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    await cluster.runs()
    cluster.own = None
    why = "the owned objects are not known: Deployment in the namespace ns: forbidden"
    assert await cluster.why() == why
    await cluster.runs()
    assert why in capsys.readouterr().out
