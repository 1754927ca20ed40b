"""Which resources use an object, while which it stays, and when the owner runs again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.core.kube.watch_health import Unknown
from runner.features.prune.coverage import Coverage, Omission
from runner.features.prune.record import CreationRecord
from runner.features.prune.sharing import DeletionGate, IsUsed, OperatorUses, OtherUsers, ResourceUses, other_users
from runner.features.prune.uses import MOST_ROWS, UseDigests, UsedObjects, Uses
from runner.values.objects import GVK, ObjectKey, ObjectRef

SHOP, CACHE = GVK("example.com", "v1", "Shop"), GVK("example.com", "v1", "Cache")
ONE, TWO = ObjectRef(SHOP, ObjectKey("ns", "one"), "1"), ObjectRef(SHOP, ObjectKey("ns", "two"), "2")
OTHER_SPACE, OTHER_KIND = ObjectRef(SHOP, ObjectKey("b", "one"), "3"), ObjectRef(CACHE, ObjectKey("ns", "one"), "4")
COMPLETE = Coverage()
THEME, ROLE = ("configmaps", ObjectKey("ns", "theme")), ("clusterroles", ObjectKey("", "theme"))


def used(*objects: tuple[str, ObjectKey]) -> UsedObjects:
    found = UsedObjects()
    for each in objects:
        found.name(*each)
    return found


def uses(obj: tuple[str, ObjectKey]) -> IsUsed:
    def is_used(found: Uses) -> bool:
        return found.has(*obj)

    return is_used


def completed(*objects: tuple[str, ObjectKey], **more: Any) -> ResourceUses:
    return ResourceUses("uid", UseDigests.of(used(*objects)), is_known=True, **more)


@pytest.mark.parametrize("other", [TWO, OTHER_SPACE, OTHER_KIND])
@pytest.mark.parametrize("obj", [THEME, ROLE])
@pytest.mark.parametrize(
    "state",
    [
        completed(THEME, ROLE),
        completed(since=UseDigests.of(used(THEME, ROLE))),
        completed(running=used(THEME, ROLE)),
        ResourceUses("uid", running=used(THEME, ROLE)),
    ],
)
def test_an_object_is_in_use_if_the_last_complete_run_or_a_later_one_of_another_resource_used_it(
    other: ObjectRef, obj: tuple[str, ObjectKey], state: ResourceUses
) -> None:
    found = other_users(ONE, uses(obj), [(ONE, completed(obj)), (other, state)])
    assert found == OtherUsers(users=(other,))
    assert str(found) == f"in use by {other.gvk.kind} {other.key}"


@pytest.mark.parametrize(
    ("state", "why"),
    [(None, ""), (ResourceUses("uid", why="its last run failed"), "its last run failed")],
)
def test_while_a_resource_has_completed_no_run_it_is_unknown_whether_an_object_is_in_use(
    state: ResourceUses | None, why: str
) -> None:
    found = other_users(ONE, uses(THEME), [(ONE, completed()), (TWO, state), (OTHER_KIND, completed())])
    assert found == OtherUsers(unknown=((TWO, why),))
    assert found
    assert found.is_unknown


def test_an_object_is_free_if_every_other_resource_has_completed_a_run_without_it() -> None:
    assert not other_users(ONE, uses(THEME), [(ONE, completed(THEME)), (TWO, completed(ROLE))])
    assert not other_users(ONE, uses(THEME), [])


def test_an_incomplete_run_or_one_that_omits_more_tasks_adds_uses_and_removes_none() -> None:
    state = ResourceUses("uid")
    for objects, why, omitted, expected in (
        ((), "it failed", (), (None, False)),
        ((THEME,), "", ("x",), (("x",), True)),
        ((), "it failed", (), (("x",), True)),
        ((ROLE,), "", ("x", "y"), (("x",), True)),
        ((ROLE,), "", ("x",), (("x",), False)),
        ((), "", (), ((), False)),
    ):
        state.running = used(*objects)
        state.ended(why, omitting(*omitted))
        assert (state.omitted if state.last is not None else None, state.is_used(uses(THEME))) == expected


def test_of_a_resource_whose_runs_fail_and_use_other_objects_each_time_the_uses_are_bounded_and_unknown() -> None:
    resource, is_used = completed(THEME), uses(ROLE)
    for number in range(20):
        resource.running = used(*(("jobs", ObjectKey("ns", f"{number}-{each}")) for each in range(900)))
        resource.ended("its last run failed", Coverage())
    assert resource.kept is not None
    assert len(resource.kept.digests) <= MOST_ROWS
    (unknown,) = other_users(ONE, is_used, [(TWO, resource)]).unknown
    assert unknown == (TWO, "its last run failed, and its runs used too many objects")
    resource.running = used(THEME)
    resource.ended("", Coverage())
    assert not other_users(ONE, is_used, [(TWO, resource)])


def omitting(*tasks: str, **more: Any) -> Coverage:
    return Coverage(tuple(Omission(task, task, 1, **more) for task in tasks), times=(1.0, 2.0), tasks=("a1", "b2"))


def timed(at: float, *objects: tuple[str, ObjectKey]) -> UsedObjects:
    """Objects that the task `a1` used, or `b2` from the second 2 on."""
    found = UsedObjects(lambda: at)
    for each in objects:
        found.name(*each)
    return found


@pytest.mark.parametrize(
    ("by", "coverage", "is_used"),
    [
        pytest.param(1.0, omitting("x"), False, id="the task was reached, and did not use the object"),
        pytest.param(2.0, replace(omitting("x"), tasks=("a1", "c3")), True, id="the task was not reached"),
        pytest.param(2.0, omitting("x", failed=True), True, id="the task was reached after a failure"),
        pytest.param(1.0, omitting("x", failed=True), False, id="the task was reached before a failure"),
        pytest.param(2.0, omitting(), False, id="nothing was omitted"),
    ],
)
def test_a_run_that_omits_more_tasks_replaces_the_uses_of_the_tasks_that_it_reached(
    by: float, coverage: Coverage, *, is_used: bool
) -> None:
    state = ResourceUses("uid", running=timed(by, THEME))
    state.ended("", omitting())
    for _ in range(2):
        state.running = used()
        state.ended("", coverage)
        assert state.is_used(uses(THEME)) == is_used
    assert state.omitted == (() if is_used else coverage.omitting)


@dataclass
class Bed:
    """Resources of two watches."""

    keys: dict[GVK, list[ObjectRef]] = field(default_factory=lambda: {SHOP: [ONE, TWO], CACHE: [OTHER_KIND]})
    listed: bool = True
    requested: list[tuple[ObjectRef, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.uses = OperatorUses(lambda ref, why: self.requested.append((ref, why)))
        for gvk in self.keys:
            self.uses.watch(gvk, cast("Any", Existing(self, gvk)))

    def run(
        self,
        ref: ObjectRef,
        *objects: tuple[str, ObjectKey],
        why: str = "",
        coverage: Coverage = COMPLETE,
        record: CreationRecord | None = None,
    ) -> None:
        found = used(*objects)
        self.uses.began(ref, found, record)
        self.uses.ended(ref, found, why=why, coverage=coverage, record=record)

    def wait(self) -> OtherUsers:
        others = self.uses.others(ONE, uses(THEME))
        self.uses.wait(ONE, [(uses(THEME), others)] if others else [])
        return others

    def runs(self) -> list[str]:
        found = [f"{ref}: {why}" for ref, why in self.requested]
        self.requested.clear()
        return found


@dataclass
class Existing:
    """An informer."""

    bed: Bed
    gvk: GVK

    def unknown(self) -> Unknown | None:
        return None if self.bed.listed else Unknown(self.gvk, "b", "forbidden", 0.0)

    def all_keys(self) -> list[ObjectKey]:
        return [ref.key for ref in self.bed.keys[self.gvk]]

    def summary(self, key: ObjectKey) -> Any:
        return next(SimpleNamespace(uid=ref.uid) for ref in self.bed.keys[self.gvk] if ref.key == key)


FREE = "Shop ns/one: no other resource uses an object any more"
ASKED = "the objects that the resource uses are unknown"


@pytest.fixture
def bed() -> Bed:
    return Bed()


def test_the_owner_runs_again_once_the_last_user_has_completed_a_run_without_the_object(bed: Bed) -> None:
    bed.run(ONE)
    bed.run(TWO, THEME)
    bed.run(OTHER_KIND, THEME)
    assert bed.wait().users == (TWO, OTHER_KIND)
    bed.run(TWO, THEME)
    bed.run(TWO)
    assert bed.runs() == []
    bed.run(OTHER_KIND, why="it failed")
    assert bed.runs() == []
    bed.run(OTHER_KIND)
    assert bed.runs() == [FREE]
    assert not bed.wait()


def test_a_resource_whose_uses_are_unknown_runs_once_and_the_owner_after_all_of_them(bed: Bed) -> None:
    bed.run(ONE)
    assert bed.wait().unknown == ((TWO, ""), (OTHER_KIND, ""))
    assert sorted(bed.runs()) == [f"Cache ns/one: {ASKED}", f"Shop ns/two: {ASKED}"]
    assert (bed.uses.is_awaited(TWO), bed.uses.is_awaited(ONE)) == (True, False)
    bed.run(TWO, why="it failed")
    bed.wait()
    bed.run(OTHER_KIND)
    assert bed.runs() == []
    bed.run(TWO)
    assert bed.runs() == [FREE]


def test_a_user_that_ends_its_run_while_an_object_is_examined_lets_the_owner_run_again(bed: Bed) -> None:
    for ref in (ONE, OTHER_KIND):
        bed.run(ref)
    bed.run(TWO, THEME)
    others = bed.uses.others(ONE, uses(THEME))
    bed.run(TWO)
    bed.uses.wait(ONE, [(uses(THEME), others)])
    assert bed.runs() == [FREE]


@pytest.mark.parametrize(("why", "requested"), [("it failed", [FREE]), ("", [])])
def test_a_complete_run_of_the_owner_examines_its_objects_itself(bed: Bed, why: str, requested: list[str]) -> None:
    for ref in (ONE, OTHER_KIND):
        bed.run(ref)
    bed.run(TWO, THEME)
    bed.wait()
    bed.listed = False
    bed.run(TWO)
    bed.listed = True
    bed.run(ONE, why=why)
    assert bed.runs() == requested


def test_a_resource_that_is_gone_uses_nothing_and_one_that_replaces_it_is_unknown(bed: Bed) -> None:
    for ref in (ONE, TWO, OTHER_KIND):
        bed.run(ref)
    bed.run(TWO, THEME)
    bed.wait()
    bed.keys[SHOP] = [ONE, ObjectRef(SHOP, TWO.key, "another")]
    assert bed.wait().unknown == ((TWO, ""),)
    bed.runs()
    bed.keys[SHOP] = [ONE]
    bed.uses.forget(SHOP, TWO.key)
    assert bed.runs() == [FREE]


def test_a_run_whose_resource_is_gone_leaves_no_uses(bed: Bed) -> None:
    running = used(THEME)
    bed.uses.began(TWO, running)
    bed.uses.forget(SHOP, TWO.key)
    bed.uses.ended(TWO, running, why="", coverage=COMPLETE)
    bed.run(ONE)
    bed.run(OTHER_KIND)
    assert bed.uses.others(ONE, uses(THEME)).unknown == ((TWO, ""),)


def test_the_uses_of_an_attempt_that_an_error_ended_count_until_the_next_complete_run(bed: Bed) -> None:
    for ref in (ONE, TWO, OTHER_KIND):
        bed.run(ref)
    bed.uses.began(TWO, used(THEME))
    bed.uses.began(TWO, used())
    assert bed.uses.others(ONE, uses(THEME)).users == (TWO,)
    bed.run(TWO)
    assert not bed.uses.others(ONE, uses(THEME))


def test_while_not_all_resources_are_listed_an_object_stays(bed: Bed) -> None:
    for ref in (ONE, TWO, OTHER_KIND):
        bed.run(ref)
    bed.listed = False
    found = bed.wait()
    assert found.is_unknown
    assert "the objects of the kind Shop in the namespace b are unknown: forbidden" in str(found)
    bed.uses.reconsider()
    assert bed.runs() == []
    bed.listed = True
    bed.uses.reconsider()
    assert bed.runs() == [FREE]


def test_a_restart_changes_nothing_while_a_resource_does_not_reach_the_task_that_used_the_object(bed: Bed) -> None:
    record = CreationRecord()
    for ref in (ONE, OTHER_KIND):
        bed.run(ref)
    bed.run(TWO, THEME, record=record)
    bed.run(TWO, coverage=omitting("x"), record=record)
    assert bed.wait().users == (TWO,)
    bed = Bed()  # the next process
    record = CreationRecord.parse(record.spell())
    for ref in (ONE, OTHER_KIND):
        bed.run(ref)
    assert bed.wait().unknown == ((TWO, ""),)
    bed.run(TWO, coverage=omitting("x"), record=record)
    assert bed.wait().users == (TWO,)
    bed.run(TWO, record=record)
    assert not bed.wait()


async def test_requests_wait_while_an_object_that_they_concern_is_deleted() -> None:
    gate, passed = DeletionGate(), list[str]()

    async def request(name: str, plural: str, key: ObjectKey) -> None:
        await gate.wait(plural, key)
        passed.append(name)

    async with asyncio.TaskGroup() as group:
        with gate.deleting(*THEME):
            for name, plural, key in (
                ("object", *THEME),
                ("list", "configmaps", ObjectKey("ns", "")),
                ("list of all", "configmaps", ObjectKey("", "")),
                ("other name", "configmaps", ObjectKey("ns", "other")),
                ("other kind", "secrets", THEME[1]),
                ("other namespace", "configmaps", ObjectKey("b", "")),
            ):
                group.create_task(request(name, plural, key))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert passed == ["other name", "other kind", "other namespace"]
    assert set(passed[3:]) == {"object", "list", "list of all"}
