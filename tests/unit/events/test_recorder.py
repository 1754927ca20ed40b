"""Events are best effort: which API they are of, how often, and what becomes of refusals; in virtual time."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from runner.base.events import bodies
from runner.base.events.bodies import ApiEvent, name_of
from runner.base.events.recorder import EventRecorder
from runner.base.meters import Meters
from runner.values.errors import ApiError, ApiUnavailableError, ForbiddenError, NamespaceTerminatingError, NotFoundError
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef
from tests.kit.virtual_time import virtually

Scenario = Callable[[EventRecorder], Awaitable[None]]
THING = ObjectRef(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("ns", "mc"), "uid-mc")
OCCURRENCE = ApiEvent(THING, None, "Warning", "RunFailed", "Run", "no such image")
FORBIDDEN = ForbiddenError("events is forbidden", status=403)
ABSENT = NotFoundError("no", status=404)


class Server:
    """Takes events under some paths, and keeps them as the API server would."""

    def __init__(self, errors: dict[str, Exception] | None = None) -> None:
        self.errors = errors or {}
        """By method and the beginning of the path."""
        self.calls: list[str] = []
        self.kept: dict[str, dict[str, Any]] = {}
        self.dropped: dict[Any, int] = {}

    async def request(self, method: str, path: str, *, body: object, content_type: str = "") -> Object:
        self.calls.append(f"{method} {path}")
        for prefix, error in self.errors.items():
            if f"{method} {path}".startswith(prefix):
                raise error
        assert isinstance(body, dict)
        if method == "POST":
            assert body["metadata"]["name"] not in self.kept
            self.kept[body["metadata"]["name"]] = body
        else:
            assert (method, content_type) == ("PATCH", "application/merge-patch+json")
            self.kept[path.rpartition("/")[2]].update(body)
        return {}

    def run(self, scenario: Scenario) -> list[dict[str, Any]]:
        """Record occurrences; return the stored Events, in the order of names, as the API lists it."""

        async def whole() -> None:
            events = EventRecorder(self, "pod-1", asyncio.get_running_loop().time, Meters())
            following = asyncio.create_task(events.follow())
            await scenario(events)
            await events.close(following, 1.0)
            self.dropped = {why: count for why, count in events.dropped.items() if count}

        virtually(whole())
        return [self.kept[name] for name in sorted(self.kept)]


def _recording(*occurrences: ApiEvent, every: float = 0.0) -> Scenario:
    async def scenario(events: EventRecorder) -> None:
        for occurrence in occurrences:
            events.record(occurrence)
            if every:
                await asyncio.sleep(every)

    return scenario


def test_an_event_is_created_in_the_namespace_of_its_object_with_note_and_type() -> None:
    server = Server()
    (kept,) = server.run(_recording(OCCURRENCE))
    assert server.calls == ["POST /apis/events.k8s.io/v1/namespaces/ns/events"]
    assert (kept["note"], kept["type"], kept["regarding"]["uid"]) == ("no such image", "Warning", "uid-mc")
    assert "related" not in kept
    assert "series" not in kept


def test_an_event_of_a_cluster_scoped_object_is_created_in_default() -> None:
    server = Server()
    about = replace(THING, key=ObjectKey("", "mc"))
    (kept,) = server.run(_recording(replace(OCCURRENCE, regarding=about, related=THING)))
    assert server.calls == ["POST /apis/events.k8s.io/v1/namespaces/default/events"]
    assert "namespace" not in kept["regarding"]
    assert kept["related"]["name"] == "mc"


@pytest.mark.parametrize("error", [FORBIDDEN, ABSENT], ids=repr)
def test_events_use_the_core_group_if_only_that_is_permitted(error: Exception) -> None:
    server = Server({"POST /apis/events": error})
    kept = server.run(_recording(OCCURRENCE, replace(OCCURRENCE, note="more"), OCCURRENCE))
    path = "/api/v1/namespaces/ns/events"
    tries = [call for call in server.calls if call.startswith("POST /apis")]
    assert len(tries) == 1, "it is found out once"
    assert server.calls[1:3] == [f"POST {path}"] * 2
    assert [(each["message"], each["count"]) for each in kept] == [("no such image", 2), ("more", 1)]


def test_a_missing_permission_is_logged_once_and_retried_after_ten_minutes(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server({"POST": FORBIDDEN})
    occurrences = [replace(OCCURRENCE, note=str(number)) for number in range(20)]
    assert server.run(_recording(*occurrences, every=59)) == []
    assert len(server.calls) == 2 * 2, "one of each API, and once more after ten minutes"
    assert server.dropped == {"refused": 20}
    said = capsys.readouterr()
    assert (said.out + said.err).count("resources: [events]") == 1


def test_a_namespace_that_is_being_deleted_lacks_no_right_and_takes_events_once_it_is_created_again() -> None:
    server = Server({"POST /apis": NamespaceTerminatingError("being terminated", status=403), "POST /api/": FORBIDDEN})

    async def scenario(events: EventRecorder) -> None:
        events.record(OCCURRENCE)
        await asyncio.sleep(1)
        server.errors.clear()
        events.record(OCCURRENCE)

    with capture_logs() as logs:
        assert [kept["note"] for kept in server.run(scenario)] == ["no such image"]
    assert server.calls == ["POST /apis/events.k8s.io/v1/namespaces/ns/events"] * 2
    assert [line for line in logs if line["log_level"] == "warning"] == []


def test_after_the_clock_was_corrected_events_have_the_new_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(events: EventRecorder) -> None:
        clock = asyncio.get_running_loop().time
        monkeypatch.setattr(time, "time", lambda: 1_800_000_000 + clock())
        events.record(OCCURRENCE)

    (kept,) = Server().run(scenario)
    assert kept["eventTime"].startswith("2027-01-15T")


def test_an_api_server_that_is_away_stops_nothing() -> None:
    server = Server({"POST": ApiUnavailableError("away")})
    assert server.run(_recording(OCCURRENCE)) == []
    assert server.dropped == {"failed": 1}
    server.errors.clear()
    assert len(server.run(_recording(OCCURRENCE))) == 1


def test_a_repeated_event_is_one_event_with_a_count() -> None:
    server = Server()
    (kept,) = server.run(_recording(*[OCCURRENCE] * 100, every=1))
    assert kept["series"]["count"] >= 90
    assert len(server.calls) == 1 + 1 + 3, "created, the first repetition, and every half minute"


def test_events_with_the_same_identity_are_counted_although_their_notes_differ() -> None:
    notes = [replace(OCCURRENCE, note=f"after {number} s", alike="1 ok") for number in range(3)]
    (kept,) = Server().run(_recording(*notes, every=40))
    assert (kept["note"], kept["series"]["count"]) == ("after 0 s", 3)


def test_after_ten_minutes_a_repetition_is_a_new_event() -> None:
    assert len(Server().run(_recording(OCCURRENCE, OCCURRENCE, every=601))) == 2


def test_an_expired_event_is_created_again() -> None:
    server = Server({"PATCH": ABSENT})
    server.run(_recording(OCCURRENCE, OCCURRENCE, OCCURRENCE, every=1))
    assert [call.split()[0] for call in server.calls] == ["POST", "PATCH", "POST"]


def test_without_permission_to_patch_each_event_is_created_once(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server({"PATCH": FORBIDDEN})
    (kept,) = server.run(_recording(*[OCCURRENCE] * 100, every=1))
    assert "series" not in kept
    assert len(server.calls) == 2
    said = capsys.readouterr()
    assert (said.out + said.err).count("verbs: [create, patch]") == 1


def test_an_object_has_a_budget() -> None:
    server = Server()
    many = [replace(OCCURRENCE, note=str(number)) for number in range(100)]
    assert len(server.run(_recording(*many))) == 30
    assert server.dropped == {"too many": 70}


def test_all_objects_together_have_a_budget_with_a_part_for_warnings() -> None:
    server = Server()

    def of_many(kind: str) -> list[ApiEvent]:
        abouts = [replace(THING, uid=f"{kind}{number}") for number in range(200)]
        return [replace(OCCURRENCE, regarding=about, type=kind) for about in abouts]  # type: ignore[arg-type]

    kept = server.run(_recording(*of_many("Normal"), *of_many("Warning")))
    assert [each["type"] for each in kept] == ["Normal"] * 75 + ["Warning"] * 25
    assert server.dropped == {"too many": 300}


def test_recording_does_not_wait_for_a_slow_api_server() -> None:
    class Slow(Server):
        async def request(self, method: str, path: str, *, body: object, content_type: str = "") -> Object:
            await asyncio.sleep(3600)
            return await super().request(method, path, body=body, content_type=content_type)

    server = Slow()
    assert server.run(_recording(*[OCCURRENCE] * 5000)) == []
    assert server.dropped == {"too many": 4000}


@pytest.mark.parametrize("error", [ApiError("broken", status=500), ABSENT], ids=repr)
def test_an_event_that_could_not_be_created_is_not_patched(error: Exception) -> None:
    server = Server({"POST": error})
    server.run(_recording(OCCURRENCE, OCCURRENCE, every=1))
    assert not [call for call in server.calls if call.startswith("PATCH")]


def test_long_names_and_notes_are_cut_to_what_the_api_takes() -> None:
    about = replace(THING, key=ObjectKey("ns", "x" * 253))
    (kept,) = Server().run(_recording(replace(OCCURRENCE, regarding=about, note="ü" * 5000)))
    assert len(kept["metadata"]["name"]) <= 253
    assert len(kept["note"].encode()) <= 1024
    assert kept["note"].endswith("ü…")


def test_a_refusal_in_one_namespace_counts_there_alone_and_is_logged_for_each() -> None:
    there = replace(OCCURRENCE, regarding=replace(THING, key=ObjectKey("b", "mc"), uid="uid-there"))
    server = Server(
        {
            "PATCH /apis/events.k8s.io/v1/namespaces/ns": FORBIDDEN,
            "POST /apis/events.k8s.io/v1/namespaces/b": FORBIDDEN,
            "PATCH /apis/events.k8s.io/v1/namespaces/b": FORBIDDEN,
        }
    )
    with capture_logs() as logs:
        kept = server.run(_recording(*[OCCURRENCE, there] * 3, every=150.0))
    counts = {each["metadata"]["namespace"]: each.get("count") or "series" in each for each in kept}
    assert counts["ns"] is False
    assert counts["b"]
    server = Server({"POST": FORBIDDEN})
    with capture_logs() as more:
        server.run(_recording(OCCURRENCE, there))
    warned = [each["event"].partition(",")[0].partition(";")[0] for each in (*logs, *more[:2])]
    assert warned == ["Cannot patch Events", "Cannot write Events", "Cannot write Events"]


SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names"""
EVENT = ApiEvent(
    ObjectRef(GVK("example.com", "v1", "Thing"), ObjectKey("ns", "a"), "uid"), None, "Normal", "Ran", "Run", "note"
)


@pytest.mark.parametrize("name", ["a", "b" * 253, f"{'c' * 199}-later", f"{'d' * 199}.later", f"{'e' * 197}---later"])
def test_the_name_of_an_event_is_valid_wherever_the_name_of_its_object_is_cut(name: str) -> None:
    regarding = replace(EVENT.regarding, key=ObjectKey("ns", name))
    made = name_of(replace(EVENT, regarding=regarding), 1_700_000_000_000_000_000)
    assert SUBDOMAIN.fullmatch(made)
    assert len(made) <= 253


def test_control_characters_of_a_note_are_visible() -> None:
    assert bodies._bounded("\x1b]0;pwn\x07") == "\\x1b]0;pwn\\x07"
