"""Which reads are answered from memory, and what other calls mean for it, on the wire."""

from __future__ import annotations

import asyncio
import gzip
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import orjson
import pytest
from structlog.testing import capture_logs

from runner.core.kube.discovery import ApiResource
from runner.features.readcache import handler as reads
from runner.features.readcache.bodies import MOST_BYTES, ReadCache
from runner.features.readcache.handler import Reads
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef, Owner
from tests.features.readcache.unit.watched import ObjectVersion, Watched
from tests.kit.wait import until
from tests.unit.proxy.stage import Message, Stage

VERBS = frozenset({"get", "list", "watch"})
WIDGETS = ApiResource(GVK("example.com", "v1", "Widget"), "widgets", True, VERBS, frozenset())  # noqa: FBT003 - namespaced
ALL = "/apis/example.com/v1/namespaces/ns/widgets"
PATH = f"{ALL}/a"
SPACED = b'{"kind": "Widget",  "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1"}}\n'


def widget(version: int, name: str = "a") -> Object:
    return {"metadata": {"name": name, "namespace": "ns", "uid": "u", "resourceVersion": str(version)}}


@dataclass
class Reading:
    """A proxy with `Reads`, one kind whose watch events the test sends, and an API server with given answers."""

    bodies: ReadCache
    watch: Watched
    cached: bool = True
    results: Counter[str] = field(default_factory=Counter)
    stage: Stage = field(init=False)

    def follows(self, owner: Owner, resource: ApiResource) -> bool:
        return self.cached and owner.ref.gvk.kind == "Memcached" and resource == WIDGETS

    def seen(self, version: int = 1, name: str = "a") -> None:
        self.watch.applied(ObjectKey("ns", name), ObjectVersion("u", str(version)))

    def answers(self, obj: Object | bytes, start: str = "200 OK", *headers: str) -> None:
        body = obj if isinstance(obj, bytes) else orjson.dumps(obj)
        self.stage.api.answers(self.stage.reply(body, start, *headers))

    async def get(self, path: str = PATH, *headers: str) -> Message:
        return await self.stage.get(path, *headers)

    async def send(self, start: str, *headers: str, body: bytes = b"") -> Message:
        wire = await self.stage.connect()
        answer = await wire.ask(self.stage.request(start, *headers, body=body))
        wire.close()
        return answer

    async def is_hit(self, path: str = PATH, *headers: str) -> bool:
        return (await self.get(path, *headers)).get("X-Cache") == "HIT"

    async def keep(self) -> None:
        """Have the object kept."""
        self.answers(SPACED)
        self.seen()
        await self.get()
        assert await self.is_hit()


@pytest.fixture
async def reading(staged: Callable[..., AbstractAsyncContextManager[Stage]]) -> AsyncIterator[Reading]:
    bodies = ReadCache(MOST_BYTES)
    owner = ObjectRef(GVK("g", "v", "K"), ObjectKey("ns", "x"))
    watch = Watched(bodies, WIDGETS, lambda obj: (owner,) if "uid" in obj["metadata"] else ())
    reading = Reading(bodies, watch)
    async with staged(Reads(bodies, reading.follows, lambda result: reading.results.update([result]))) as stage:
        reading.stage = stage
        yield reading


async def test_a_hit_is_the_answer_byte_for_byte_and_no_call(reading: Reading) -> None:
    await reading.keep()
    calls = len(reading.stage.api.seen)
    answer = await reading.get()
    assert answer.body == SPACED
    assert answer.start == "HTTP/1.1 200 OK"
    assert dict(answer.headers) == {
        "Cache-Control": "no-cache, private",
        "Content-Type": "application/json",
        "Content-Length": str(len(SPACED)),
        "X-Cache": "HIT",
    }
    assert len(reading.stage.api.seen) == calls


async def test_a_compressed_answer_is_cached_uncompressed(reading: Reading) -> None:
    packed = gzip.compress(SPACED)
    reading.answers(packed, "200 OK", "Content-Encoding: gzip")
    reading.seen()
    answer = await reading.get(PATH, "Accept-Encoding: gzip")
    assert (answer.get("Content-Encoding"), answer.body) == ("gzip", packed)
    answer = await reading.get(PATH, "Accept-Encoding: gzip")
    assert (answer.get("Content-Encoding"), answer.body) == (None, SPACED)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], True),
        (["Accept: */*"], True),
        (["Accept: application/json"], True),
        (["Accept: application/json, */*"], True),
        (["Accept: application/json", "Accept: */*"], True),
        (["Accept-Encoding: gzip"], True),
        (["User-Agent: kubectl/v1.35"], True),
        (["Accept: application/yaml"], False),
        (["Accept: application/json;as=Table"], False),
        (["Accept: application/json", "Accept: application/yaml"], False),
        (["Accept: application/json;q=0.5"], False),
        (["User-Agent: curl/8"], False),
        (["User-Agent: Wget/1.2"], False),
        (["User-Agent: Mozilla/5.0 (X11)"], False),
        (["If-None-Match: x"], False),
        (["If-Modified-Since: x"], False),
        (["Cache-Control: no-cache"], False),
        (["Pragma: no-cache"], False),
        (["Range: bytes=0-1"], False),
        (["Impersonate-User: me"], False),
        (["impersonate-group: us"], False),
    ],
    ids=str,
)
async def test_only_plain_reads_are_answered_from_memory(
    reading: Reading, headers: list[str], *, expected: bool
) -> None:
    await reading.keep()
    assert await reading.is_hit(PATH, *headers) is expected


@pytest.mark.parametrize(
    "target",
    [
        f"{PATH}?resourceVersion=0",
        f"{PATH}?",
        f"{PATH}/",
        f"{PATH}/status",
        ALL,
        f"{ALL}?fieldSelector=metadata.name=a",
        f"//{PATH[1:]}",
        "/apis/example.com/v2/namespaces/ns/widgets/a",
        "/apis/example.com/v1/namespaces/other/widgets/a",
        "/apis/example.com/v1/widgets/a",
    ],
)
async def test_other_paths_are_other_answers(reading: Reading, target: str) -> None:
    await reading.keep()
    assert not await reading.is_hit(target)


@pytest.mark.parametrize(
    "different", [{"inject": False}, {"watch_dependents": False}, {"service_account": "ns/it"}], ids=str
)
async def test_runs_that_may_not_be_answered_from_memory_are_not(
    reading: Reading, different: dict[str, object]
) -> None:
    await reading.keep()
    stage = reading.stage
    stage.token = stage.identities.issue(stage.make_run(**different))
    assert not await reading.is_hit()


async def test_a_kind_that_the_owners_watch_leaves_out_is_not_answered_from_memory(reading: Reading) -> None:
    await reading.keep()
    reading.cached = False
    assert not await reading.is_hit()


@pytest.mark.parametrize(
    ("start", "body"),
    [
        (f"PATCH {PATH}", b"{}"),
        (f"PUT {PATH}", b"{}"),
        (f"DELETE {PATH}", b""),
        (f"DELETE {ALL}", b""),
        ("DELETE /apis/example.com/v1/widgets", b""),
        (f"PATCH {PATH}/status", b"{}"),
        (f"PUT {PATH}/scale", b"{}"),
        (f"POST {PATH}/eviction", b"{}"),
        (f"POST {PATH}/anything", b"{}"),
        ("PATCH /apis/example.com/v2/namespaces/ns/widgets/a", b"{}"),
        (f"DELETE {PATH}?dryRun=All", b"{}"),
        (f"PATCH {PATH}?dryRun=%zz", b"{}"),
    ],
)
@pytest.mark.parametrize("status", ["200 OK", "409 Conflict"])
async def test_after_a_write_nothing_of_before_is_answered(
    reading: Reading, start: str, body: bytes, status: str
) -> None:
    await reading.keep()
    reading.answers({"kind": "Status", "metadata": {}}, status)
    await reading.send(start, body=body)
    assert not await reading.is_hit()


@pytest.mark.parametrize("answer", [{"kind": "Status"}, widget(2), {"kind": "WidgetList", "items": []}, b"?"], ids=str)
async def test_after_a_create_nothing_of_before_is_answered(reading: Reading, answer: Object | bytes) -> None:
    await reading.keep()
    reading.answers(answer, "201 Created")
    await reading.send(f"POST {ALL}", body=b'{"metadata": {"name": "a"}}')
    assert not await reading.is_hit()


async def test_a_create_does_not_drop_other_cached_objects(reading: Reading) -> None:
    await reading.keep()
    reading.answers(widget(7, "b"), "201 Created")
    await reading.send(f"POST {ALL}", body=b'{"metadata": {"generateName": "b"}}')
    assert await reading.is_hit()
    reading.seen(7, "b")
    answer = await reading.get(f"{ALL}/b")
    assert (answer.get("X-Cache"), orjson.loads(answer.body)) == ("HIT", widget(7, "b"))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", True),
        ("?fieldManager=f&force=true&fieldValidation=Warn", True),
        ("?pretty=1", False),
        ("?dry%52un=All", False),
    ],
)
async def test_the_answer_to_a_write_is_kept_where_a_read_would_give_the_same(
    reading: Reading, query: str, *, expected: bool
) -> None:
    reading.answers(widget(3))
    await reading.send(f"PATCH {PATH}{query}", "Content-Type: application/merge-patch+json", body=b"{}")
    reading.seen(3)
    assert await reading.is_hit() is expected


async def test_a_dry_run_writes_nothing(reading: Reading) -> None:
    await reading.keep()
    reading.answers(widget(1) | {"data": "never"})
    await reading.send(f"PATCH {PATH}?dryRun=All", body=b"{}")
    answer = await reading.get()
    assert (answer.get("X-Cache"), answer.body) == ("HIT", SPACED)


@pytest.mark.parametrize(
    "status", ["500 Internal Server Error", "503 Service Unavailable", "504 Timeout", "408 Timeout"]
)
@pytest.mark.parametrize("start", [f"PATCH {PATH}", f"POST {ALL}", f"DELETE {ALL}"])
async def test_after_a_write_with_unknown_outcome_no_read_is_answered_from_memory(
    reading: Reading, start: str, status: str
) -> None:
    await reading.keep()
    reading.answers({"kind": "Status"}, status)
    await reading.send(start, body=b'{"metadata": {"name": "a"}}')
    reading.answers(SPACED)
    for _ in range(3):
        assert not await reading.is_hit()


@pytest.mark.parametrize("start", [f"PATCH {PATH}", f"PUT {PATH}", f"DELETE {PATH}", f"POST {ALL}"])
async def test_a_write_with_unknown_outcome_ends_once(
    reading: Reading, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    monkeypatch.setattr(reads, "_GIVEN_UP", 0.01)
    await reading.keep()
    reading.answers({"kind": "Status"}, "503 Service Unavailable")
    await reading.send(start, body=b'{"metadata": {"name": "a"}}')
    await asyncio.sleep(0.05)
    assert problems == []
    reading.answers(SPACED)
    await reading.get()
    assert await reading.is_hit()


async def test_a_client_that_repeats_a_write_with_unknown_outcome_costs_bounded_time_and_memory(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    await reading.keep()
    reading.answers({"kind": "Status"}, "504 Timeout")
    for _ in range(5):
        await reading.send(f"PATCH {PATH}", body=b"{}")
    assert len(reading.bodies._calls) == 1
    monkeypatch.setattr(reads, "_GIVEN_UP", 0.01)
    await reading.send(f"PATCH {PATH}", body=b"{}")
    await until(lambda: not len(reading.bodies._calls))
    reading.answers(SPACED)
    await reading.get()
    assert await reading.is_hit()


async def test_after_a_client_has_left_its_write_nothing_is_answered_from_memory(reading: Reading) -> None:
    await reading.keep()
    stage = reading.stage
    stage.api.answers(b"")
    wire = await stage.connect()
    wire.send(stage.request(f"DELETE {PATH}"))
    await until(lambda: stage.api.seen[-1].start.startswith("DELETE"))
    wire.close()
    await until(stage.api.lost.is_set)
    reading.answers(SPACED)
    await reading.get()
    assert not await reading.is_hit()


async def test_an_answer_with_a_warning_is_not_kept(reading: Reading) -> None:
    reading.answers(SPACED, "200 OK", 'Warning: 299 - "deprecated"')
    reading.seen()
    for _ in range(2):
        answer = await reading.get()
        assert (answer.get("X-Cache"), answer.get("Warning")) == (None, '299 - "deprecated"')


@pytest.mark.parametrize(
    ("start", "hit_before"),
    [
        (f"GET {ALL}", False),
        ("GET /apis/example.com/v1/widgets", False),
        (f"GET {ALL}?fieldSelector=metadata.name=a", False),
        (f"GET {PATH}/scale", False),
        (f"GET {PATH}?resourceVersion=0", False),
        (f"GET {ALL}?fieldSelector=metadata.name=b", True),
        ("GET /apis/example.com/v1/namespaces/other/widgets", True),
        ("GET /apis/example.com/v1/namespaces/ns/gadgets", True),
    ],
)
async def test_an_object_that_a_forwarded_answer_may_contain_is_read_again(
    reading: Reading, start: str, *, hit_before: bool
) -> None:
    await reading.keep()
    reading.answers({"kind": "List", "items": []})
    await reading.send(start)
    reading.answers(SPACED)
    assert await reading.is_hit() is hit_before
    assert await reading.is_hit()


async def test_while_a_client_watches_nothing_of_it_is_answered_from_memory(reading: Reading) -> None:
    await reading.keep()
    stage = reading.stage
    stage.api.answers(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    wire = await stage.connect()
    wire.send(stage.request(f"GET {ALL}?watch=1"))
    await stage.read_head(wire.reader)
    reading.answers(SPACED)
    for _ in range(3):
        assert not await reading.is_hit()
    wire.close()
    await until(lambda: len(reading.bodies._calls) == 0)
    assert not await reading.is_hit()
    assert await reading.is_hit()


async def test_reads_are_counted_and_logged(reading: Reading) -> None:
    reading.seen()
    reading.answers(SPACED)
    with capture_logs() as logs:
        for _ in range(3):
            await reading.get()
        await reading.get(PATH, "Accept: application/json;as=Table")
        reading.answers({"metadata": {"name": "a"}})
        await reading.get(f"{ALL}/nobodys")
        await reading.get("/api/v1/pods/a")
    calls = [entry.get("cache") for entry in logs if entry["event"] == "API request"]
    assert calls == ["miss", "hit", "hit", "miss", None, None]
    assert reading.results == {"hit": 2, "miss": 2}
    assert (reading.stage.run.stats.hits, reading.stage.run.stats.misses) == (2, 2)


async def test_an_absent_object_is_not_a_miss_and_drops_the_cached_one(reading: Reading) -> None:
    await reading.keep()
    reading.answers({"kind": "Status"}, "404 Not Found")
    await reading.get(PATH, "Cache-Control: no-cache")
    before = reading.results.copy()
    assert (await reading.get()).status == 404
    assert reading.results == before
