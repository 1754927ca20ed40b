"""What becomes of a status write while the API server is not itself; against a client whose answers are given."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from runner.app.features import OWN_STATUS
from runner.core.kube.client import Client
from runner.core.kube.discovery import ApiResource
from runner.core.status import report
from runner.core.status.kept import SEVERAL, Breaker
from runner.core.status.writer import StatusWriter
from runner.values.errors import (
    ApiError,
    ApiUnavailableError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ServerError,
    ThrottledError,
    UnauthorizedError,
)
from runner.values.lease_guard import Leadership, LeaseGuard
from runner.values.objects import GVK, JSONPatch, Object, ObjectKey
from tests.kit.wait import patience

pytestmark = pytest.mark.virtual_time

GVK_ = GVK("cache.example.com", "v1alpha1", "Memcached")
RESOURCE = ApiResource(GVK_, "memcacheds", namespaced=True, verbs=frozenset(), subresources=frozenset({"status"}))


class _Bed:
    """A writer, and the names of the objects whose status it reports as refused."""

    def __init__(self, picky: _Picky, *, health: bool = False, leadership: Leadership | None = None) -> None:
        self.refused: list[str] = []
        client, leads = cast("Client", picky), leadership or Leadership()
        self.writer = StatusWriter(client, GVK_, leads, self._note, OWN_STATUS, enabled=True, health=health)

    def _note(self, obj: Object, _why: str) -> None:
        self.refused.append(obj["metadata"]["name"])

    async def write(self, *names: str, why: str = "why", **more: Any) -> None:
        for name in names:
            obj = _object(name, **more)
            await self.writer.write(RESOURCE, obj, report.observed(obj, report.unusable(why)), LeaseGuard(lambda: True))


@pytest.mark.parametrize("is_followed", [True, False], ids=["while it works", "at the end"])
@pytest.mark.parametrize(
    "error",
    [
        ApiUnavailableError("away"),
        ServerError("broken", status=500),
        ThrottledError("busy", status=429),
        UnauthorizedError("the token has expired", status=401),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_outage_holds_no_caller_and_the_kept_status_is_written_after_it(
    error: Exception, *, is_followed: bool
) -> None:
    picky = _Picky(error, "one", "other")
    bed = _Bed(picky)
    following = asyncio.create_task(bed.writer.follow() if is_followed else asyncio.sleep(0))
    async with asyncio.timeout(0.1):
        await bed.write("one", "other", "good")
    assert picky.written == ["good"]
    ending = None if is_followed else asyncio.create_task(bed.writer.drain())
    await asyncio.sleep(60)
    assert 5 < picky.attempts.count("one") < 60
    picky.refused.remove("other")
    await asyncio.sleep(6)
    picky.refused.remove("one")
    await asyncio.sleep(6)
    assert picky.written == ["good", "other", "one"]
    assert ending is None or ending.done()
    following.cancel()


async def test_a_replica_that_ends_writes_the_status_that_an_outage_prevented() -> None:
    class Ending(Leadership):
        """Begins no other work."""

        @contextmanager
        def hold(self, *, ends: bool = False) -> Iterator[LeaseGuard | None]:
            yield LeaseGuard(lambda: True) if ends else None

    bed = _Bed(picky := _Picky(ApiUnavailableError("away"), "one", "other"), leadership=Ending())
    await bed.write("one", "other")
    ending = asyncio.create_task(bed.writer.drain())
    await asyncio.sleep(2)
    picky.refused.clear()
    async with asyncio.timeout(patience()):
        await ending
    assert sorted(picky.written) == ["one", "other"]


class _Picky:
    """Refuses the status of some objects."""

    def __init__(self, error: Exception, *refused: str) -> None:
        self.refused = set(refused)
        self.attempts: list[str] = []
        self.written: list[str] = []
        self._error = error

    async def patch(self, _: ApiResource, key: ObjectKey, patch: JSONPatch, **__: Any) -> Object:
        self.attempts.append(key.name)
        if key.name in self.refused:
            raise self._error
        self.written.append(key.name)
        return {"status": patch[-1]["value"]}

    async def get(self, _: ApiResource, key: ObjectKey) -> Object:
        return _object(key.name, namespace=key.namespace)


def _object(name: str, generation: int = 1, namespace: str = "ns", **more: Any) -> Object:
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "generation": generation}
    return {"metadata": meta, **more}


WEBHOOK = ForbiddenError('admission webhook "x.example.com" denied the request: no', status=403)
RULE = InvalidError("Thing is invalid: status: Invalid value: no", status=422)
CODE = ApiError('admission webhook "x.example.com" denied the request: no', status=400)


@pytest.mark.parametrize("error", [WEBHOOK, RULE, CODE], ids=["webhook", "rule", "code"])
async def test_a_refused_object_does_not_affect_the_others_and_is_retried_with_backoff(error: ApiError) -> None:
    bed = _Bed(picky := _Picky(error, "hostile"))
    for _ in range(20):
        await bed.write("hostile", "good")
    assert picky.written == ["good"] * 20
    assert picky.attempts.count("hostile") == 1
    await asyncio.sleep(11)
    await bed.write("hostile", "hostile")
    assert picky.attempts.count("hostile") == 2
    await bed.write("hostile", generation=2)
    assert picky.attempts.count("hostile") == 3
    picky.refused.clear()
    await asyncio.sleep(600)
    await bed.write("hostile", "hostile")
    assert picky.written[20:] == ["hostile", "hostile"]


async def test_several_refused_objects_pause_their_namespace_only_if_no_other_write_succeeds() -> None:
    hostile = [f"hostile-{number}" for number in range(8)]
    bed = _Bed(picky := _Picky(RULE, *hostile))
    for name in hostile:
        await bed.write(name, "good")
    assert picky.written == ["good"] * 8
    picky.refused.add("good")
    for name in hostile:
        await bed.write(name, generation=2)
    assert len(picky.attempts) == 16 + 5
    picky.refused.clear()
    await bed.write("good")
    assert len(picky.attempts) == 16 + 5
    await asyncio.sleep(11)
    await bed.write("good", "other")
    assert picky.written[8:] == ["good", "other"]


async def test_kstatus_conditions_that_are_refused_for_an_object_are_written_for_others() -> None:
    written: dict[str, str] = {}

    class Unhealthy(_Picky):
        async def patch(self, _: ApiResource, key: ObjectKey, patch: JSONPatch, **__: Any) -> Object:
            text = str(patch)
            if key.name == "hostile" and "Stalled" in text:
                raise RULE
            written[key.name] = text
            return await super().patch(_, key, patch, **__)

    await _Bed(Unhealthy(RULE), health=True).write("hostile", "good")
    assert "Stalled" not in written["hostile"]
    assert "Failure" in written["hostile"]
    assert "Stalled" in written["good"]


async def test_kstatus_conditions_that_are_refused_for_several_objects_are_tried_again_after_an_hour() -> None:
    written: list[bool] = []

    class Unhealthy(_Picky):
        is_mended = False

        async def patch(self, _: ApiResource, key: ObjectKey, patch: JSONPatch, **__: Any) -> Object:
            if "Stalled" in str(patch) and not self.is_mended:
                raise RULE
            written.append("Stalled" in str(patch))
            return await super().patch(_, key, patch, **__)

    bed = _Bed(unhealthy := Unhealthy(RULE), health=True)
    with capture_logs() as logs:
        await bed.write(*(f"object-{number}" for number in range(6)))
    (warning,) = [line for line in logs if "schema refuses" in line["event"]]
    assert warning["tried_again_after_seconds"] == 3600
    unhealthy.is_mended = True
    await asyncio.sleep(1800)
    await bed.write("later")
    assert not any(written)
    await asyncio.sleep(1801)
    await bed.write("after an hour")
    assert written[-1:] == [True]


@pytest.mark.parametrize("error", [ConflictError("changed", status=409), NotFoundError("lag", status=404)], ids=repr)
async def test_conflicts_omit_no_conditions_and_hold_no_worker_if_they_do_not_end(error: ApiError) -> None:
    class Conflicting(_Picky):
        async def patch(self, _: ApiResource, key: ObjectKey, patch: JSONPatch, **__: Any) -> Object:
            if self.attempts.count("one") == 3:
                self.refused.discard("one")
            written = await super().patch(_, key, patch, **__)
            assert "Stalled" in str(patch)
            return written

    bed = _Bed(picky := Conflicting(error, "one", "other"), health=True)
    await bed.write("one", "other")
    assert picky.written == ["one"]
    assert picky.attempts.count("other") == 6
    assert bed.refused == ["other"]


async def test_a_client_that_writes_the_object_all_the_time_prevents_no_status_and_is_no_refusal() -> None:
    class Busy(_Picky):
        async def patch(self, _: ApiResource, key: ObjectKey, patch: JSONPatch, **__: Any) -> Object:
            if len(self.attempts) == 30:
                self.refused.clear()
            return await super().patch(_, key, patch, **__)

        async def get(self, _: ApiResource, key: ObjectKey) -> Object:
            obj = await super().get(_, key)
            return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(len(self.attempts))}}

    bed = _Bed(busy := Busy(ConflictError("changed", status=409), "one"), health=True)
    async with asyncio.timeout(patience()):
        await bed.write("one")
    assert (busy.written, len(busy.attempts), bed.refused) == (["one"], 31, [])


async def test_a_refused_write_is_repeated_as_the_kind_is_served_now() -> None:
    picky = _Picky(NotFoundError("no such subresource", status=404), "one")
    bed = _Bed(picky)
    await bed.write("one")
    tries = len(picky.attempts)
    following = asyncio.create_task(bed.writer.follow())
    obj, without_status = _object("one", generation=2), replace(RESOURCE, subresources=frozenset())
    with capture_logs() as logs:
        await bed.writer.write(without_status, obj, report.unusable("why"), LeaseGuard(lambda: True))
        await asyncio.sleep(3600)
    following.cancel()
    assert len(picky.attempts) == tries
    assert [line["event"].partition(":")[0] for line in logs] == ["Status is not written"]


async def test_a_status_of_another_shape_is_replaced_with_one_log_line() -> None:
    class Storing(_Picky):
        async def patch(self, _: ApiResource, key: ObjectKey, patch: JSONPatch, **__: Any) -> Object:
            await super().patch(_, key, patch, **__)
            return {"status": {"conditions": patch[-1]["value"], "observedGeneration": 1}}

    bed = _Bed(picky := Storing(RULE))
    with capture_logs() as logs:
        await bed.write("one", "one", "other", status={"conditions": [None]})
    assert picky.written == ["one", "one", "other"]
    assert [line["event"] for line in logs if "why" in line] == [
        "Replacing parts of the status that another client wrote"
    ]


async def test_refused_writes_are_dropped_once_the_schema_turns_out_to_drop_the_conditions() -> None:
    class Dropping(_Picky):
        async def patch(self, _: ApiResource, key: ObjectKey, patch: JSONPatch, **__: Any) -> Object:
            await super().patch(_, key, patch, **__)
            return {"status": {}}

    bed = _Bed(picky := Dropping(RULE, "hostile"))
    following = asyncio.create_task(bed.writer.follow())
    await bed.write("hostile", "good")
    await asyncio.sleep(3600)
    assert picky.attempts == ["hostile", "good"]
    following.cancel()


async def test_a_change_during_the_repetition_of_a_refused_write_is_written_too() -> None:
    class Slow(_Picky):
        async def patch(self, _: ApiResource, key: ObjectKey, patch: JSONPatch, **__: Any) -> Object:
            if not self.refused:
                await asyncio.sleep(5)
            texts.append(str(patch))
            return await super().patch(_, key, patch, **__)

    texts: list[str] = []

    bed = _Bed(picky := Slow(RULE, "one"))
    following = asyncio.create_task(bed.writer.follow())
    await bed.write("one", why="first")
    picky.refused.clear()
    await asyncio.sleep(3)
    await bed.write("one", why="second")
    await asyncio.sleep(60)
    assert picky.written == ["one", "one"]
    assert "second" in texts[-1]
    assert "first" not in texts[-1]
    following.cancel()


@pytest.mark.lengthy
async def test_a_missing_right_delays_no_status_of_another_namespace() -> None:
    denied = 'User "op" cannot patch resource "things/status" in API group "g" in the namespace "b"'
    bed = _Bed(picky := _Picky(ForbiddenError(f"things is forbidden: {denied}", status=403), "in-b", "next-in-b"))

    following = asyncio.create_task(bed.writer.follow())
    for number in range(100):
        await bed.write("in-b", "next-in-b", namespace="b")
        await bed.write(f"in-a-{number}", namespace="a")
        assert picky.written[-1] == f"in-a-{number}"
        await asyncio.sleep(1)
    assert 5 < len(picky.attempts) - 100 < 20
    assert bed.refused, "an Event reports it"
    assert len(bed.refused) == len(set(bed.refused)), "once for each object"
    picky.refused.clear()
    await asyncio.sleep(1200)  # two pauses of at most 600 s
    assert {"in-b", "next-in-b"} <= set(picky.written)
    following.cancel()


@pytest.mark.parametrize(
    ("uids", "lacks_right", "pauses"),
    [
        (["a"] * 2 * SEVERAL, False, 0),
        ([*"abcdefgh"][: SEVERAL - 1], False, 0),
        ([*"abcdefgh"][:SEVERAL], False, 1),
        ([*"abcdefgh"][: SEVERAL + 2], False, 3),
        (["a"], True, 1),
        (["a", "a"], True, 2),
    ],
)
def test_several_objects_or_a_missing_right_pause_a_namespace(
    uids: list[str], pauses: int, *, lacks_right: bool
) -> None:
    breaker = Breaker()
    in_a_row = [breaker.refused(uid, 100.0, lacks_right=lacks_right) for uid in uids]
    assert in_a_row[-1] == breaker.refusals == pauses
    assert (breaker.until > 100.0) is (pauses > 0)
