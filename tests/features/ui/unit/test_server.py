"""The page's server, asked as browsers and others ask."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from runner.base.config import sources
from runner.base.monitoring.endpoints import Address
from runner.core.engine.job import Job, Outcome, RunResult, TaskFailure
from runner.core.engine.run_secrets import RunSecrets
from runner.core.masking.masker import MASK
from runner.core.proxy.identity import RunStats
from runner.core.queue import reasons
from runner.core.queue.reasons import ReconcileRequest
from runner.core.watches.watch import Role
from runner.features.rollout.fields import RolloutPolicy, Step
from runner.features.rollout.hooks import RolloutTable
from runner.features.rollout.member import Member
from runner.features.rollout.state import State
from runner.features.rollout.steps import Fleet
from runner.features.ui.journal import Journal
from runner.features.ui.objects import fields_of
from runner.features.ui.server import MOST_STREAMS, StatusPage, StreamTimings, name_of
from runner.features.ui.views import PAGE, OperatorInfo, Views
from runner.values.objects import GVK, ObjectKey
from tests.kit.page_values import AKind, condition, ended, start, views_of
from tests.kit.wait import patience, until
from tests.kit.watch_values import watch_value

QUICK = StreamTimings(interval=0.001)
KIND = "Memcached.v1alpha1.cache.example.com"
PATHS = ("/", "/page.js", "/page.css", "/api/overview", "/api/objects", "/api/queue", "/api/runs", "/events")


class Shown:
    """A page that is served, and what it looks at."""

    def __init__(
        self, kind: AKind, journal: Journal, page: StatusPage, url: str, session: aiohttp.ClientSession
    ) -> None:
        self.kind, self.journal, self.page, self.url, self._session = kind, journal, page, url, session
        self.port = int(url.rstrip("/").rpartition(":")[2])

    def ask(self, path: str, method: str = "GET", **given: Any) -> Any:
        return self._session.request(method, f"{self.url.rstrip('/')}{path}", **given)

    async def fetched(self, view: str, **query: str) -> Any:
        async with self.ask(f"/api/{view}", params=query) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()


@pytest.fixture
def shown(tmp_path: Path) -> Callable[..., Any]:
    """Serve a page while a block lasts."""

    @asynccontextmanager
    async def serve(pace: StreamTimings = QUICK, host: str = "127.0.0.1") -> AsyncIterator[Shown]:
        kind, journal = AKind(), Journal(lambda: 1_800_000_000.0)
        page = StatusPage(views_of(kind, journal, tmp_path), pace)
        url = await page.start(Address(host, 0))
        try:
            async with aiohttp.ClientSession() as session:
                yield Shown(kind, journal, page, url, session)
        finally:
            await page.close()

    return serve


@pytest.fixture
async def page(shown: Callable[..., Any]) -> AsyncIterator[Shown]:
    async with shown() as made:
        yield made


def fail_one(shown: Shown, make_job: Callable[..., Job], **changes: Any) -> Job:
    """Have a run fail."""
    job = make_job(content=Role("memcached", Path("/roles/memcached")), **changes)
    notes = shown.journal.start(job, ReconcileRequest(job.key, reasons.CHANGED, ("spec.size",), 0, 0, 1.5))
    notes.event(start("Deploy", 0, "/r/main.yml:7"))
    notes.event(ended("on_failed", 2, res={"msg": "no such image"}))
    failure = TaskFailure("Deploy", "no such image", "/r/main.yml:7")
    notes.end(RunResult(Outcome.FAILED, None, (failure,), "", None, 2.0), RunStats(calls=3))
    return job


@pytest.mark.virtual_time
async def test_the_secrets_and_failures_of_deleted_objects_are_forgotten_while_no_page_is_open(
    make_job: Callable[..., Job], tmp_path: Path
) -> None:
    kind, journal = AKind(), Journal(lambda: 0.0)
    fail_one(cast("Shown", Namespace(journal=journal)), make_job, key=ObjectKey("shop", "deleted"))
    following = asyncio.create_task(views_of(kind, journal, tmp_path).follow())
    await asyncio.sleep(61)
    following.cancel()
    assert (journal.secrets, journal.streaks) == ({}, {})


def succeed(shown: Shown, make_job: Callable[..., Job], **changes: Any) -> None:
    """Have a run succeed."""
    job = make_job(content=Role("memcached", Path("/roles/memcached")), **changes)
    notes = shown.journal.start(job, ReconcileRequest(job.key, reasons.CHANGED, (), 0, 0, 0.0))
    notes.end(RunResult(Outcome.SUCCEEDED, None, (), "", None, 2.0), RunStats())


@pytest.mark.parametrize("host", ["evil.example.com", "127.0.0.1.evil.example.com", "10.0.0.1:8000", "[", ""])
async def test_under_a_strange_name_nothing_is_answered(page: Shown, host: str) -> None:
    for path in PATHS:
        async with page.ask(path, headers={"Host": host}) as answer:
            assert answer.status in {400, 421}, path
            assert "Memcached" not in await answer.text()


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1234", "127.0.0.1:99", "[::1]:80"])
async def test_under_the_machines_own_names_it_answers_on_whatever_port(page: Shown, host: str) -> None:
    async with page.ask("/", headers={"Host": host}) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_the_page_accepts_only_get_requests(page: Shown, method: str) -> None:
    for path in PATHS:
        async with page.ask(path, method) as answer:
            assert answer.status == 405


async def test_nothing_but_its_own_files_runs_in_the_browser(page: Shown) -> None:
    for path in PATHS[:-1]:
        async with page.ask(path) as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
            assert "unsafe" not in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Cache-Control"] == "no-store"


def test_the_files_of_the_page_load_nothing_from_other_hosts_and_insert_no_markup() -> None:
    folder = resources.files("runner.features.ui") / "files"
    for name in ("index.html", "page.js", "page.css"):
        text = (folder / name).read_text(encoding="utf-8")
        assert not re.search(r"https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|url\(", text)
    assert not re.search(r"<script>|style=|\son\w+=", (folder / "index.html").read_text(encoding="utf-8"))


@pytest.mark.lengthy
async def test_objects_are_returned_in_pages(page: Shown) -> None:
    for number in range(5000):
        page.kind.informer.put(f"one-{number:04}", condition("Ready" if number % 10 else "Failure"))
    found = await page.fetched("objects")
    assert (found["total"], found["pages"], len(found["objects"])) == (5000, 100, PAGE)
    assert {each["state"] for each in found["objects"]} == {"failing"}
    found = await page.fetched("objects", page="100000000000")
    assert found["page"] == 1
    found = await page.fetched("objects", page="9999", state="ready", search="one-00")
    assert (found["total"], found["page"]) == (90, 2)
    assert found["objects"][-1]["name"] == "one-0099"
    (kind,) = (await page.fetched("overview"))["kinds"]
    assert kind["states"] == {"failing": 500, "ready": 4500}


async def test_the_queue_has_reasons_and_durations(page: Shown) -> None:
    queue = page.kind.queue
    keys = [ObjectKey("shop", name) for name in ("bread", "milk", "eggs")]
    queue.add(keys[0], reasons.CHANGED, ("spec.size",))
    assert await queue.get() is not None
    queue.add(keys[1], reasons.DEPENDENT, ("Deployment milk was deleted",))
    queue.add_after(keys[2], reasons.RESYNC, 3600)
    found = (await page.fetched("queue", kind=KIND))["queue"]
    assert [(each["name"], each["stage"], each["reason"], each["details"]) for each in found] == [
        ("bread", "running", "changed", ["spec.size"]),
        ("milk", "waiting", "dependent changed", ["Deployment milk was deleted"]),
        ("eggs", "delayed", "periodic resync", []),
    ]
    assert found[1]["seconds"] >= 0
    assert 3500 < found[2]["seconds"] <= 3600
    queue.close()


async def test_objects_have_their_next_run(page: Shown) -> None:
    keys = [page.kind.informer.put(name, condition("Failure")) for name in ("bread", "milk", "eggs")]
    page.kind.queue.add_after(keys[0], reasons.RETRY, 60)
    page.kind.queue.add(keys[1], reasons.CHANGED, ("spec.size",))
    found = {each["name"]: each["next"] for each in (await page.fetched("objects"))["objects"]}
    assert (found["bread"]["stage"], found["bread"]["reason"]) == ("delayed", "retry")
    assert 30 < found["bread"]["seconds"] <= 60
    assert (found["milk"]["stage"], found["milk"]["details"]) == ("waiting", ["spec.size"])
    assert found["eggs"] is None
    found = (await page.fetched("queue", search="MILK"))["queue"]
    assert [each["name"] for each in found] == ["milk"]
    page.kind.queue.close()


async def test_a_long_cause_of_an_object_leaves_its_place_whole(page: Shown) -> None:
    place = "task 'Deploy', /opt/ansible/roles/thing/tasks/main.yml:2"
    page.kind.informer.put("bread", condition("Failure", message=f"{'long ' * 100}\n{place}\nAll of its output: …"))
    (found,) = (await page.fetched("objects"))["objects"]
    assert (len(found["message"].splitlines()[0]), found["message"].splitlines()[1:]) == (300, [place])


async def test_the_overview_names_operator_and_cluster_and_has_failing_kinds_first(tmp_path: Path) -> None:
    kinds = [AKind(replace(watch_value(), gvk=GVK("g.example.com", "v1", name))) for name in ("A", "B", "C", "D")]
    kinds[1].informer.put("one", condition("Stalled"))
    kinds[2].informer.trouble = "forbidden"
    place = OperatorInfo("shop", "https://10.0.0.1:6443", (), tmp_path, 0.0)
    views = Views(place, cast("Any", kinds), Journal(lambda: 0.0))
    found = await views.overview()
    assert (found["operator"], found["cluster"]) == ("shop", "https://10.0.0.1:6443")
    assert [kind["kind"] for kind in found["kinds"]] == ["B", "C", "A", "D"]


async def test_runs_are_filtered_by_result_and_name_in_pages(page: Shown, make_job: Callable[..., Job]) -> None:
    for number in range(PAGE + 1):
        key = page.kind.informer.put(f"one-{number}", condition("Failure"))
        fail_one(page, make_job, ident=f"run-{number}", key=key)
    succeed(page, make_job, ident="last", key=ObjectKey("shop", "one-7"))
    found = await page.fetched("runs", result="failed")
    assert (found["total"], found["pages"], len(found["runs"])) == (PAGE + 1, 2, PAGE)
    found = await page.fetched("runs", result="failed", page="2")
    assert [run["ident"] for run in found["runs"]] == ["run-0"]
    found = await page.fetched("runs", search="ONE-7", kind=KIND)
    assert [(run["ident"], run["resolved"]) for run in found["runs"]] == [("last", False), ("run-7", True)]
    assert (await page.fetched("runs", result="unresolved"))["total"] == PAGE


async def test_failures_of_one_cause_are_one_group_until_their_objects_succeed(
    page: Shown, make_job: Callable[..., Job]
) -> None:
    keys = [page.kind.informer.put(name, condition("Failure")) for name in ("bread", "milk")]
    for ident, key in enumerate((*keys, keys[0])):
        fail_one(page, make_job, ident=str(ident), key=key)
    page.kind.queue.add_after(keys[1], reasons.RETRY, 60)
    succeed(page, make_job, ident="3", key=keys[0])
    (group,) = (await page.fetched("overview"))["failures"]
    assert (group["runs"], group["failing_objects"], group["resolved_objects"]) == (3, 1, 1)
    assert (group["resolved"], [each["name"] for each in group["objects"]]) == (False, ["milk"])
    assert (group["ident"], group["next"]["reason"]) == ("1", "retry")
    page.kind.informer.drop("milk")
    (group,) = (await page.fetched("overview"))["failures"]
    assert (group["resolved"], group["failing_objects"], group["resolved_objects"]) == (True, 0, 2)
    page.kind.queue.close()


async def test_a_run_without_files_has_an_error_and_the_command_for_its_logs(
    page: Shown, make_job: Callable[..., Job]
) -> None:
    job = fail_one(page, make_job)
    where = {"kind": KIND, "namespace": "default", "name": "sample", "ident": job.ident}
    found = await page.fetched("details", **where)
    assert (found["error"], found["objects"]) == ("The files of this run are not kept", [])
    logs = (await page.fetched("run", **where))["logs"]
    assert logs.startswith("ansible-operator logs Memcached.cache.example.com/sample -n default --runner-dir=")


async def test_an_object_has_conditions_and_runs(page: Shown, make_job: Callable[..., Job]) -> None:
    key = page.kind.informer.put("sample", condition("Failure", message="no such image"), namespace="default")
    page.kind.queue.add(key, reasons.CHANGED)
    assert await page.kind.queue.get() is not None
    job = fail_one(page, make_job)
    found = await page.fetched("object", kind=KIND, namespace="default", name="sample")
    assert (found["state"], found["since"]) == ("failing", "2026-11-21T11:00:00Z")
    assert found["conditions"][0]["message"] == "no such image"
    assert found["standing"]["stage"] == "running"
    assert (found["failed_runs"], found["failing_since"]) == (1, 1_800_000_000)
    (run,) = found["runs"]
    assert (run["ident"], run["task"], run["place"], run["calls"]) == (job.ident, "Deploy", "/r/main.yml:7", 3)
    whole = await page.fetched("run", kind=KIND, namespace="default", name="sample", ident=job.ident)
    (task,) = whole["tasks"]
    assert (task["name"], task["path"], task["state"]) == ("Deploy", "/r/main.yml:7", "failed")
    assert task["message"] == "no such image"
    assert task["ended"] - task["began"] == 2


async def test_unknown_kinds_objects_and_runs_are_404_with_an_error(page: Shown) -> None:
    for path, problem in {
        "/api/object?kind=Nothing": f"unknown kind 'Nothing'; watched kinds: {KIND}",
        f"/api/object?kind={KIND}&namespace=a&name=b": "Memcached a/b not found",
        f"/api/run?kind={KIND}&namespace=a&name=b&ident=../../x": "run ../../x of Memcached a/b not found",
    }.items():
        async with page.ask(path) as answer:
            assert (answer.status, await answer.json()) == (404, {"error": problem})


async def test_an_object_has_its_fields_and_dependents_without_secrets(
    page: Shown, make_job: Callable[..., Job]
) -> None:
    hidden = "hunter2-hunter2"
    page.kind.informer.put(
        "sample",
        condition("Ready"),
        namespace="default",
        metadata={"annotations": {"note": hidden}, "labels": {"a": hidden}},
        spec={"password": hidden, "size": 3, "note": hidden, "url": f"https://me:{hidden}@example.com/x"},
        data={"password": hidden},
        status={"ready": 2},
    )
    where = f"kind={KIND}&namespace=default&name=sample"
    assert (await page.fetched("object", kind=KIND, namespace="default", name="sample"))["fields"] == (
        "They are shown when a run of this operator with the current spec has ended."
    )
    job = make_job(extra_vars={"password": hidden}, environment={"TOKEN": hidden}, kubeconfig=hidden)
    job.secrets.add_initial([hidden])
    fail_one(page, lambda **_: job)
    for path in ("/api/overview", "/api/objects", "/api/queue", f"/api/object?{where}", f"/api/run?{where}"):
        async with page.ask(f"{path}&ident={job.ident}") as answer:
            assert answer.status == 200 or "/api/run" not in path
            assert hidden not in await answer.text()
    found = await page.fetched("object", kind=KIND, namespace="default", name="sample")
    assert found["fields"]["spec"] == {
        "password": MASK,
        "size": 3,
        "note": MASK,
        "url": f"https://me:{MASK}@example.com/x",
    }
    assert found["fields"]["status"] == {"ready": 2}
    (one,) = found["dependents"]
    assert (one["kind"], one["name"], one["api_version"]) == ("Deployment", "sample", "apps/v1")
    assert (one["state"], one["message"]) == ("in progress", "0 of 2 ready: ImagePullBackOff")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"a": [{"name": "DB_PASSWORD", "value": "abc"}]}, {"a": [{"name": "DB_PASSWORD", "value": MASK}]}),
        ({"a": [{"name": "TIMEOUT", "value": "30"}]}, {"a": [{"name": "TIMEOUT", "value": "30"}]}),
        ({"tokens": ["a"], "secretName": "login"}, {"tokens": MASK, "secretName": "login"}),
        ({"apiKey": {"text": "a"}, "password": ""}, {"apiKey": MASK, "password": ""}),
        ({"dsn": "postgres://shop:pw@db/shop"}, {"dsn": f"postgres://shop:{MASK}@db/shop"}),
    ],
)
def test_values_of_sensitive_keys_and_passwords_in_urls_are_hidden(given: Any, shown: Any) -> None:
    assert fields_of({"spec": given, "status": {"conditions": [{}]}}, RunSecrets()) == {"spec": shown}


def test_fields_that_cannot_be_masked_or_are_too_large_are_not_shown() -> None:
    newer = {"metadata": {"generation": 2}, "spec": {"size": 3}, "status": {"observedGeneration": 1}}
    assert "with the current spec" in fields_of(newer, RunSecrets())
    exhausted = RunSecrets()
    exhausted.exhaust("withheld")
    assert fields_of({"spec": {"size": 3}}, exhausted) == "withheld"
    assert fields_of({"spec": {"text": "x" * (64 << 10)}}, RunSecrets()) == "They are too large to be shown."


async def test_a_kind_that_is_not_served_waits_for_its_crd_and_comes_first(page: Shown) -> None:
    assert (await page.fetched("overview"))["kinds"][0]["waits"] is False
    async with page.ask("/events") as stream:
        await _next(stream)
        page.kind.informer.is_missing = True
        while not (await _next(stream))["kinds"][0]["waits"]:
            pass


async def _next(answer: aiohttp.ClientResponse) -> Any:
    """The next overview of a stream."""
    async with asyncio.timeout(patience()):
        while True:
            line = await answer.content.readline()
            assert line, "the stream goes on"
            if line.startswith(b"data: "):
                return json.loads(line[6:])


async def test_a_stream_sends_changes(page: Shown, make_job: Callable[..., Job]) -> None:
    async with page.ask("/events") as stream:
        assert stream.content_type == "text/event-stream"
        first = await _next(stream)
        assert first["kinds"][0]["objects"] == 0
        page.kind.informer.put("sample", condition("Ready"))
        while (fetched := await _next(stream))["kinds"][0]["states"] != {"ready": 1}:
            pass
        fail_one(page, make_job)
        while not (fetched := await _next(stream))["failures"]:
            pass
        assert fetched["failures"][0]["task"] == "Deploy"


async def test_closed_streams_are_released_and_too_many_are_refused(shown: Callable[..., Any]) -> None:
    async with shown(StreamTimings(interval=0.001, keepalive=0.01)) as page:
        streams = [await page.ask("/events") for _ in range(MOST_STREAMS)]
        async with page.ask("/events") as refused:
            assert refused.status == 503
        for stream in streams:
            stream.close()
        await until(lambda: page.page.streams == 0)


@pytest.mark.lengthy
async def test_a_stream_whose_client_does_not_read_is_closed_without_delaying_others(
    shown: Callable[..., Any], make_job: Callable[..., Job]
) -> None:
    async with shown(StreamTimings(interval=0.001, keepalive=0.0, write_timeout=0.2)) as page:
        failure = TaskFailure("Deploy", "m" * 4000, "/r/main.yml:7")
        for _ in range(50):
            job = make_job()
            notes = page.journal.start(job, ReconcileRequest(job.key, reasons.CHANGED, (), 0, 0, 0.0))
            notes.end(RunResult(Outcome.FAILED, None, (failure,), "", None, 2.0), RunStats())
        with socket.create_connection(("127.0.0.1", page.port)) as deaf:
            deaf.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until(lambda: page.page.streams == 1)
            assert (await page.fetched("overview"))["failures"]
            await until(lambda: page.page.streams == 0)


async def test_a_page_that_closes_ends_its_streams(shown: Callable[..., Any]) -> None:
    async with shown(StreamTimings(interval=3600)) as page, page.ask("/events") as stream:
        await _next(stream)
        closing: Awaitable[None] = page.page.close()
        async with asyncio.timeout(patience()):
            await closing
            assert not (await stream.content.read()).strip()


async def test_the_overview_has_the_steps_of_a_rollout_and_the_objects_that_stopped_it() -> None:
    kind = AKind()
    kind.informer.put("one", condition("Updated"))
    members = [Member.of(kind.informer.get(ObjectKey("shop", "one")) or {}, {}, "apply")]
    state = State("0" * 24, 1, paused="why", limits=(1, 5), failed=frozenset({members[0].uid}))
    fleet = Fleet.of(RolloutPolicy((Step(1), Step(5))), state, members)
    rollouts = RolloutTable({kind.gvk: lambda: (state, fleet)})
    (section,) = (await views_of(kind, None, Path("/"), rollouts.sections()).overview())["sections"]
    ((*texts, going, stopped),) = section["nodes"][0]["of"]["rows"]
    assert (section["title"], texts) == ("Rollouts", ["Memcached", "2 of 2", "1, 5", "0", "0"])
    assert going == [{"as": "tag", "of": "paused"}, " ", {"as": "isolated", "of": "why"}]
    assert [link["of"]["name"] for link, _ in stopped] == ["one"]


async def test_an_overview_without_a_rollout_has_no_section_of_it() -> None:
    kind, rollouts = AKind(), RolloutTable()
    rollouts.kinds[kind.gvk] = lambda: None
    assert (await views_of(kind, None, Path("/"), rollouts.sections()).overview())["sections"] == []


@pytest.mark.parametrize(
    ("lease", "namespace", "name"),
    [(["memcached"], "ops", "memcached"), ([], "ops", "ops"), ([], None, "memcached-operator")],
)
def test_the_page_has_the_name_of_the_operator(lease: list[str], namespace: str | None, name: str) -> None:
    given = Namespace(watches_file=["/opt/memcached-operator/watches.yaml"], leader_election_id=lease or None)
    assert name_of(sources.load(given, {}).settings, namespace) == name
