"""What is deleted after a run, and what keeps an object. The cluster is simulated, but real in tests/integration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from runner.core.engine.job import Outcome, RunResult
from runner.core.kube import answers
from runner.core.kube.discovery import ApiResource
from runner.core.kube.state import StateError
from runner.core.kube.watch_health import ABSENT, PRESENT
from runner.core.queue import reasons
from runner.core.reconcile.attempt import Attempt
from runner.core.reconcile.metrics import Metrics
from runner.features.prune.coverage import Coverage, CoverageRecorder, Omission
from runner.features.prune.fields import PRUNE_POLICY, PruneAction, PrunePolicy
from runner.features.prune.hooks import Pruner
from runner.features.prune.record import CreationRecord
from runner.features.prune.records import PruneDeletion, PruneRecords
from runner.features.prune.run_objects import RunObjects
from runner.features.prune.sharing import OperatorUses, OtherUsers
from runner.features.prune.status import PruneReport
from runner.features.prune.uses import UsedObjects
from runner.values.errors import ApiUnavailableError, ConflictError, KindNotFoundError, LeaseLostError, NotFoundError
from runner.values.lease_guard import LeaseGuard
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef, Owner
from runner.values.slots import EMPTY
from tests.kit.watch_values import scope_value, watch_value
from tests.unit.controller.attempts import attempt_value

THINGS, MAPS = GVK("cache.example.com", "v1alpha1", "Memcached"), GVK("", "v1", "ConfigMap")
RESOURCE = ApiResource(THINGS, "memcacheds", namespaced=True, verbs=frozenset(), subresources=frozenset())
MAP = ApiResource(MAPS, "configmaps", namespaced=True, verbs=frozenset(), subresources=frozenset())
KEY = ObjectKey("ns", "one")
OWNER = Owner(ObjectRef(THINGS, KEY, "owner"), namespaced=True)
PATH = "/api/v1/namespaces/ns/configmaps/"


def config_map(name: str, uid: str = "", **metadata: Any) -> Object:
    meta = {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "ownerReferences": [OWNER.reference()]}
    return {"metadata": {**meta, "resourceVersion": "7", "creationTimestamp": "2999-01-01T00:00:00Z", **metadata}}


@dataclass
class Cluster:
    """Client, discovery, informer, storage and observer."""

    objects: dict[str, Object] = field(default_factory=dict)
    records: dict[str, str] = field(default_factory=dict)
    generation: int = 1
    content: str = "role"
    saves: int = 0
    deleted: list[str] = field(default_factory=list)
    denied: Exception | None = None
    refused: Exception | None = None
    exists: bool = True
    namespaces: tuple[str, ...] = ()
    valid: bool = True
    others: list[ObjectKey] = field(default_factory=list)
    """Further resources of the watch."""
    during_deletion: Callable[[], object] = lambda: None

    @property
    def obj(self) -> Object:
        return {"metadata": {"namespace": "ns", "name": "one", "uid": "owner", "generation": self.generation}}

    # Client and discovery.

    async def find(self, gvk: GVK) -> ApiResource:
        return {THINGS: RESOURCE, MAPS: MAP}[gvk]

    async def request(self, method: str, path: str, *, user: str) -> Object:
        assert (method, user) == ("GET", "system:serviceaccount:tools:narrow")
        if path.removeprefix(PATH) not in self.objects:
            raise NotFoundError("no", status=404)
        return self.objects[path.removeprefix(PATH)]

    async def delete(self, resource: ApiResource, key: ObjectKey, *, uid: str, version: str, user: str) -> None:
        found = self.objects[key.name]["metadata"]
        assert (resource, uid, version) == (MAP, found["uid"], found["resourceVersion"])
        assert user == "system:serviceaccount:tools:narrow"
        self.during_deletion()
        if self.denied is not None:
            raise self.denied
        del self.objects[key.name]

    # Informer.

    def unknown(self) -> None:
        """All resources are known."""

    def all_keys(self) -> list[ObjectKey]:
        return [KEY, *self.others]

    def summary(self, key: ObjectKey) -> None:
        assert key in {KEY, *self.others}

    def get(self, key: ObjectKey) -> Object | None:
        assert key == KEY
        return self.obj if self.exists else None

    # Storage.

    async def load(self, uid: str) -> str | None:
        if self.refused is not None:
            raise self.refused
        return self.records.get(uid)

    async def save(self, owner: ObjectRef, text: str) -> None:
        if self.refused is not None:
            raise self.refused
        self.saves += 1
        self.records[owner.uid] = text

    async def remove(self, uid: str) -> None:
        self.records.pop(uid, None)

    async def owners(self) -> Iterable[ObjectRef]:
        return [ObjectRef(THINGS, KEY, uid) for uid in self.records]

    # Observer, content and guard.

    def began(self, owner: Owner) -> None:
        assert owner == OWNER

    def ended(self, owner: Owner) -> bool:
        return owner == OWNER

    def observe(self, owner: Owner, resource: ApiResource, answer: Object) -> None:
        assert (owner, resource) == (OWNER, MAP)
        self.deleted.append(answer["metadata"]["name"])

    async def digest(self) -> str:
        return self.content

    ansible_args: str = ""
    environ: dict[str, str] = field(default_factory=lambda: {"ANSIBLE_CONFIG": "/none"})
    cwd: Path = Path("/")


class Observer:
    """The cluster's methods under the names of an observer."""

    def __init__(self, cluster: Cluster) -> None:
        self.began, self.ended, self.deleted = cluster.began, cluster.ended, cluster.observe


@dataclass
class Covered:
    """A recorder with a given result."""

    coverage: Coverage

    def result(self) -> Coverage:
        return self.coverage


class Bed:
    """A pruner and its cluster."""

    def __init__(self, then: PruneAction = "delete") -> None:
        self.cluster = Cluster()
        self.metrics = Metrics()
        self.then: PruneAction = then
        self.requested: list[tuple[ObjectRef, str]] = []
        self.restart()

    def restart(self) -> None:
        self.metrics = Metrics()
        cluster: Any = self.cluster
        watch = watch_value(more=EMPTY.having(PRUNE_POLICY, PrunePolicy(self.then)))
        self.scope = scope_value(watch, cluster, metrics=self.metrics)
        self.uses = OperatorUses(lambda ref, why: self.requested.append((ref, why)))
        observer: Any = Observer(cluster)
        deletion = PruneDeletion(self.scope, cluster, cluster, [observer], self.uses, "tools/narrow")
        kept = PruneRecords(self.scope, cluster, cluster, cluster)
        self.pruner = Pruner(self.scope, cluster, self.uses, kept, deletion)

    def attempt(self) -> Attempt:
        return attempt_value(self.cluster.obj, resource=RESOURCE, guard=LeaseGuard(lambda: self.cluster.valid))

    async def begin(self) -> tuple[Attempt, RunObjects]:
        attempt = self.attempt()
        objects = await self.pruner.begin(attempt)
        assert objects is not None
        return attempt, cast("RunObjects", objects)

    async def run(self, *names: str, **result: Any) -> PruneReport:
        """A run that writes these ConfigMaps."""
        attempt = self.attempt()
        objects = cast("RunObjects | None", await self.pruner.begin(attempt))
        if isinstance(objects, RunObjects):
            for name in names:
                await self.write(objects, name)
        return await self.end(attempt, objects, **result)

    async def write(self, objects: RunObjects, name: str) -> None:
        objects.used.name("configmaps", ObjectKey("ns", name))
        if name not in self.cluster.objects:
            await objects.intends(MAP, ObjectKey("ns", name))
            self.cluster.objects[name] = config_map(name)
            objects.answered(MAP, ObjectKey("ns", name), self.cluster.objects[name])

    async def end(
        self, attempt: Attempt, objects: RunObjects | None, *, may_delete: bool = True, **result: Any
    ) -> PruneReport:
        if objects is not None:
            objects.coverage = cast("CoverageRecorder", Covered(result.pop("coverage", Coverage())))
        fields = {"recap": None, "failures": (), "message": "", "requeue_after": None, "duration": 1.0, **result}
        run = RunResult(**{"outcome": Outcome.SUCCEEDED, **fields})
        return await self.pruner.end(attempt, objects, run, may_delete=may_delete)

    def other_run(self, name: str, *used: str) -> UsedObjects:
        """Begin a run of another resource, which uses these ConfigMaps."""
        key, uses = ObjectKey("ns", name), UsedObjects()
        self.cluster.others.append(key)
        for each in used:
            uses.name("configmaps", ObjectKey("ns", each))
        self.uses.began(ObjectRef(THINGS, key, name), uses)
        return uses

    def other_ended(self, name: str, uses: UsedObjects, why: str = "") -> None:
        self.uses.ended(ObjectRef(THINGS, ObjectKey("ns", name), name), uses, why=why, coverage=Coverage())

    async def change(self, **first: Any) -> None:
        """Change the object after a run that wrote `a` and `b`."""
        await self.run("a", "b", **first)
        self.cluster.generation += 1

    async def leave_out_once(self) -> None:
        """A run of a changed object that no longer writes `a`."""
        await self.change()
        assert (await self.run("b")).confirm

    async def leave_out(self) -> PruneReport:
        """Two of them."""
        await self.leave_out_once()
        return await self.run("b")


@pytest.fixture
def bed() -> Bed:
    return Bed()


async def test_an_unused_object_is_deleted_and_unchanged_runs_write_no_record(bed: Bed) -> None:
    await bed.run("a", "b")
    saves = bed.cluster.saves
    assert saves == 3  # an intent for each creation, and the UIDs at the end
    await bed.run("a", "b")
    assert bed.cluster.saves == saves
    found = await bed.leave_out()
    assert list(found.deleted) == ["ConfigMap ns/a"]
    assert not found.confirm
    assert (list(bed.cluster.objects), bed.cluster.deleted) == (["b"], ["a"])


@pytest.mark.parametrize(
    "result",
    [
        {"outcome": Outcome.FAILED},
        {"outcome": Outcome.CANCELED},
        {"requeue_after": 5.0},
        {"coverage": Coverage((Omission("x", "a failure was rescued", 0, rescued=True),))},
        {"coverage": Coverage((Omission("x", "an include was skipped", 0),))},
    ],
)
async def test_incomplete_runs_prune_nothing(bed: Bed, result: dict[str, Any]) -> None:
    await bed.change()
    for _ in range(3):
        assert not (await bed.run("b", **result)).confirm
    assert list(bed.cluster.objects) == ["a", "b"]


async def test_an_object_that_a_run_does_not_use_because_of_a_skipped_task_is_reported_with_the_task(bed: Bed) -> None:
    await bed.change()
    found = await bed.run("b", coverage=Coverage((Omission("x", "an include was skipped", 0),)))
    assert list(found.held) == [("ConfigMap ns/a", "an include was skipped")]


async def test_after_an_approved_run_an_unused_object_is_reported_and_not_deleted(bed: Bed) -> None:
    await bed.leave_out_once()
    attempt, objects = await bed.begin()
    await bed.write(objects, "b")
    found = await bed.end(attempt, objects, may_delete=False)
    assert (list(found.unused), list(found.deleted)) == (["ConfigMap ns/a"], [])
    assert list(bed.cluster.objects) == ["a", "b"]


async def test_objects_of_handlers_are_never_pruned(bed: Bed) -> None:
    await bed.change(coverage=Coverage(handlers=((0.0, 1e12),)))
    for _ in range(3):
        assert not (await bed.run("b")).confirm
    assert list(bed.cluster.objects) == ["a", "b"]


async def test_a_report_names_the_object_until_a_run_uses_it_again() -> None:
    bed = Bed("report")
    assert list((await bed.leave_out()).unused) == ["ConfigMap ns/a"]
    text = await bed.metrics.text()
    assert b'ansible_operator_unused_objects{GVK="cache.example.com/v1alpha1, Kind=Memcached"} 1.0' in text
    assert list((await bed.run("a", "b")).unused) == []
    assert list(bed.cluster.objects) == ["a", "b"]


async def test_a_role_with_a_lookup_that_ignores_its_errors_prunes_nothing_and_says_so(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks" / "main.yml"
    tasks.parent.mkdir()
    tasks.write_text("- debug: {msg: \"{{ lookup('url', 'http://a/', errors='ignore') }}\"}\n")
    bed, coverage = Bed(), Coverage(paths=frozenset({f"{tasks}:1"}))
    await bed.change(coverage=coverage)
    await bed.run("b", coverage=coverage)
    report = await bed.run("b", coverage=coverage)
    assert (list(report.unused), list(report.deleted)) == ([], [])
    assert report.unrecorded == f"a lookup ignores its errors ({tasks}:1)."
    assert list(bed.cluster.objects) == ["a", "b"]


@pytest.mark.parametrize("is_hidden", [True, False])
async def test_a_task_whose_no_log_hides_what_failed_when_did_prunes_nothing(
    tmp_path: Path, *, is_hidden: bool
) -> None:
    tasks = tmp_path / "main.yml"
    tasks.write_text(
        "- name: Read\n  uri:\n    url: http://a/\n\n  no_log: true\n  failed_when: false\n"
        "- name: Read more\n  no_log: true\n  uri: {url: http://b/}\n- command: ls\n  failed_when: false\n"
    )
    recorder, place = CoverageRecorder(), f"{tasks}:{1 if is_hidden else 7}"
    data = {"task": "Read", "task_path": place, "task_action": "uri", "res": {"censored": "by no_log"}}
    recorder.event({"event": "runner_on_ok", "event_data": data})
    bed, coverage = Bed(), recorder.result()
    await bed.change(coverage=coverage)
    await bed.run("b", coverage=coverage)
    report = await bed.run("b", coverage=coverage)
    why = f"no_log hides whether failed_when hid a failure ({place})."
    assert report.unrecorded == (why if is_hidden else "")
    assert list(bed.cluster.objects) == (["a", "b"] if is_hidden else ["b"])


@pytest.mark.parametrize(
    "found",
    [
        config_map("a", "another"),
        config_map("a", ownerReferences=[]),
        config_map("a", annotations={"ansible.sdk.operatorframework.io/prune": "false"}),
        config_map("a", deletionTimestamp="2026-01-01T00:00:00Z"),
    ],
)
async def test_an_object_that_is_another_one_or_not_only_ours_any_more_stays(bed: Bed, found: Object) -> None:
    await bed.run("a", "b")
    bed.cluster.objects["a"] = found
    bed.cluster.generation += 1
    for _ in range(3):
        report = await bed.run("b")
        assert (list(report.deleted), list(report.unused), list(report.problems)) == ([], [], [])
    assert bed.cluster.objects["a"] is found


@pytest.mark.parametrize(
    ("denied", "problem"),
    [
        (ApiUnavailableError("down"), ""),
        (ConflictError("changed", status=409), "ConfigMap ns/a: changed"),
        (
            answers.of_status(
                "DELETE /api/v1/namespaces/ns/configmaps/a",
                {
                    "code": 403,
                    "message": 'configmaps "a" is forbidden: User "op" cannot delete resource "configmaps" in API '
                    'group "" in the namespace "ns"',
                },
            ),
            '(as op); add to its Role: {apiGroups: [""], resources: [configmaps], verbs: [delete]}',
        ),
    ],
)
async def test_a_refused_deletion_is_reported_and_retried_by_the_next_run(
    bed: Bed, denied: Exception, problem: str
) -> None:
    bed.cluster.denied = denied
    report = await bed.leave_out()
    assert [problem in found for found in report.problems] == [True] * bool(problem)
    assert list(report.deleted) == []
    bed.cluster.denied = None
    assert list((await bed.run("b")).deleted) == ["ConfigMap ns/a"]


async def test_nothing_is_deleted_after_the_lease_was_lost_or_the_resource_deleted(bed: Bed) -> None:
    await bed.leave_out_once()
    attempt, objects = await bed.begin()
    await bed.write(objects, "b")
    bed.cluster.valid = False
    with pytest.raises(LeaseLostError):
        await bed.end(attempt, objects)
    bed.cluster.valid, bed.cluster.exists = True, False
    await bed.run("b")
    assert list(bed.cluster.objects) == ["a", "b"]


async def test_a_run_of_which_only_the_intent_was_stored_is_completed_after_a_restart(bed: Bed) -> None:
    _, objects = await bed.begin()
    for name in ("a", "b", "refused"):
        await objects.intends(MAP, ObjectKey("ns", name))
    bed.cluster.objects |= {"a": config_map("a"), "b": config_map("b")}
    bed.cluster.objects["foreign"] = config_map("foreign")
    bed.restart()
    await bed.run("b")
    bed.cluster.generation += 1
    await bed.run("b")
    assert list((await bed.run("b")).deleted) == ["ConfigMap ns/a"]
    assert list(bed.cluster.objects) == ["b", "foreign"]


async def test_the_first_complete_run_after_a_start_deletes_nothing_and_the_next_one_does(bed: Bed) -> None:
    await bed.leave_out_once()
    bed.restart()
    first = await bed.run("b")
    assert (first.confirm, list(bed.cluster.objects)) == (True, ["a", "b"])
    assert list((await bed.run("b")).deleted) == ["ConfigMap ns/a"]


async def test_an_object_whose_kind_is_not_served_stays_in_the_record_and_is_pruned_when_it_is_served(bed: Bed) -> None:
    await bed.leave_out_once()
    bed.cluster.denied = KindNotFoundError("404 page not found")
    assert list((await bed.run("b")).deleted) == []
    bed.cluster.denied = None
    assert list((await bed.run("b")).deleted) == ["ConfigMap ns/a"]


async def test_the_uses_of_a_watch_that_prunes_nothing_are_stored_too(bed: Bed) -> None:
    bed.then = "off"
    bed.restart()
    attempt, objects = await bed.begin()
    objects.used.name("configmaps", ObjectKey("ns", "a"))
    await bed.end(attempt, objects)
    record = CreationRecord.parse(bed.cluster.records["owner"])
    assert (record.objects, record.uses is not None and record.uses.has("configmaps", ObjectKey("ns", "a"))) == (
        {},
        True,
    )


async def test_a_storage_that_refuses_stops_no_run_and_is_reported(bed: Bed) -> None:
    bed.cluster.refused = StateError("no right", status=403)
    found = await bed.run("a")
    assert (found.unrecorded, found.confirm) == ("no right", False)
    bed.cluster.refused = None
    _, objects = await bed.begin()
    bed.cluster.refused = StateError("no right", status=403)
    await bed.write(objects, "c")
    text = await bed.metrics.text()
    assert b'unrecorded_creations_total{GVK="cache.example.com/v1alpha1, Kind=Memcached",reason="storage"} 1.0' in text


@pytest.mark.parametrize("is_refused", [True, False])
async def test_of_a_resource_whose_record_cannot_be_read_a_run_that_omits_tasks_shows_no_use(
    bed: Bed, *, is_refused: bool
) -> None:
    await bed.run("a", "b")
    bed.restart()
    kept, bed.cluster.records["owner"] = bed.cluster.records["owner"], "{"
    if is_refused:
        bed.cluster.refused = StateError("configmaps is forbidden", status=403)
    omits = Coverage((Omission("x", "the include 'More' was skipped", 0),))
    for _ in range(2):
        await bed.run("b", coverage=omits)
    other = ObjectRef(THINGS, ObjectKey("ns", "other"))
    others = bed.uses.others(other, lambda uses: uses.has("configmaps", ObjectKey("ns", "a")))
    why = "its record cannot be read, and in its last run, the include 'More' was skipped"
    assert str(others) == f"kept until these resources complete a run: Memcached ns/one ({why})"
    bed.cluster.refused, bed.cluster.records["owner"] = None, kept
    await bed.run("b", coverage=omits if is_refused else Coverage())
    others = bed.uses.others(other, lambda uses: uses.has("configmaps", ObjectKey("ns", "a")))
    assert others == (OtherUsers(users=(OWNER.ref,)) if is_refused else OtherUsers())


async def test_a_role_that_deletes_its_objects_leaves_no_entries(bed: Bed) -> None:
    await bed.run("a", "b")
    attempt, objects = await bed.begin()
    del bed.cluster.objects["a"]
    objects.deleted(MAP, ObjectKey("ns", "a"))
    objects.deleted(MAP, ObjectKey("ns", "b"))  # a dry run
    await bed.end(attempt, objects)
    assert "uid-a" not in bed.cluster.records["owner"]
    assert "uid-b" in bed.cluster.records["owner"]


async def test_at_the_start_an_unchanged_resource_with_unused_objects_runs(bed: Bed) -> None:
    bed.other_ended("two", bed.other_run("two", "a"))
    await bed.leave_out()
    bed.restart()
    attempt = bed.attempt()
    assert not await bed.pruner.must_run(attempt)
    present = replace(attempt, request=replace(attempt.request, reason=reasons.PRESENT))
    assert await bed.pruner.must_run(present)


async def test_an_object_stays_while_another_resource_has_not_completed_a_run(bed: Bed) -> None:
    bed.cluster.others.append(ObjectKey("ns", "new"))
    bed.other_ended("two", bed.other_run("two"), "its last run failed")
    found = await bed.leave_out()
    ((_, others),) = found.shared
    assert str(others) == (
        "kept until these resources complete a run: Memcached ns/new, Memcached ns/two (its last run failed)"
    )
    assert {ref.key.name for ref, _ in bed.requested} == {"new", "two"}
    bed.cluster.others.clear()
    bed.scope.registry.forget(ObjectKey("ns", "new"))
    assert bed.requested[-1] == (OWNER.ref, "no other resource uses an object any more")


async def test_a_run_that_begins_during_the_deletion_finds_the_object_deleted(bed: Bed) -> None:
    waited: list[bool] = []
    tasks = []

    async def use() -> None:
        await bed.uses.gate.wait("configmaps", ObjectKey("ns", "a"))
        waited.append("a" not in bed.cluster.objects)

    def request() -> None:
        tasks.append(asyncio.ensure_future(use()))

    bed.cluster.during_deletion = request
    await bed.leave_out()
    await asyncio.gather(*tasks)
    assert waited == [True]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("error", "left"),
    [(ApiUnavailableError("refused"), set[str]()), (StateError("configmaps is forbidden", status=403), {"gone"})],
)
async def test_records_of_objects_that_are_gone_are_removed_after_an_outage(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, error: Exception, left: set[str]
) -> None:
    cluster, errors = bed.cluster, [error]
    owners = cluster.owners
    cluster.records["gone"] = ""

    async def interrupted() -> Iterable[ObjectRef]:
        if errors:
            raise errors.pop()
        return await owners()

    async def known_namespaces() -> AsyncIterator[str]:
        yield ""

    async def get(*_: object) -> Object:
        raise NotFoundError("no", status=404)

    monkeypatch.setattr(cluster, "get", get)
    monkeypatch.setattr(cluster, "owners", interrupted)
    monkeypatch.setattr(cluster, "known_namespaces", known_namespaces, raising=False)
    monkeypatch.setattr(cluster, "presence", lambda _, uid: ABSENT if uid == "gone" else PRESENT, raising=False)
    await bed.pruner._records.sweep()
    assert set(cluster.records) == left
