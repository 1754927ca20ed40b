"""Two clients, one through the proxy and one past it, work on the same few objects of the real API server at once.

What the objects really were, and in which order, a watch of the test's own tells. Afterwards each read through the
proxy is checked against what was allowed when it was asked for:

- it is not older than any write through the proxy that had been answered, nor than anything the proxy had shown;
- one that the API server answered is not older than any write at all that had been answered;
- one from memory is, to the byte, what the API server gives for that version.

`HISTORY_SEED` repeats what the clients do; how it interleaves is up to the machine.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson
import pytest

from runner.core.kube.watch import Watcher
from runner.features.readcache.bodies import ReadCache
from tests.kit.wait import until

if TYPE_CHECKING:
    from runner.core.kube.watch_events import WatchEvent
    from runner.values.objects import Object
    from tests.integration.proxy.bed import Operating, Reply

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
SEED = int(os.environ.get("HISTORY_SEED", "20240607"))


@dataclass(frozen=True)
class State:
    """What an object was for a time. `version` is empty while it did not exist, after the one of `uid` had gone."""

    uid: str
    version: str


@dataclass(frozen=True)
class Event:
    """What a client saw or did."""

    begin: float
    end: float
    name: str
    state: State
    """As it was seen, or made. Without uid: not there."""
    by_proxy: bool = True
    is_write: bool = False
    is_hit: bool = False


def check(order: dict[str, list[State]], events: list[Event]) -> list[str]:
    """Say what was not allowed."""
    wrong: list[str] = []
    by_name: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_name[event.name].append(event)
    for name, of_object in by_name.items():
        checker = _Checker(name, order[name])
        for event in sorted(of_object, key=lambda event: event.end):
            wrong += checker.take(event)
    return wrong


class _Checker:
    """Checks the events of one object, in the order of their ends."""

    def __init__(self, name: str, order: list[State]) -> None:
        self._name = name
        self._order = order
        self._index = {state: index for index, state in enumerate(order)}
        self._through: list[tuple[float, int]] = []
        """Ends of what went through the proxy, and the latest state until then."""
        self._all: list[tuple[float, int]] = []

    def take(self, event: Event) -> list[str]:
        least = _before(self._through, event.begin)
        if event.by_proxy and not event.is_write and not event.is_hit:
            least = max(least, _before(self._all, event.begin))
        index = self._find(event.state, least)
        if index is None:
            return [f"{self._name}: {event} is no state that the object ever had from {self._order[least]} on"]
        _add(self._all, event.end, index)
        if event.by_proxy:
            _add(self._through, event.end, index)
        if index >= least or event.is_write:
            return []
        return [f"{self._name}: {event} is older by {least - index} than {self._order[least]}"]

    def _find(self, state: State, least: int) -> int | None:
        if state.uid:
            return self._index.get(state)
        return next((i for i, each in enumerate(self._order) if i >= least and not each.version), None)


def _before(latest: list[tuple[float, int]], moment: float) -> int:
    """The latest state among what had ended before a moment."""
    at = bisect.bisect_left(latest, (moment, -1))
    return latest[at - 1][1] if at else 0


def _add(latest: list[tuple[float, int]], end: float, index: int) -> None:
    latest.append((end, max(index, latest[-1][1] if latest else 0)))


NONE, ONE, TWO, GONE = State("", ""), State("u", "1"), State("u", "2"), State("u", "")
ORDER = {"x": [NONE, ONE, TWO, GONE]}


def at(begin: float, state: State, **more: bool) -> Event:
    return Event(begin, begin + 1, "x", state, **more)


@pytest.mark.parametrize(
    "events",
    [
        [at(0, TWO, is_write=True), at(2, ONE)],
        [at(0, TWO, is_write=True), at(2, ONE, is_hit=True)],
        [at(0, TWO), at(2, ONE, is_hit=True)],
        [at(0, TWO, by_proxy=False, is_write=True), at(2, ONE)],
        [at(0, State("u", "3"), is_hit=True)],
        [at(0, GONE, is_write=True), at(2, TWO, is_hit=True)],
        [at(0, GONE, by_proxy=False, is_write=True), at(2, TWO)],
    ],
)
def test_the_check_finds_what_is_not_allowed(events: list[Event]) -> None:
    assert check(ORDER, events)


@pytest.mark.parametrize(
    "events",
    [
        [at(0, TWO, is_write=True), at(0.5, ONE)],
        [at(0, ONE), at(0.5, TWO), at(2, TWO, is_hit=True)],
        [at(0, TWO, by_proxy=False, is_write=True), at(2, ONE, is_hit=True), at(4, TWO)],
        [at(0, NONE), at(2, ONE), at(4, NONE)],
        [at(0, GONE, is_write=True), at(2, NONE)],
    ],
)
def test_the_check_finds_nothing_where_all_is_allowed(events: list[Event]) -> None:
    assert check(ORDER, events) == []


@dataclass
class History:
    """The clients and what they remember."""

    operating: Operating
    seed: int
    order: dict[str, list[State]] = field(default_factory=lambda: defaultdict(lambda: [State("", "")]))
    contents: dict[tuple[str, State], Object] = field(default_factory=dict)
    plain: dict[tuple[str, State], bytes] = field(default_factory=dict)
    """What plain reads past memory gave."""
    hits: list[tuple[str, State, bytes]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    did: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        space = self.operating.namespace
        self.paths = {
            "configmaps": f"/api/v1/namespaces/{space}/configmaps",
            "deployments": f"/apis/apps/v1/namespaces/{space}/deployments",
        }
        self.names = ("configmaps/a", "configmaps/b", "deployments/web")

    def path(self, name: str) -> str:
        kind, _, own = name.partition("/")
        return f"{self.paths[kind]}/{own}"

    def body(self, name: str, number: int, *, owned: bool) -> Object:
        kind, _, own = name.partition("/")
        metadata: Object = {"name": own, "labels": {"number": str(number)}}
        if owned:
            metadata["ownerReferences"] = [self.operating.owner.reference()]
        if kind == "configmaps":
            return {"metadata": metadata, "data": {"number": str(number)}}
        labels = {"app": own}
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "example.com/i:1"}]}}
        spec = {"replicas": number % 3, "selector": {"matchLabels": labels}, "template": pod}
        return {"metadata": metadata, "spec": spec}

    # What clients do.

    async def get(self, name: str) -> None:
        begin = time.perf_counter()
        reply = await self.operating.ask("GET", self.path(name))
        self._note(begin, name, reply, is_hit=reply.is_hit)
        if reply.status == 200 and reply.is_hit:
            self.hits.append((name, _state(reply.obj), reply.body))
        elif reply.status == 200:
            self.plain[name, _state(reply.obj)] = reply.body

    async def get_otherwise(self, name: str) -> None:
        """Read in a form that is not looked into on its way."""
        begin = time.perf_counter()
        if name.startswith("deployments") and random.random() < 0.5:
            self._note(begin, name, await self.operating.ask("GET", f"{self.path(name)}/scale"))
            return
        reply = await self.operating.ask("GET", self.path(name), Accept=TABLE)
        found = reply.obj["rows"][0]["object"] if reply.status == 200 else None
        self._seen(begin, name, _state(found) if found else State("", ""))

    async def list_all(self, name: str) -> None:
        begin, kind = time.perf_counter(), name.partition("/")[0]
        reply = await self.operating.ask("GET", self.paths[kind])
        there = {f"{kind}/{item['metadata']['name']}": item for item in reply.obj["items"]}
        for each in self.names:
            if each.startswith(kind):
                self._seen(begin, each, _state(there[each]) if each in there else State("", ""))

    async def watch(self, name: str) -> None:
        """Watch for a moment; what comes has been shown."""
        kind, _, own = name.partition("/")
        url = f"{self.operating.proxy.url}{self.paths[kind]}?watch=1&fieldSelector=metadata.name={own}"
        login = {"Authorization": f"Bearer {self.operating.token}"}
        begin = time.perf_counter()
        async with self.operating.session.get(url, headers=login) as answer:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    async for line in answer.content:
                        event = orjson.loads(line)
                        if event["type"] != "DELETED":
                            self._seen(begin, name, _state(event["object"]))

    async def write(self, name: str, rng: random.Random, *, by_proxy: bool) -> None:
        ask = self.operating.ask if by_proxy else self.operating.directly
        path, number = self.path(name), rng.randrange(1000)
        body = self.body(name, number, owned=not by_proxy)
        ways: dict[str, Callable[[], Awaitable[Reply]]] = {
            "patch": lambda: ask("PATCH", path, {"metadata": {"labels": {"number": str(number)}}}),
            "put": lambda: ask("PUT", path, body),
            "create": lambda: ask("POST", path.rpartition("/")[0], body),
            "apply": lambda: ask(
                "PATCH",
                f"{path}?fieldManager=f&force=true",
                {"apiVersion": "v1", "kind": "ConfigMap", **body},
                **{"Content-Type": "application/apply-patch+yaml"},
            ),
            "delete": lambda: ask("DELETE", path),
        }
        if name.startswith("deployments"):
            del ways["apply"]
            ways["scale"] = lambda: ask("PATCH", f"{path}/scale", {"spec": {"replicas": number % 3}})
            ways["status"] = lambda: ask("PATCH", f"{path}/status", {"status": {"collisionCount": number}})
        exists = bool(self.order[name][-1].version)
        way = rng.choice([*ways, "patch"] if exists else [*ways, *["create"] * 8])
        begin = time.perf_counter()
        reply = await ways[way]()
        self.did[f"{way} {reply.status}"] += 1
        if reply.status < 300:
            self._note(begin, name, reply, by_proxy=by_proxy, is_write=True)

    def _note(self, begin: float, name: str, reply: Reply, **what: bool) -> None:
        """Remember an answer: an object, that there is none, or that one was deleted."""
        if reply.status == 404:
            self._seen(begin, name, State("", ""), **what)
            return
        obj = reply.obj
        gone = obj.get("kind") == "Status"
        self._seen(begin, name, State(obj["details"]["uid"], "") if gone else _state(obj), **what)

    def _seen(self, begin: float, name: str, state: State, **what: bool) -> None:
        self.events.append(Event(begin, time.perf_counter(), name, state, **what))

    async def through_proxy(self, number: int, end: float) -> None:
        rng = random.Random(f"{self.seed} proxy {number}")

        async def write(name: str) -> None:
            await self.write(name, rng, by_proxy=True)

        async def nothing(_: str) -> None:
            await asyncio.sleep(0.05)

        while time.perf_counter() < end:
            name = rng.choice(self.names)
            ways = (write, nothing, self.get_otherwise, self.list_all, self.watch)
            await rng.choices(ways, (12, 12, 2, 1, 1))[0](name)
            for _ in range(rng.randrange(12)):
                await self.get(name)
                await asyncio.sleep(rng.choice((0, 0, 0.002, 0.02)))

    async def past_proxy(self, end: float) -> None:
        rng = random.Random(f"{self.seed} past")
        while time.perf_counter() < end:
            await self.write(rng.choice(self.names), rng, by_proxy=False)
            await asyncio.sleep(rng.choice((0, 0.05, 0.3)))

    # What really happened.

    async def follow(self, kind: str, ready: asyncio.Event) -> None:
        credentials = self.operating.credentials
        listed = (await self.operating.directly("GET", self.paths[kind])).obj
        for item in listed["items"]:
            name, state = f"{kind}/{item['metadata']['name']}", _state(item)
            self.order[name] = [state]
        params = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"]}
        asked = self.operating.session.get(
            credentials.base_url + self.paths[kind],
            params=params,
            headers=dict(await credentials.headers()),
            ssl=credentials.ssl or True,
            read_bufsize=1 << 20,
        )
        async with asked as answer:
            ready.set()
            async for line in answer.content:
                event = orjson.loads(line)
                obj = event["object"]
                name, state = f"{kind}/{obj['metadata']['name']}", _state(obj)
                if event["type"] == "DELETED":
                    self.order[name].append(State(state.uid, ""))
                else:
                    self.order[name].append(state)
                    self.contents[name, state] = obj

    async def is_told(self) -> bool:
        """True if the watch has delivered the last version of all objects."""
        for name in self.names:
            reply = await self.operating.directly("GET", self.path(name))
            last = self.order[name][-1]
            if (_state(reply.obj) if reply.status == 200 else None) != (last if last.version else None):
                return False
        return True

    async def run(self, seconds: float) -> list[str]:
        """Let the clients work, and say what was wrong."""
        ready = [asyncio.Event(), asyncio.Event()]
        following = [asyncio.create_task(self.follow(*each)) for each in zip(self.paths, ready, strict=True)]
        for each in ready:
            await each.wait()
        end = time.perf_counter() + seconds
        async with asyncio.TaskGroup() as clients:
            for number in range(4):
                clients.create_task(self.through_proxy(number, end))
            clients.create_task(self.past_proxy(end))
        await until(self.is_told, "the watch to tell the last of it")
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        return [*check(self.order, self.events), *self._wrong_contents()]

    def _wrong_contents(self) -> list[str]:
        wrong = []
        for name, state, body in self.hits:
            if orjson.loads(body) != self.contents.get((name, state), orjson.loads(body)):
                wrong.append(f"{name}: from memory came what never was {state}")
            if body != self.plain.get((name, state), body):
                wrong.append(f"{name}: from memory came {state} in other bytes")
        return wrong


def _state(obj: Object) -> State:
    return State(obj["metadata"]["uid"], obj["metadata"]["resourceVersion"])


def delay_watches(monkeypatch: pytest.MonkeyPatch, longest: float) -> None:
    """Delay the events of every watch of the operator, in their order."""
    prompt = Watcher.follow
    rng = random.Random(SEED)

    async def late(self: Watcher, take: Callable[[WatchEvent], None]) -> None:
        now, told = asyncio.get_running_loop().time, asyncio.Queue[tuple[float, "WatchEvent"]]()
        listening = asyncio.create_task(
            prompt(self, lambda event: told.put_nowait((now() + rng.uniform(0, longest), event)))
        )
        try:
            while True:
                due, event = await told.get()
                await asyncio.sleep(max(due - now(), 0))
                take(event)
        finally:
            listening.cancel()
            await asyncio.wait({listening})

    monkeypatch.setattr(Watcher, "follow", late)


@pytest.mark.parametrize("lag", [0.0, 0.1], ids=["prompt watch", "late watch"])
async def test_no_read_of_a_history_is_older_than_allowed(
    operating: Operating, monkeypatch: pytest.MonkeyPatch, lag: float
) -> None:
    if lag:
        delay_watches(monkeypatch, lag)
    history = History(operating, SEED)
    wrong = await history.run(5)
    told = _tell(history)
    assert wrong == [], told
    assert operating.results["hit"] > 0.2 * operating.results.total(), told


@pytest.mark.nightly
@pytest.mark.parametrize("lag", [0.0, 0.02, 0.3])
async def test_no_read_of_a_long_history_is_older_than_allowed(
    operating: Operating, monkeypatch: pytest.MonkeyPatch, lag: float
) -> None:
    if lag:
        delay_watches(monkeypatch, lag)
    history = History(operating, SEED + random.SystemRandom().randrange(1000))
    wrong = await history.run(60)
    told = _tell(history)
    assert wrong == [], told
    assert operating.results["hit"] > 0.1 * operating.results.total(), told


async def test_with_ignored_writes_the_check_fails(operating: Operating, monkeypatch: pytest.MonkeyPatch) -> None:
    delay_watches(monkeypatch, 0.2)
    monkeypatch.setattr(ReadCache, "_invalidate", lambda *_: None)
    for number in range(5):
        # As a rule the first one does; on a machine that is busy with other things few calls overlap.
        history = History(operating, SEED + number)
        if await history.run(3):
            return
        _tell(history)
    pytest.fail("no history was found wrong")


def _tell(history: History) -> str:
    counts = [f"seed {history.seed}", f"reads {dict(history.operating.results)}", f"{len(history.events)} events"]
    compared = sum((name, state) in history.plain for name, state, _ in history.hits)
    told = "; ".join([*counts, f"{compared} hits compared by bytes", f"writes {dict(history.did)}"])
    print(told)  # noqa: T201 - the seed belongs to the record of a test
    return told
