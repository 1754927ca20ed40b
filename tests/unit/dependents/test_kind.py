"""Reads of dependents: how many, when, and what follows a refused one. In virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Self, cast

import pytest

from runner.core.dependents.kind import STATUS_PERIOD, DependentKind
from runner.core.dependents.ledger import Ledger
from runner.core.dependents.notification import Notification
from runner.core.kube.client import Client
from runner.core.kube.discovery import ApiResource
from runner.core.kube.health import HealthState
from runner.core.kube.watch_events import Applied
from runner.values.errors import ApiUnavailableError, ForbiddenError, ServerError
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef

pytestmark = pytest.mark.virtual_time


OWNER = ObjectRef(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("ns", "mc"))
DEPLOYMENT = GVK("apps", "v1", "Deployment")
RESOURCE = ApiResource(
    DEPLOYMENT, "deployments", namespaced=True, verbs=frozenset({"get"}), subresources=frozenset({"status"})
)


class Server:
    """The API server: objects by name, reads that take a while and may fail."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.reads: list[tuple[float, str]] = []
        self.error: Exception | None = None
        self.broken = ""
        """Name of an object that the API server cannot show."""
        self.takes = 0.005

    def write(self, name: str, ready: int, namespace: str = "ns") -> Object:
        before = self.objects.get(name, {"metadata": {"resourceVersion": "0"}})
        version = str(int(before["metadata"]["resourceVersion"]) + 1)
        meta = {"namespace": namespace, "name": name, "uid": name, "resourceVersion": version, "generation": 1}
        status = {"phase": str(ready)}
        self.objects[name] = {"apiVersion": "apps/v1", "kind": "Thing", "metadata": meta, "status": status}
        return self.objects[name]

    async def get(self, _: ApiResource, key: ObjectKey) -> Object:
        self.reads.append((asyncio.get_running_loop().time(), key.name))
        await asyncio.sleep(self.takes)
        if self.error is not None:
            raise self.error
        if key.name == self.broken:
            raise ServerError("GET deployments: cannot decode it", status=500)
        return self.objects[key.name]


class Watched:
    """A kind of dependents whose events a test sends."""

    def __init__(self) -> None:
        self.server = Server()
        self.notified: list[tuple[float, Notification]] = []
        ledger = Ledger(DEPLOYMENT, lambda _: "auto", uses_generation=True)
        client = cast("Client", self.server)
        self.kind = DependentKind(client, RESOURCE, lambda _: (OWNER,), (), ledger, self._notify, lambda _: None)

    def _notify(self, notification: Notification) -> None:
        self.notified.append((asyncio.get_running_loop().time(), notification))

    def event(self, name: str, ready: int, namespace: str = "ns") -> None:
        obj = self.server.write(name, ready, namespace)
        for notification in self.kind._take("", Applied({**obj, "status": None})):
            self._notify(notification)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.kind._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@pytest.mark.lengthy
async def test_a_status_is_read_at_once_and_then_once_in_half_a_second_and_its_last_state_is_seen() -> None:
    async with Watched() as watched:
        watched.event("web", 0)
        await asyncio.sleep(10)
        for number in range(1, 201):
            watched.event("web", number)
            await asyncio.sleep(0.01)
        await asyncio.sleep(10)
    times = [at for at, _ in watched.server.reads]
    assert times[1] == pytest.approx(10)
    assert len(times) <= 1 + 2 / STATUS_PERIOD + 2
    at, last = watched.notified[-1]
    assert last.state is not None
    assert last.state.version == "201"
    assert at < 10 + 2 + STATUS_PERIOD + 0.1


async def test_many_objects_that_change_together_are_read_one_after_another_once_each() -> None:
    async with Watched() as watched:
        for version in range(5):
            for number in range(200):
                watched.event(f"web-{number}", version)
            await asyncio.sleep(0.1)
        await asyncio.sleep(10)
    assert max(Counter(name for _, name in watched.server.reads).values()) <= 3
    assert {each.source.key.name for _, each in watched.notified} == {f"web-{number}" for number in range(200)}


async def test_an_outage_delays_a_read_and_loses_none() -> None:
    async with Watched() as watched:
        watched.event("web", 0)
        await asyncio.sleep(1)
        watched.server.error = ApiUnavailableError("down")
        watched.event("web", 1)
        await asyncio.sleep(60)
        assert not watched.notified
        watched.server.error = None
        await asyncio.sleep(60)
        assert [each.what for _, each in watched.notified] == ["changed: status"]


async def test_an_object_that_cannot_be_read_keeps_no_other_one_from_being_read() -> None:
    async with Watched() as watched:
        for name in ("web", "db", "broken", "cache"):
            watched.event(name, 0)
        await asyncio.sleep(1)
        watched.server.broken = "broken"
        for name in ("web", "db", "broken", "cache"):
            watched.event(name, 1)
        await asyncio.sleep(60)
        assert {each.source.key.name for _, each in watched.notified} == {"web", "db", "cache"}
        watched.server.broken = ""
        await asyncio.sleep(60)
        assert {each.source.key.name for _, each in watched.notified} == {"web", "db", "broken", "cache"}


@pytest.mark.lengthy
async def test_a_refused_read_is_logged_once_with_the_rule_and_repeated_seldom_until_it_is_allowed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with Watched() as watched:
        watched.server.error = ForbiddenError("GET deployments", status=403)
        for number in range(300):
            watched.event("web", number)
            await asyncio.sleep(1)
        assert len(watched.server.reads) <= 6
        assert not watched.notified
        watched.server.error = None
        await asyncio.sleep(61)
        watched.event("web", 1000)
        await asyncio.sleep(1)
        assert [each.what for _, each in watched.notified] == ["changed: status"] * 2
        log = capsys.readouterr().out
        assert log.count("Cannot read dependents") == 1
        assert "verb get on deployments.apps" in log
        watched.server.error = ForbiddenError("GET deployments", status=403)
        watched.event("elsewhere", 0, "other")
        await asyncio.sleep(61)
        assert capsys.readouterr().out.count("Cannot read dependents") == 1


async def test_the_health_of_a_dependent_is_known_after_its_read_and_unknown_while_reads_are_refused() -> None:
    async with Watched() as watched:
        told: list[object] = []
        watched.kind.followed = told.append

        def states() -> list[HealthState]:
            return [owned.health.state for owned in watched.kind.owned_by(OWNER)]

        watched.event("web", 0)
        assert states() == [HealthState.UNKNOWN]
        await asyncio.sleep(1)
        assert states() == [HealthState.READY]
        assert told == [(OWNER,), (OWNER,)]
        watched.server.error = ForbiddenError("GET deployments", status=403)
        watched.event("web", 1)
        await asyncio.sleep(1)
        assert states() == [HealthState.UNKNOWN]
        assert told[2:] == [(OWNER,), None]
        watched.server.error = None
        await asyncio.sleep(61)
        assert states() == [HealthState.READY]
        assert told[4:] == [(OWNER,)]
