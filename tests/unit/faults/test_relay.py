"""What the relay of the fault suite does to watches and writes."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from runner.pki import Authority
from tests.kit.relay import KillPoint, Relay, Release

pytestmark = pytest.mark.lengthy

THINGS = "/apis/test.example.com/v1/namespaces/ns/things"


def _event(what: str, name: str, uid: str = "u") -> dict[str, Any]:
    return {"type": what, "object": {"metadata": {"name": name, "uid": uid}}}


@dataclass
class Server:
    """An API server that watches what the test sends, and gives each write a new version unless it changes nothing."""

    events: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)
    asked: list[str] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)

    async def watch(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path_qs)
        if request.method != "GET":
            return await self.write(request)
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(json.dumps(await self.events.get()).encode() + b"\n")

    async def write(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.versions[request.path] = self.versions.get(request.path, 0) + bool(body)
        meta = {"uid": request.path, "resourceVersion": str(self.versions[request.path])}
        return web.json_response({"metadata": meta}, headers={"X-Test": "kept"})


@dataclass
class Stage:
    """A client, the relay and the server behind it."""

    server: Server
    relay: Relay
    url: str
    session: aiohttp.ClientSession

    async def call(self, relayed: str, *arguments: Any) -> None:
        """Call a method of the relay, which waits for the relay's own thread."""
        await asyncio.to_thread(getattr(self.relay, relayed), *arguments)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    authority = Authority.create("test")
    pair = authority.issue("server", hosts=["127.0.0.1"])
    for name, content in (
        ("ca.crt", authority.pair.certificate),
        ("apiserver.crt", pair.certificate),
        ("apiserver.key", pair.key),
    ):
        (tmp_path / name).write_bytes(content)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "apiserver.crt", tmp_path / "apiserver.key")
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.watch)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    relay = Relay(f"https://127.0.0.1:{runner.addresses[0][1]}", tmp_path, random.Random(1))
    url = await asyncio.to_thread(relay.start)
    trust = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
        yield Stage(server, relay, url, session)
    # https://docs.aiohttp.org/en/stable/client_advanced.html#graceful-shutdown
    await asyncio.sleep(0.25)
    await asyncio.to_thread(relay.stop)
    await runner.cleanup()


async def _next(answer: aiohttp.ClientResponse) -> tuple[str, str]:
    async with asyncio.timeout(10):
        event = json.loads(await answer.content.readline())
    return event["type"], event["object"].get("metadata", {}).get("name") or event["object"].get("code", "")


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        (Release.EACH, [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "b")]),
        (Release.MERGED, [("ADDED", "b")]),
        (Release.EXPIRED, [("ERROR", 410)]),
    ],
)
async def test_a_frozen_watch_delivers_missed_events_in_the_requested_way(
    stage: Stage, release: Release, expected: list[tuple[str, str]]
) -> None:
    await stage.call("lag", THINGS)
    async with stage.session.get(f"{stage.url}{THINGS}?watch=true&resourceVersion=1") as answer:
        stage.server.events.put_nowait(_event("ADDED", "before"))
        assert await _next(answer) == ("ADDED", "before")
        await stage.call("freeze", THINGS)
        for event in (_event("ADDED", "a"), _event("DELETED", "a"), _event("ADDED", "b")):
            stage.server.events.put_nowait(event)
        reading = asyncio.create_task(_next(answer))
        async with asyncio.timeout(10):
            while stage.relay.lags[THINGS].received < 4:
                await asyncio.sleep(0.01)
        assert not reading.done()
        await stage.call("thaw", THINGS, release)
        assert [await reading, *[await _next(answer) for _ in expected[1:]]] == expected


async def test_a_watch_of_a_server_that_lags_begins_with_an_earlier_list(stage: Stage) -> None:
    past = {
        "apiVersion": "test.example.com/v1",
        "kind": "ThingList",
        "metadata": {"resourceVersion": "7"},
        "items": [{"metadata": {"name": "old"}}],
    }
    await stage.call("lag", THINGS)
    await stage.call("freeze", THINGS, past)
    async with stage.session.get(f"{stage.url}{THINGS}?limit=5") as answer:
        assert await answer.json() == past
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with stage.session.get(f"{stage.url}{THINGS}?{query}") as answer:
        assert await _next(answer) == ("ADDED", "old")
        mark = json.loads(await answer.content.readline())
        assert mark["object"]["kind"] == "Thing"
        assert mark["object"]["metadata"]["resourceVersion"] == "7"
        stage.server.events.put_nowait(_event("DELETED", "old"))
        reading = asyncio.create_task(_next(answer))
        await stage.call("thaw", THINGS)
        assert await reading == ("DELETED", "old")
    assert stage.server.asked == [f"{THINGS}?watch=true&allowWatchBookmarks=true&resourceVersion=7"]


async def test_only_writes_with_an_effect_count(stage: Stage) -> None:
    for path, body in (("/a", {"x": 1}), ("/a", {}), ("/b", {"x": 1}), ("/a", {"x": 2})):
        async with stage.session.patch(f"{stage.url}{path}", json=body) as answer:
            assert answer.headers["X-Test"] == "kept"
    async with stage.session.post(f"{stage.url}/api/v1/namespaces/ns/events", json={"x": 1}) as answer:
        assert answer.status == 200
    assert [written.path for written in stage.relay.written] == ["/a", "/b", "/a"]
    stage.relay.forget_writes()
    assert stage.relay.written == []


@pytest.mark.parametrize(("before", "arrived"), [(True, ["/a"]), (False, ["/a", "/b"])])
async def test_the_operator_ends_before_or_after_one_of_its_writes(
    stage: Stage, *, before: bool, arrived: list[str]
) -> None:
    killed: list[str] = []
    stage.relay.forget_writes(KillPoint(2, before, lambda: killed.append("it")))
    async with stage.session.patch(f"{stage.url}/a", json={"x": 1}) as answer:
        assert answer.status == 200
    with pytest.raises(aiohttp.ClientError):
        await stage.session.patch(f"{stage.url}/b", json={"x": 1})
    assert killed == ["it"]
    assert stage.server.asked == arrived
