"""Discovery documents: which requests the cache answers, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import pytest

from runner.features.discoverycache.handler import LARGEST, DiscoveryCache
from runner.values.objects import GVK, ObjectKey, ObjectRef, Owner
from tests.kit.wait import until
from tests.unit.proxy.stage import Message, Stage, Staged

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OTHER_KIND = Owner(ObjectRef(GVK("web.example.com", "v1", "Site"), ObjectKey("ns", "sample"), "uid"), namespaced=True)
PATHS = ["/version", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1"]


@dataclass
class Cluster:
    """An API server with documents, a clock, and the requests that the server received."""

    stage: Stage
    cache: DiscoveryCache
    now: float = 1000.0
    changes: int = 0
    bodies: dict[str, bytes] = field(default_factory=dict)
    """Of single paths, where they are not what `body` says."""
    headers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    start: str = "200 OK"

    async def answer(self, message: Message, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self.stage.reply(self.body(message), self.start, *self.headers.get(message.target, ())))

    def body(self, message: Message) -> bytes:
        what = f"{message.target} {message.get('Accept')} {message.get('Accept-Encoding')}"
        return self.bodies.get(message.target, what.encode())

    def new_requests(self) -> list[str]:
        """Return the targets that the API server received since the last call."""
        seen, self.stage.api.seen = self.stage.api.seen, []
        return [each.target for each in seen]

    def another_run(self, **different: object) -> None:
        """Ask as another run from here on."""
        self.stage.token = self.stage.identities.issue(replace(self.stage.run, **different))  # type: ignore[arg-type]

    async def next_run(self, **different: object) -> None:
        """End the run. A minute later, ask as another one, whose documents are read ahead."""
        self.now += 60
        await self.next_run_at_once(**different)

    async def next_run_at_once(self, **different: object) -> None:
        self.stage.identities.revoke(self.stage.token)
        self.another_run(**different)
        await self.cache.read_ahead(self.stage.identities.issued(self.stage.token), self.stage.proxy.forward)


@pytest.fixture
async def cluster(staged: Staged) -> AsyncIterator[Cluster]:
    made: list[Cluster] = []

    def changed() -> None:
        made[0].changes += 1

    cache = DiscoveryCache(lambda: made[0].now, changed)
    async with staged(cache) as stage:
        made.append(Cluster(stage, cache))
        stage.api.script = made[0].answer
        yield made[0]


@pytest.mark.parametrize(
    "path", [*PATHS, "/version/", "/openapi/v2?timeout=32s", "/openapi/v3", "/openapi/v3/apis/a/v1"]
)
async def test_another_run_gets_the_same_bytes_from_memory(cluster: Cluster, path: str) -> None:
    cluster.headers[path] = ("X-Odd: b\xe9", "Warning: 299 - old", "Audit-Id: 1", "Date: Sat")
    first = await cluster.stage.get(path)
    cluster.another_run()
    cluster.new_requests()
    cluster.now += 1.5
    second = await cluster.stage.get(path)
    assert cluster.new_requests() == []
    assert (second.start, second.body) == (first.start, first.body)
    assert (first.get("X-Cache"), second.get("X-Cache"), second.get("Age")) == (None, "HIT", "1")
    own = {"Audit-Id", "X-Cache", "Age"}
    assert {pair for pair in second.headers if pair[0] not in own} == {p for p in first.headers if p[0] not in own}


async def test_each_representation_is_kept_for_itself(cluster: Cluster) -> None:
    wishes = [(), ("Accept: a/b",), ("Accept: a/b", "Accept-Encoding: gzip"), ("Accept: c/d", "Accept: e/f")]
    first = [(await cluster.stage.get("/apis/apps/v1", *wish)).body for wish in wishes]
    assert len(set(first)) == len(wishes)
    cluster.another_run()
    cluster.new_requests()
    assert [(await cluster.stage.get("/apis/apps/v1", *wish)).body for wish in wishes] == first
    assert cluster.new_requests() == []


async def test_a_document_is_requested_again_after_two_seconds(cluster: Cluster) -> None:
    requests = []
    for _ in range(5):
        for path in ["/apis", "/version", "/apis"]:
            cluster.another_run()
            await cluster.stage.get(path)
        requests += cluster.new_requests()
        cluster.now += 2
    assert requests == ["/apis", "/version"] * 5


async def test_a_repeated_request_of_a_run_is_answered_by_the_server(cluster: Cluster) -> None:
    await cluster.stage.get("/apis")
    cluster.another_run()
    await cluster.stage.get("/apis")
    cluster.bodies["/apis"] = b"with the kind that was missing"
    cluster.now += 0.001
    assert (await cluster.stage.get("/apis")).body == b"with the kind that was missing"
    cluster.now += 0.001
    cluster.another_run()
    cluster.new_requests()
    assert (await cluster.stage.get("/apis")).body == b"with the kind that was missing"
    assert cluster.new_requests() == []


@pytest.mark.parametrize("start", [f"GET {CRDS}", f"GET {CRDS}/a?watch=1", f"POST {CRDS}", f"DELETE {CRDS}/a"])
async def test_a_run_that_deals_with_kinds_is_answered_by_the_server(cluster: Cluster, start: str) -> None:
    for path in PATHS:
        await cluster.stage.get(path)
    cluster.another_run()
    await (await cluster.stage.connect()).ask(cluster.stage.request(start))
    cluster.new_requests()
    for path in PATHS:
        cluster.bodies[path] = b"new"
        assert (await cluster.stage.get(path)).body == b"new"
    assert cluster.new_requests() == PATHS


@pytest.mark.parametrize("verb", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize(
    "kind", ["apiextensions.k8s.io/v1/customresourcedefinitions", "apiregistration.k8s.io/v1/apiservices"]
)
async def test_a_write_of_kinds_empties_the_cache_of_all_runs(cluster: Cluster, verb: str, kind: str) -> None:
    await cluster.stage.get("/apis")
    changes = cluster.changes
    cluster.another_run(service_account="ns/narrow")
    await (await cluster.stage.connect()).ask(cluster.stage.request(f"{verb} /apis/{kind}/a"))
    assert cluster.changes == changes + 1
    cluster.bodies["/apis"] = b"new"
    cluster.another_run()
    assert (await cluster.stage.get("/apis")).body == b"new"


@pytest.mark.parametrize("start", ["403 Forbidden", "404 Not Found", "500 Oh", "503 Unavailable", "301 Moved"])
async def test_errors_are_not_cached_and_drop_the_cached_document(cluster: Cluster, start: str) -> None:
    path = "/apis/metrics.k8s.io/v1beta1"
    await cluster.stage.get(path)
    cluster.start = start
    for _ in range(2):
        cluster.now += 2
        cluster.another_run()
        assert (await cluster.stage.get(path)).start == f"HTTP/1.1 {start}"
    cluster.start = "200 OK"
    cluster.another_run()
    assert (await cluster.stage.get(path)).status == 200
    cluster.start = start
    assert (await cluster.stage.get(path)).start == f"HTTP/1.1 {start}"
    cluster.another_run()
    assert (await cluster.stage.get(path)).start == f"HTTP/1.1 {start}"


async def test_a_document_with_its_hash_in_the_url_is_never_requested_again(cluster: Cluster) -> None:
    path = "/openapi/v3/apis/apps/v1?hash=ABC"
    cluster.headers[path] = ("Cache-Control: public, immutable",)
    await cluster.stage.get(path)
    await (await cluster.stage.connect()).ask(cluster.stage.request(f"POST {CRDS}"))
    cluster.now += 100_000
    cluster.new_requests()
    assert (await cluster.stage.get(path)).get("X-Cache") == "HIT"
    assert cluster.new_requests() == []


@pytest.mark.parametrize(
    "header",
    [
        "Impersonate-User: jane",
        "Range: bytes=0-3",
        "If-Modified-Since: Sat, 29 Oct 1994 19:43:31 GMT",
        'If-None-Match: "x"',
        "Cache-Control: no-cache",
        "Origin: https://example.com",
    ],
)
async def test_calls_that_only_the_server_can_answer_pass(cluster: Cluster, header: str) -> None:
    await cluster.stage.get("/apis")
    cluster.new_requests()
    for _ in range(2):
        cluster.another_run()
        assert (await cluster.stage.get("/apis", header)).get("X-Cache") is None
    assert cluster.new_requests() == ["/apis", "/apis"]


@pytest.mark.parametrize("start", ["HEAD /apis", "POST /apis", "GET /apis"])
async def test_only_a_get_without_content_is_answered_from_memory(cluster: Cluster, start: str) -> None:
    await cluster.stage.get("/apis")
    cluster.new_requests()
    cluster.another_run()
    body = b"" if start.startswith("HEAD") else b"{}"
    (await cluster.stage.connect()).send(cluster.stage.request(start, body=body))
    await until(lambda: cluster.stage.api.seen)
    assert cluster.stage.api.seen[0].start == f"{start} HTTP/1.1"


async def test_runs_as_a_service_account_are_answered_by_the_server(cluster: Cluster) -> None:
    await cluster.stage.get("/apis")
    cluster.new_requests()
    cluster.another_run(service_account="ns/narrow")
    await cluster.stage.get("/apis")
    await cluster.stage.get("/apis")
    assert cluster.new_requests() == ["/apis", "/apis"]


@pytest.mark.parametrize(
    "path",
    ["/apis/../version", "/apis//v1", "/apis/a%2Fb", "/apis/a/b/c", "/api/v1/pods", "/healthz", "/openapi", "/metrics"],
)
async def test_other_paths_pass(cluster: Cluster, path: str) -> None:
    for _ in range(2):
        cluster.another_run()
        await cluster.stage.get(path)
    assert cluster.new_requests() == [path, path]


@pytest.mark.parametrize("headers", [("Vary: X-Other",), ("Vary: *",), ("Cache-Control: no-store",)])
async def test_answers_that_are_for_one_client_are_not_kept(cluster: Cluster, headers: tuple[str, ...]) -> None:
    cluster.headers["/openapi/v3"] = headers
    for _ in range(2):
        cluster.another_run()
        await cluster.stage.get("/openapi/v3")
    assert cluster.new_requests() == ["/openapi/v3", "/openapi/v3"]


async def test_a_document_that_is_too_large_passes(cluster: Cluster) -> None:
    large = bytes(LARGEST + 1)
    cluster.bodies["/openapi/v2"] = large
    for _ in range(2):
        cluster.another_run()
        assert (await cluster.stage.get("/openapi/v2")).body == large
    assert cluster.new_requests() == ["/openapi/v2", "/openapi/v2"]


async def test_the_least_recently_used_document_is_dropped_if_the_cache_is_full(cluster: Cluster) -> None:
    paths = [f"/openapi/v3/apis/g{number}/v1" for number in range(5)]
    for path in [*paths[:4], paths[0], paths[4]]:
        cluster.bodies[path] = bytes(LARGEST - 2000)
        cluster.another_run()
        await cluster.stage.get(path)
    cluster.new_requests()
    cluster.another_run()
    for path in [paths[0], *paths[2:], paths[1]]:
        await cluster.stage.get(path)
    assert cluster.new_requests() == [paths[1]]


async def test_an_answer_that_breaks_off_is_not_kept(cluster: Cluster) -> None:
    async def half(_: Message, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        writer.close()

    working, cluster.stage.api.script = cluster.stage.api.script, half
    wire = await cluster.stage.connect()
    wire.send(cluster.stage.request("GET /openapi/v3"))
    assert await wire.is_closed()
    cluster.stage.api.script = working
    cluster.another_run()
    assert (await cluster.stage.get("/openapi/v3")).body == b"/openapi/v3 None None"


@pytest.mark.parametrize("meanwhile", ["/openapi/v3", f"POST {CRDS}"])
async def test_an_answer_to_a_request_before_a_change_is_not_cached(cluster: Cluster, meanwhile: str) -> None:
    working, gate, held = cluster.stage.api.script, asyncio.Event(), asyncio.Event()

    async def late(message: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cluster.stage.api.script = working
        held.set()
        await gate.wait()
        writer.write(cluster.stage.reply(b"old"))

    cluster.stage.api.script = late
    slow = asyncio.create_task(cluster.stage.get("/openapi/v3"))
    await held.wait()
    cluster.another_run()
    cluster.now += 0.1
    wire = await cluster.stage.connect()
    await wire.ask(cluster.stage.request(meanwhile if " " in meanwhile else f"GET {meanwhile}"))
    gate.set()
    assert (await slow).body == b"old"
    cluster.another_run()
    assert (await cluster.stage.get("/openapi/v3")).body == b"/openapi/v3 None None"


async def test_what_the_last_run_of_the_kind_requested_is_read_before_the_next_one_asks(cluster: Cluster) -> None:
    for path in PATHS:
        await cluster.stage.get(path, "Accept: a/b", "Accept-Encoding: gzip")
    cluster.new_requests()
    await cluster.next_run()
    assert sorted(cluster.new_requests()) == sorted(PATHS)
    for path in PATHS:
        assert (await cluster.stage.get(path, "Accept: a/b", "Accept-Encoding: gzip")).get("X-Cache") == "HIT"
    assert cluster.new_requests() == []
    await cluster.stage.get("/apis", "Accept: a/b", "Accept-Encoding: gzip")
    assert cluster.new_requests() == ["/apis"]


async def test_documents_that_would_expire_during_the_next_run_are_read_ahead_too(cluster: Cluster) -> None:
    await cluster.stage.get("/apis")
    cluster.now += 0.8
    await cluster.stage.get("/version")
    cluster.new_requests()
    cluster.now += 0.9
    await cluster.next_run_at_once()
    assert cluster.new_requests() == ["/apis"]
    cluster.now += 0.9
    assert [(await cluster.stage.get(path)).get("X-Cache") for path in ("/apis", "/version")] == ["HIT", "HIT"]


async def test_documents_that_are_no_longer_requested_are_no_longer_read_ahead(cluster: Cluster) -> None:
    for path in PATHS:
        await cluster.stage.get(path)
    await cluster.next_run()
    await cluster.stage.get("/apis")
    cluster.new_requests()
    await cluster.next_run()
    assert cluster.new_requests() == ["/apis"]


@pytest.mark.parametrize("different", [{"service_account": "ns/runs"}, {"owner": OTHER_KIND}])
async def test_nothing_is_read_ahead_for_runs_of_another_kind_or_account(
    cluster: Cluster, different: dict[str, object]
) -> None:
    await cluster.stage.get("/apis")
    cluster.new_requests()
    await cluster.next_run(**different)
    assert cluster.new_requests() == []


async def test_nothing_is_read_ahead_after_a_run_that_deals_with_kinds(cluster: Cluster) -> None:
    await cluster.stage.get("/apis")
    await cluster.stage.get(CRDS)
    cluster.new_requests()
    await cluster.next_run()
    assert cluster.new_requests() == []


async def test_a_failure_while_documents_are_read_ahead_leaves_the_requests_of_the_run_as_they_are(
    cluster: Cluster,
) -> None:
    async def hang_up(message: Message, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    for path in PATHS:
        await cluster.stage.get(path)
    cluster.stage.api.script = hang_up
    await cluster.next_run()
    cluster.stage.api.script = cluster.answer
    cluster.start = "403 Forbidden"
    await cluster.next_run()
    assert (await cluster.stage.get("/apis")).status == 403
    cluster.start = "200 OK"
    assert (await cluster.stage.get("/apis")).status == 200
