"""Histories of many clients against a model of the API server whose watch lags, breaks and comes back, in virtual time.

What the real API server answers is tested against the real one (`tests/features/readcache/integration/test_reads.py`);
it cannot be made to lag on demand, nor be asked for thousands of interleavings. Each read is checked at once against
what was allowed when it was asked for. Then the rules of `bodies` and `reads` are broken one by one: each time some
history has to fail, or these checks would prove nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

import orjson
import pytest

from runner.core.kube.discovery import ApiResource
from runner.core.proxy import request
from runner.core.proxy.calls import Answer, Call, Whole
from runner.core.proxy.http.messages import RequestHead
from runner.core.proxy.identity import ActiveRun, RunIdentity
from runner.features.readcache.bodies import MOST_BYTES, ReadCache
from runner.features.readcache.handler import Reads
from runner.values.errors import ApiUnavailableError
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef, Owner
from tests.features.readcache.unit.watched import ObjectVersion, Watched
from tests.kit.virtual_time import virtually

pytestmark = pytest.mark.lengthy

OWNER = Owner(ObjectRef(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("ns", "mc"), "uid-mc"), namespaced=True)
VERBS = frozenset({"get", "list", "watch"})
CONFIG_MAPS = ApiResource(GVK("", "v1", "ConfigMap"), "configmaps", True, VERBS, frozenset())  # noqa: FBT003 - namespaced
COLLECTION = "/api/v1/namespaces/ns/configmaps"
NAMES = ("a", "b", "c")
LAG = 0.2
"""Seconds that the watch may be late."""
TABLE = (b"Accept", b"application/json;as=Table;g=meta.k8s.io;v=v1")


class WrongError(AssertionError):
    """A read that was not allowed."""


@dataclass
class State:
    """What an object was from a moment on; `version` is None while it did not exist."""

    version: ObjectVersion | None
    since: float


@dataclass
class Model:
    """The API server and its watch: linearizable, but for the watch."""

    rng: random.Random
    told_to: Watched
    states: dict[str, list[State]] = field(default_factory=lambda: {name: [State(None, 0.0)] for name in NAMES})
    told: asyncio.Queue[tuple[float, str, ObjectVersion | None]] = field(default_factory=asyncio.Queue)
    revision: int = 0
    later: list[asyncio.Task[None]] = field(default_factory=list)

    @staticmethod
    def now() -> float:
        return asyncio.get_running_loop().time()

    def write(self, name: str, *, exists: bool) -> None:
        """Make a new state, which the watch delivers later."""
        self.revision += 1
        # Versions that say nothing by their order.
        before = self.states[name][-1].version
        uid = before.uid if before is not None else f"uid-{self.revision}"
        version = ObjectVersion(uid, str(self.revision * 7919 % 10007)) if exists else None
        self.states[name].append(State(version, self.now()))
        self.told.put_nowait((self.now() + self.rng.uniform(0, LAG), name, version))

    async def watch(self) -> None:
        """Tell the entries what happens, in order and late; while the watch is broken, nothing."""
        while True:
            due, name, version = await self.told.get()
            while self.told_to.unbroken is None or due > self.now():
                await asyncio.sleep(max(due - self.now(), 0.001))
            self.told_to.applied(ObjectKey("ns", name), version)

    def obj(self, name: str) -> Object | None:
        version = self.states[name][-1].version
        if version is None:
            return None
        reference = OWNER.reference()
        meta = {"name": name, "namespace": "ns", "uid": version.uid, "resourceVersion": version.version}
        index = len(self.states[name]) - 1
        return {"metadata": {**meta, "ownerReferences": [reference]}, "kind": "ConfigMap", "data": {"index": index}}

    async def delay(self) -> None:
        await asyncio.sleep(self.rng.choice((0.0, 0.001, 0.01, 0.1)))

    async def __call__(self, call: Call) -> Answer:
        """Answer as the API server does, soon or late."""
        await self.delay()
        info, fate = call.info, dict(call.headers).get(b"x-fate", b"")
        if fate == b"broken":
            self.later.append(asyncio.create_task(self._write_later(info.name)))
            raise ApiUnavailableError("the connection was lost")
        status, content = self._serve(call)
        await self.delay()
        if fate == b"confused":
            status, content = 500, {"kind": "Status"}
        data = orjson.dumps(content)
        return Answer(status, b"", [(b"Content-Type", b"application/json")], len(data), Whole(data))

    async def _write_later(self, name: str) -> None:
        await asyncio.sleep(self.rng.uniform(0, 1))
        self.write(name, exists=True)

    def _serve(self, call: Call) -> tuple[int, Object]:
        info = call.info
        if not info.name or info.verb in {"list", "watch"}:
            return self._serve_collection(call)
        if self.obj(info.name) is None:
            return 404, {"kind": "Status"}
        if info.verb != "get":
            self.write(info.name, exists=info.verb != "delete")
        if info.verb == "delete" or info.subresource:
            return 200, {"kind": "Status"}
        return 200, self.obj(info.name) or {}

    def _serve_collection(self, call: Call) -> tuple[int, Object]:
        if call.info.verb == "create":
            name = orjson.loads(call.content)["metadata"]["name"]  # type: ignore[arg-type] # held
            if self.obj(name) is not None:
                return 409, {"kind": "Status"}
            self.write(name, exists=True)
            return 201, self.obj(name) or {}
        objects = [self.obj(name) for name in NAMES]
        if call.info.verb != "deletecollection":
            return 200, {"kind": "List", "items": objects}
        for name in NAMES:
            if self.obj(name) is not None:
                self.write(name, exists=False)
        return 200, {"kind": "Status"}


class History:
    """Clients through the proxy and past it, and what the former may be shown."""

    def __init__(self, seed: int, steps: int) -> None:
        self.rng = random.Random(seed)
        self.bodies = ReadCache(MOST_BYTES)
        owner = OWNER.ref
        watched = Watched(self.bodies, CONFIG_MAPS, lambda obj: (owner,) if obj["metadata"].get("uid") else ())
        self.model = Model(self.rng, watched)
        self.results: Counter[str] = Counter()
        self.reads = Reads(self.bodies, self.follows, lambda result: self.results.update([result]))
        run = RunIdentity("job", OWNER, True, True, "")  # noqa: FBT003 - in their order
        self.active = ActiveRun(run)
        self.shown = dict.fromkeys(NAMES, 0)
        """The latest state of each object that a client of the proxy has seen or made."""
        self.unknown: set[str] = set()
        """Objects with a write of unknown outcome."""
        self.steps = steps

    def follows(self, owner: Owner, resource: ApiResource) -> bool:
        return (owner, resource) == (OWNER, CONFIG_MAPS)

    async def ask(self, method: str, path: str, *headers: tuple[bytes, bytes], content: bytes = b"") -> Answer:
        head = RequestHead(method, path, list(headers), "1.1", len(content), keep_alive=True, upgrade=b"")
        call = Call(head, request.parse(method, path), None, list(headers), content, self.active)  # type: ignore[arg-type]
        try:
            answer = await self.reads.handle(call, self.model)
        except ApiUnavailableError:
            call.end()
            raise
        if call.info.verb == "watch":
            answer.release = call.end
        else:
            call.end()
        return answer

    def shows(self, name: str, index: int) -> None:
        self.shown[name] = max(self.shown[name], index)

    async def get(self, name: str) -> None:
        least, asked = self.shown[name], self.model.now()
        unknown = name in self.unknown
        answer = await self.ask("GET", f"{COLLECTION}/{name}")
        is_hit = (b"X-Cache", b"HIT") in answer.headers
        states = self.model.states[name]
        if answer.status == 404:
            index = next((i for i, s in enumerate(states) if i >= least and s.version is None), -1)
            if index < 0:
                raise WrongError(f"{name}: never absent since state {least}")
        else:
            index = orjson.loads(answer.content.take())["data"]["index"]
        if index < least:
            raise WrongError(f"{name}: state {index} was shown, {least} had been shown or made before")
        if is_hit and unknown:
            raise WrongError(f"{name}: nobody knows whether a write took place, yet it came from memory")
        over = states[index + 1].since if index + 1 < len(states) else asked
        if is_hit and over < asked - LAG:
            raise WrongError(f"{name}: from memory came what was over for {asked - over:.2f} s")
        self.shows(name, index)

    async def look(self, name: str) -> None:
        """A read in a form that is not looked into, or a list."""
        listed = self.rng.random() < 0.5
        await self.ask("GET", COLLECTION) if listed else await self.ask("GET", f"{COLLECTION}/{name}", TABLE)
        # The answer is older than its arrival; only its content shows its version.

    async def listed(self) -> None:
        """A list whose content a client looks at."""
        answer = await self.ask("GET", COLLECTION)
        for item in orjson.loads(answer.content.take())["items"]:
            if item:
                self.shows(item["metadata"]["name"], item["data"]["index"])

    async def watch(self, name: str) -> None:
        """A watch that a client leaves open for a while."""
        selector = f"&fieldSelector=metadata.name={name}" if self.rng.random() < 0.5 else ""
        answer = await self.ask("GET", f"{COLLECTION}?watch=1{selector}")
        names = (name,) if selector else NAMES
        for _ in range(self.rng.randrange(10)):
            for each in names:
                self.shows(each, len(self.model.states[each]) - 1)
            await self.model.delay()
        answer.release()

    async def write(self, name: str) -> None:
        kind = self.rng.choice(("PATCH", "PATCH", "PUT", "DELETE", "POST", "POST", "status", "eviction", "collection"))
        before = {each: len(self.model.states[each]) for each in NAMES}
        path, content, headers = f"{COLLECTION}/{name}", b"", []
        if kind == "POST":
            path, content = COLLECTION, orjson.dumps({"metadata": {"name": name}})
        elif kind in {"status", "eviction"}:
            path = f"{path}/{kind}"
        elif kind == "collection":
            path = COLLECTION
        elif self.rng.random() < 0.05:
            headers = [(b"x-fate", self.rng.choice((b"broken", b"confused")))]
        method = {"status": "PATCH", "eviction": "POST", "collection": "DELETE"}.get(kind, kind)
        try:
            answer = await self.ask(method, path, *headers, content=content)
        except ApiUnavailableError:
            self.unknown.add(name)
            return
        if answer.status == 500:
            self.unknown.add(name)
        if answer.status >= 300:
            return
        for each in NAMES if kind == "collection" else (name,):
            # At least the first state that came after this began is what it made, or later.
            self.shows(each, min(before[each], len(self.model.states[each]) - 1))
        if kind in {"PATCH", "PUT", "POST"}:
            self.shows(name, orjson.loads(answer.content.take())["data"]["index"])

    async def client(self) -> None:
        for _ in range(self.steps):
            name = self.rng.choice(NAMES)
            act = self.rng.choices((self.get, self.look, self.watch, self.write), (80, 2, 2, 10))[0]
            await act(name)
            if self.rng.random() < 0.02:
                await self.listed()
            await self.model.delay()

    async def somebody_else(self) -> None:
        while True:
            await asyncio.sleep(self.rng.choice((0.01, 0.3, 2.0)))
            name = self.rng.choice(NAMES)
            self.model.write(name, exists=self.rng.random() < 0.8)
            if self.rng.random() < 0.1:
                self.model.told_to.unbroken = None
                await asyncio.sleep(self.rng.uniform(0, 1))
                self.model.told_to.unbroken = self.model.revision + 2

    async def run(self) -> Counter[str]:
        for name in NAMES:
            self.model.write(name, exists=True)
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(each) for each in (self.model.watch(), self.somebody_else())]
            try:
                async with asyncio.TaskGroup() as clients:
                    for _ in range(3):
                        clients.create_task(self.client())
            finally:
                for task in [*background, *self.model.later]:
                    task.cancel()
        return self.results


async def histories(seeds: range, steps: int = 120) -> Counter[str]:
    results: Counter[str] = Counter()
    for seed in seeds:
        try:
            results += await History(seed, steps).run()
        except* WrongError as wrong:
            errors = wrong.subgroup(lambda error: isinstance(error, WrongError))
            raise WrongError(f"seed {seed}: {errors!r}") from None
    return results


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 200), marks=pytest.mark.nightly)])
def test_no_read_is_older_than_what_went_through_the_proxy_before_and_many_are_hits(seeds: range) -> None:
    results = virtually(histories(seeds))
    assert results["hit"] > 0.3 * results.total(), results
