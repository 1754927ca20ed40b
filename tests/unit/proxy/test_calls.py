"""What all handlers and observers of a call share: its parsed content, and its end."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from structlog.testing import capture_logs

from runner.core.kube import discovery
from runner.core.kube.discovery import ApiResource, ServedResources
from runner.core.proxy import content
from runner.core.proxy.calls import Answer, Call, Observer
from runner.core.proxy.content import Parsed
from runner.core.proxy.handlers.writes import WRITE_HOOK, Writes
from runner.features.masking.requests import NO_LOG_PATH
from runner.features.prune.record import Basis, CreationRecord
from runner.features.prune.run_objects import USES, RunObjects
from runner.features.readcache.bodies import MOST_BYTES, ReadCache
from runner.features.readcache.handler import Reads
from runner.features.unchanged.requests import READ_SET, ReadSet
from runner.values.objects import ObjectKey, Owner
from runner.values.slots import EMPTY
from tests.features.readcache.unit.watched import Watched
from tests.kit.wait import patience, until
from tests.unit.proxy.stage import RecordedDependents, Staged

PATH = "/api/v1/namespaces/ns/secrets"
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
CORE = {"resources": [{"name": "secrets", "kind": "Secret", "namespaced": True, "verbs": VERBS}]}
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
    "stringData": {"password": "hunter2hunter2"},
}


class Interested(RecordedDependents):
    """API server, dependents and read cache that need every object."""

    def follows(self, _owner: Owner, _resource: ApiResource) -> bool:
        return True


async def _store() -> None:
    """Store nothing."""


@pytest.mark.parametrize(
    ("start", "parsed"),
    [(f"GET {PATH}/a", ["answer"]), (f"PUT {PATH}/a", ["request", "answer"]), ("GET /api/v1/nodes/a", [])],
)
async def test_the_content_of_a_call_is_parsed_once_and_only_if_a_handler_or_observer_needs_it(
    staged: Staged, monkeypatch: pytest.MonkeyPatch, start: str, parsed: list[str]
) -> None:
    found: list[str] = []
    parse = content.parse

    def counting(media: str, data: bytes, *most: int) -> Parsed:
        found.append("answer" if data == orjson.dumps(SECRET) else "request")
        return parse(media, data, *most)

    monkeypatch.setattr(content, "parse", counting)
    interested = Interested(CORE, {ObjectKey("ns", "a"): SECRET})
    bodies = ReadCache(MOST_BYTES)
    (resource,) = discovery.parse("", "v1", CORE).values()
    Watched(bodies, resource, lambda _: (stage.run.owner.ref,))
    reads = Reads(bodies, interested.follows, lambda _: None)
    writes = Writes(ServedResources(interested, lambda: 0.0), interested, interested)
    read_set = ReadSet()
    async with staged(reads, writes) as stage:
        if parsed:
            objects = RunObjects(CreationRecord(), Basis("1", "c"), _store, lambda: None, lambda: 0.0)
            more = EMPTY.having(USES, objects).having(WRITE_HOOK, objects)
            object.__setattr__(stage.run, "more", more.having(READ_SET, read_set))
        stage.api.answers(stage.reply(orjson.dumps(SECRET)))
        wire = await stage.connect()
        body = b"" if start.startswith("GET") else orjson.dumps(SECRET, option=orjson.OPT_INDENT_2)
        assert (await wire.ask(stage.request(start, "Content-Type: application/json", body=body))).status == 200
        assert found == parsed
        if parsed:
            assert [name for _, name in interested.reports] == ["a"]
            assert stage.run.secrets.has_learned
            assert list(read_set.reads) == [f"{PATH}/a"]


async def test_an_error_of_an_observer_ends_the_call_at_the_api_server(staged: Staged) -> None:
    async def broken(_call: Call, _answer: Answer) -> None:
        raise RuntimeError("a defect")

    async with staged(observers=[Observer(answered=broken)]) as stage:
        stage.api.answers(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        with capture_logs() as logs:
            wire = await stage.connect()
            wire.send(stage.request())
            assert await wire.is_closed()
            async with asyncio.timeout(patience()):
                await stage.api.lost.wait()
            await until(lambda: len(logs) > 1)
        assert logs[-1]["event"] == "Proxy request failed"


async def test_a_response_that_was_read_whole_frees_its_connection_for_the_next_call(staged: Staged) -> None:
    slow = asyncio.Event()

    async def reads_whole(_call: Call, answer: Answer) -> None:
        await answer.object()
        if len(stage.api.seen) == 1:
            slow.set()
            await asyncio.sleep(3600)

    async with staged(observers=[Observer(answered=reads_whole)]) as stage:
        first = await stage.connect()
        first.send(stage.request())
        await slow.wait()
        assert (await stage.get()).status == 200
        assert stage.api.connections == 1


async def test_values_that_a_task_with_no_log_reports_are_no_api_request_for_observers(staged: Staged) -> None:
    seen: list[str] = []

    async def observe(call: Call, _answer: Answer) -> None:
        seen.append(call.run.run.ident + call.info.path)

    async with staged(observers=[Observer(answered=observe)]) as stage:
        wire = await stage.connect()
        body = orjson.dumps({"task": "t-1", "values": ["hunter2hunter2"]})
        assert (await wire.ask(stage.request(f"POST {NO_LOG_PATH}", body=body))).status == 200
        assert (await stage.get("/version")).status == 200
    assert seen == ["job-1/version"]
