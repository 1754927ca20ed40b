"""Events are best effort: which API they are of, how often, and what becomes of refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runner.errors import ApiUnavailableError, ForbiddenError, NotFoundError
from runner.events import Events, Occurrence, Reference
from runner.objects import GVK, Object, ObjectKey

THING = Reference(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("ns", "mc"), "uid-mc")
OCCURRENCE = Occurrence(THING, None, "Warning", "DependentChangedAgain", "SlowedDown", "spec.replicas is changed")


class Server:
    """Takes events under some paths."""

    def __init__(self, *errors: tuple[str, Exception]) -> None:
        self.errors = dict(errors)
        self.taken: list[tuple[str, Any]] = []
        self.now = 0.0

    async def request(self, method: str, path: str, *, body: object) -> Object:
        assert method == "POST"
        for prefix, error in self.errors.items():
            if path.startswith(prefix):
                raise error
        self.taken.append((path, body))
        return {}

    def events(self) -> Events:
        return Events(self, "pod-1", lambda: self.now)


async def test_an_event_stands_in_its_objects_namespace_and_says_what_happened() -> None:
    server = Server()
    await server.events().record(OCCURRENCE)
    ((path, body),) = server.taken
    assert path == "/apis/events.k8s.io/v1/namespaces/ns/events"
    assert (body["note"], body["type"], body["regarding"]["uid"]) == ("spec.replicas is changed", "Warning", "uid-mc")
    assert "related" not in body


async def test_one_about_a_cluster_scoped_object_stands_in_default() -> None:
    server = Server()
    about = replace(THING, key=ObjectKey("", "mc"))
    await server.events().record(replace(OCCURRENCE, regarding=about, related=THING))
    ((path, body),) = server.taken
    assert path.endswith("/namespaces/default/events")
    assert "namespace" not in body["regarding"]
    assert body["related"]["name"] == "mc"


@pytest.mark.parametrize("error", [ForbiddenError("no", status=403), NotFoundError("no", status=404)], ids=repr)
async def test_where_only_the_core_group_is_granted_events_are_of_it(error: Exception) -> None:
    server = Server(("/apis/events", error))
    events = server.events()
    await events.record(OCCURRENCE)
    await events.record(replace(OCCURRENCE, note="more"))
    assert [path for path, _ in server.taken] == ["/api/v1/namespaces/ns/events"] * 2
    assert server.taken[0][1]["message"] == "spec.replicas is changed"


async def test_a_missing_right_is_told_once_and_stops_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    refused = ForbiddenError("events is forbidden", status=403)
    events = Server(("/", refused)).events()
    for number in range(3):
        await events.record(replace(OCCURRENCE, note=str(number)))
    said = capsys.readouterr()
    assert (said.out + said.err).count("resources: [events]") == 1


async def test_an_api_server_that_is_away_stops_nothing() -> None:
    await Server(("/", ApiUnavailableError("away"))).events().record(OCCURRENCE)


async def test_the_same_is_told_once_in_ten_minutes() -> None:
    server = Server()
    events = server.events()
    for now in (0.0, 1.0, 599.0, 601.0):
        server.now = now
        await events.record(OCCURRENCE)
    assert len(server.taken) == 2


async def test_all_objects_together_have_a_budget() -> None:
    server = Server()
    events = server.events()
    for number in range(200):
        await events.record(replace(OCCURRENCE, regarding=replace(THING, uid=str(number))))
    assert len(server.taken) == 50
    server.now = 10.0
    for number in range(200, 300):
        await events.record(replace(OCCURRENCE, regarding=replace(THING, uid=str(number))))
    assert len(server.taken) == 60


async def test_long_names_and_notes_are_cut_to_what_the_api_takes() -> None:
    server = Server()
    about = replace(THING, key=ObjectKey("ns", "x" * 253))
    await server.events().record(replace(OCCURRENCE, regarding=about, note="y" * 5000))
    ((_, body),) = server.taken
    assert len(body["metadata"]["name"]) <= 253
    assert len(body["note"]) <= 1024
