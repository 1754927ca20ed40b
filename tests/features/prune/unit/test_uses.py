"""What the proxy records for watches with `prune`: used objects, and intents before creations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import orjson
import pytest

from runner.core.kube.discovery import ServedResources
from runner.core.proxy.calls import Handler
from runner.core.proxy.handlers.writes import WRITE_HOOK, Writes
from runner.features.prune.record import Basis, CreationRecord, ObjectId
from runner.features.prune.run_objects import USES, RunObjects
from runner.values.objects import Object, ObjectKey
from runner.values.slots import EMPTY
from tests.unit.proxy.stage import RecordedDependents, Stage, Staged

PATH = "/api/v1/namespaces/ns/configmaps"
KEY = ObjectKey("ns", "a")
IDENT = ObjectId("", "configmaps", KEY)
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
CORE = {"resources": [{"name": "configmaps", "kind": "ConfigMap", "namespaced": True, "verbs": VERBS}]}
APPLY = "application/apply-patch+yaml"


def config_map(**metadata: object) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "ns", **metadata}}


class FakeCluster(RecordedDependents):
    """API server of the handler, observer, and storage of the record."""

    def __init__(self) -> None:
        super().__init__(CORE, interested=False)
        self.stage: Stage | None = None
        self.stored: list[tuple[str, int]] = []
        """Each stored record, with the number of requests that the API server had received."""
        self.objects = RunObjects(CreationRecord(), Basis("1", "c"), self.store, self.fail, lambda: 100.0)

    async def store(self) -> None:
        assert self.stage is not None
        self.stored.append((self.objects.record.spell(), len(self.stage.api.seen)))

    def fail(self) -> None:
        pytest.fail("the record is not full")

    def watch(self, stage: Stage) -> None:
        self.stage = stage
        object.__setattr__(stage.run, "more", EMPTY.having(USES, self.objects).having(WRITE_HOOK, self.objects))


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def handlers(cluster: FakeCluster) -> tuple[Handler, ...]:
    return (Writes(ServedResources(cluster, lambda: 0.0), cluster, cluster),)


@pytest.fixture
async def stage(staged: Staged, handlers: tuple[Handler, ...]) -> AsyncIterator[Stage]:
    async with staged(*handlers) as made:
        yield made


async def write(stage: Stage, start: str, media: str, obj: Object) -> int:
    answer = await stage.ask(start, f"Content-Type: {media}", body=orjson.dumps(obj))
    return answer.status


@pytest.mark.parametrize(("start", "media"), [(f"POST {PATH}", "application/json"), (f"PATCH {PATH}/a", APPLY)])
async def test_an_intent_is_stored_before_the_request_is_forwarded(
    stage: Stage, cluster: FakeCluster, start: str, media: str
) -> None:
    cluster.watch(stage)
    stage.api.answers(stage.reply(orjson.dumps(config_map(uid="u")), "201 Created"))
    assert await write(stage, start, media, config_map()) == 201
    ((text, requests),) = cluster.stored
    assert requests == 0
    assert [each.key for each in CreationRecord.parse(text).intents()] == [KEY]
    assert cluster.objects.record.objects[IDENT].uid == "u"


@pytest.mark.parametrize(
    ("start", "media", "metadata", "status", "left"),
    [
        (f"PATCH {PATH}/a", APPLY, {}, "200 OK", 0),
        (f"PUT {PATH}/a", "application/json", {}, "200 OK", 0),
        (f"PATCH {PATH}/a", "application/merge-patch+json", {}, "200 OK", 0),
        (f"POST {PATH}?dryRun=All", "application/json", {}, "201 Created", 0),
        (f"POST {PATH}", "application/json", {}, "409 Conflict", 1),
        (
            f"POST {PATH}",
            "application/json",
            {"annotations": {"ansible.sdk.operatorframework.io/inject-owner": "false"}},
            "201 Created",
            0,
        ),
    ],
)
async def test_objects_that_exist_or_get_no_owner_are_not_recorded_as_created(
    stage: Stage,
    cluster: FakeCluster,
    start: str,
    media: str,
    metadata: dict[str, object],
    status: str,
    left: int,
) -> None:
    cluster.existing[KEY] = config_map(uid="1")
    cluster.watch(stage)
    stage.api.answers(stage.reply(orjson.dumps(config_map(uid="1")), status))
    await write(stage, start, media, config_map(**metadata))
    assert len(cluster.stored) == left
    assert cluster.objects.record.objects == {}


async def test_an_answer_that_does_not_tell_whether_the_object_exists_leaves_the_intent(
    stage: Stage, cluster: FakeCluster
) -> None:
    cluster.watch(stage)
    stage.api.answers(stage.reply(b"{}", "504 Gateway Timeout"))
    await write(stage, f"POST {PATH}", "application/json", config_map())
    assert [each.key for each in cluster.objects.record.intents()] == [KEY]


@pytest.mark.parametrize(
    ("path", "answer", "used"),
    [
        (f"{PATH}/a", {}, True),
        (f"{PATH}/a/status", {}, True),
        (f"{PATH}?fieldSelector=metadata.name%3Da", {"items": []}, True),
        (f"{PATH}?watch=1", {}, True),
        (PATH, {"items": [config_map()]}, True),
        (PATH, {"kind": "Table", "rows": []}, True),
        (PATH, {"items": []}, False),
        (f"{PATH}/b", {}, False),
        ("/api/v1/namespaces/other/configmaps/a", {}, False),
        ("/api/v1/configmaps?watch=1", {}, True),
        ("/version", {}, False),
    ],
)
async def test_requests_with_its_name_and_lists_with_it_use_an_object(
    stage: Stage, cluster: FakeCluster, path: str, answer: Object, *, used: bool
) -> None:
    cluster.watch(stage)
    body = orjson.dumps(answer)
    stage.api.answers(stage.reply(body))
    assert (await stage.get(path)).body == body
    assert cluster.objects.used.has("configmaps", KEY) is used


@pytest.mark.parametrize(
    ("body", "a", "b"),
    [({"kind": "Status", "details": {"name": "a"}}, True, False), ({"kind": "Status"}, True, True)],
)
async def test_a_creation_that_fails_because_the_object_exists_uses_it(
    stage: Stage, cluster: FakeCluster, body: Object, *, a: bool, b: bool
) -> None:
    cluster.watch(stage)
    stage.api.answers(stage.reply(orjson.dumps(body), "409 Conflict"))
    assert await write(stage, f"POST {PATH}", "application/json", config_map()) == 409
    used = cluster.objects.used
    assert [used.has("configmaps", ObjectKey("ns", name)) for name in ("a", "b")] == [a, b]


async def test_while_the_response_to_a_list_is_not_there_all_objects_of_the_kind_are_in_use(
    stage: Stage, cluster: FakeCluster
) -> None:
    cluster.watch(stage)
    with cluster.objects.gate.deleting("configmaps", KEY):
        listing = asyncio.create_task(stage.get(PATH))
        while not cluster.objects.used.has("configmaps", KEY):
            await asyncio.sleep(0)
        assert stage.api.seen == []
    stage.api.answers(stage.reply(orjson.dumps({"items": []})))
    assert (await listing).status == 200
    assert not cluster.objects.used.has("configmaps", KEY)


async def test_a_run_of_a_watch_without_prune_is_forwarded_and_not_recorded(stage: Stage) -> None:
    stage.api.answers(stage.reply(orjson.dumps({"items": []})))
    await stage.get(PATH)
    stage.api.answers(stage.reply(orjson.dumps(config_map(uid="u")), "201 Created"))
    assert await write(stage, f"POST {PATH}", "application/json", config_map()) == 201
    assert stage.run.more.get(USES) is None
