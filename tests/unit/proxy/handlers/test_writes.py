"""Writes that pass the proxy: their owners and the reports to dependents."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import orjson
import pytest
import yaml
from structlog.testing import capture_logs

from runner.core.kube.discovery import ApiResource, ServedResources
from runner.core.proxy.handlers.owners import ADOPT, INJECT_OWNER
from runner.core.proxy.handlers.writes import Writes
from runner.core.proxy.protobuf import message, read, text
from runner.values.errors import ForbiddenError, NotFoundError, ServerError, ThrottledError
from runner.values.objects import Object, ObjectKey, Owner, OwnerState
from tests.kit.wait import until
from tests.unit.proxy.stage import Message, RecordedDependents, Stage, Staged

PATH = "/api/v1/namespaces/ns/configmaps"
MEDIA = {
    "create": "Content-Type: application/json",
    "update": "Content-Type: application/json",
    "apply": "Content-Type: application/apply-patch+yaml",
    "merge": "Content-Type: application/merge-patch+json",
    "strategic-merge": "Content-Type: application/strategic-merge-patch+json",
}
"""The media type of each way to write."""
STARTS = dict.fromkeys(MEDIA, f"PATCH {PATH}/a") | {"create": f"POST {PATH}", "update": f"PUT {PATH}/a"}
"""The method and target of each way to write."""
REFERENCE = {"apiVersion": "cache.example.com/v1", "kind": "Memcached", "name": "sample", "uid": "uid-sample"}
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
CORE = {
    "resources": [
        {"name": "configmaps", "kind": "ConfigMap", "namespaced": True, "verbs": VERBS},
        {"name": "configmaps/status", "kind": "ConfigMap", "namespaced": True, "verbs": ["update", "patch"]},
        {"name": "nodes", "kind": "Node", "namespaced": False, "verbs": VERBS},
        {"name": "bindings", "kind": "Binding", "namespaced": True, "verbs": ["create"]},
    ]
}


def config_map(**metadata: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "ns", **metadata}}


class FakeCluster(RecordedDependents):
    """As `RecordedDependents`, with an API that cannot be discovered, and interest in ConfigMaps of one owner."""

    def __init__(self) -> None:
        super().__init__(CORE)
        self.discoveries = 0
        self.busy = False

    async def request(self, method: str, path: str) -> Object:
        self.discoveries += 1
        if self.busy:
            raise ThrottledError("later", status=429)
        if path == "/apis/broken/v1":
            raise ForbiddenError("no", status=403)
        if (method, path) != ("GET", "/api/v1"):
            raise NotFoundError("no", status=404)
        return CORE

    def wants(self, owner: Owner, resource: ApiResource, namespace: str) -> bool:
        del namespace
        return self.interested and (owner.ref.key.name, resource.plural) == ("sample", "configmaps")


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def writes(cluster: FakeCluster) -> Writes:
    return Writes(ServedResources(cluster, lambda: 0.0), cluster, cluster)


@pytest.fixture
async def stage(staged: Staged, writes: Writes) -> AsyncIterator[Stage]:
    async with staged(writes) as made:
        yield made


async def send(stage: Stage, start: str, obj: object, *headers: str) -> Message:
    """Send an object and return what came through."""
    data = obj if isinstance(obj, bytes) else orjson.dumps(obj)
    answer = await stage.ask(start, *(headers or ("Content-Type: application/json",)), body=data)
    assert answer.status in {200, 201}
    return stage.api.seen[-1]


async def test_yaml_with_everything_in_it_means_the_same_afterwards(stage: Stage) -> None:
    text = "kind: ConfigMap\nmetadata: {name: a}\ndata:\n  date: 2020-01-01\n  'on': 'yes'\n"
    text += '  odd: "\\x7f\\u0085\\u2028\\U0001F600"\n'
    seen = await send(stage, f"PATCH {PATH}/a", text.encode(), "Content-Type: application/apply-patch+yaml")
    sent = yaml.safe_load(seen.body)
    assert sent["metadata"]["ownerReferences"] == [REFERENCE]
    assert sent["data"] == {"date": "2020-01-01", "on": "yes", "odd": "\x7f\x85\u2028\U0001f600"}


async def test_content_without_a_change_is_forwarded_byte_by_byte(stage: Stage) -> None:
    body = b'{ "metadata": {"ownerReferences": [%s]},  "x":1.0, "x": 2}' % orjson.dumps(REFERENCE)
    assert (await send(stage, f"POST {PATH}", body)).body == body


async def test_a_temporary_error_of_a_lookup_is_returned_and_no_object_is_created_without_owner(
    stage: Stage, cluster: FakeCluster
) -> None:
    body = orjson.dumps(config_map())
    header = "Content-Type: application/apply-patch+yaml"
    cluster.existing[ObjectKey("ns", "a")] = ServerError("etcd is down", status=503)
    answer = await stage.ask(f"PATCH {PATH}/a", header, body=body)
    assert answer.status == 503
    assert b"etcd is down" in answer.body
    cluster.busy = True
    answer = await stage.ask("POST /apis/other/v1/namespaces/ns/things", header, body=body)
    assert answer.status == 503
    assert stage.api.seen == []


@pytest.mark.parametrize("form", ["update", "apply"])
@pytest.mark.parametrize(
    ("existing", "is_owned"),
    [
        (None, True),
        (config_map(uid="1"), False),
        (config_map(uid="1", ownerReferences=[REFERENCE]), True),
        (ForbiddenError("no", status=403), False),
    ],
    ids=["none", "of others", "of the owner", "unreadable"],
)
async def test_updates_and_applies_own_created_objects_and_do_not_change_existing_ones(
    stage: Stage, cluster: FakeCluster, form: str, existing: Object | Exception | None, *, is_owned: bool
) -> None:
    if existing is not None:
        cluster.existing[ObjectKey("ns", "a")] = existing
    seen = await send(stage, STARTS[form], config_map(), MEDIA[form])
    assert orjson.loads(seen.body) == (config_map(ownerReferences=[REFERENCE]) if is_owned else config_map())


@pytest.mark.parametrize("form", ["merge", "strategic-merge"])
async def test_a_merge_patch_with_the_annotation_adopts_or_releases_the_object(
    stage: Stage, cluster: FakeCluster, form: str
) -> None:
    cluster.existing[ObjectKey("ns", "a")] = config_map(uid="1")

    async def sent(patch: Object) -> Object:
        body: Object = orjson.loads((await send(stage, STARTS[form], patch, MEDIA[form])).body)
        return body

    assert await sent({"data": {"x": "y"}}) == {"data": {"x": "y"}}
    adopting = await sent({"metadata": {"annotations": {ADOPT: "true"}}})
    assert adopting["metadata"]["ownerReferences"] == [REFERENCE]
    cluster.existing[ObjectKey("ns", "a")] = config_map(uid="1", ownerReferences=[REFERENCE])
    released = await sent({"metadata": {"annotations": {INJECT_OWNER: "false"}}})
    removal = {"merge": [], "strategic-merge": [{"$patch": "delete", "uid": REFERENCE["uid"]}]}
    assert released["metadata"]["ownerReferences"] == removal[form]


@pytest.mark.parametrize("form", ["apply", "update", "merge"])
async def test_two_runs_that_adopt_an_object_at_the_same_time_both_become_owners(
    stage: Stage, cluster: FakeCluster, form: str
) -> None:
    start = STARTS[form] + ("" if form == "update" else "?fieldManager=ansible")
    key = ObjectKey("ns", "a")
    cluster.existing[key] = config_map(uid="1")

    async def script(message: Message, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.01)
        references = orjson.loads(message.body)["metadata"]["ownerReferences"]
        keys: Object = {f'k:{{"uid":"{each["uid"]}"}}': {} for each in references}
        fields = {"f:metadata": {"f:ownerReferences": keys}}
        applied = [{"manager": "ansible", "operation": "Apply", "fieldsV1": fields}]
        cluster.existing[key] = config_map(uid="1", ownerReferences=references, managedFields=applied)
        writer.write(stage.reply(orjson.dumps(cluster.existing[key])))

    body = orjson.dumps(config_map(annotations={ADOPT: "true"}))
    stage.api.script = script
    for name in ("sample", "two"):
        ref = replace(stage.run.owner.ref, key=ObjectKey("ns", name), uid=f"uid-{name}")
        run = replace(stage.run, owner=replace(stage.run.owner, ref=ref))
        stage.token = stage.identities.issue(run)
        wire = await stage.connect()
        wire.send(stage.request(start, MEDIA[form], body=body))
    await until(lambda: len(stage.api.seen) == 2)
    owners = orjson.loads(stage.api.seen[1].body)["metadata"]["ownerReferences"]
    assert {each["uid"] for each in owners} == {"uid-sample", "uid-two"}


OF_OWNERS = {
    ADOPT: "true",
    INJECT_OWNER: "false",
    "operator-sdk/primary-resource": "victim/one",
    "operator-sdk/primary-resource-type": "Memcached.cache.example.com",
}


@pytest.mark.parametrize("existing", [None, {"uid": "1"}, {"uid": "1", "ownerReferences": [REFERENCE]}])
@pytest.mark.parametrize("form", MEDIA)
async def test_a_watch_can_disable_annotations_about_owners(
    stage: Stage, cluster: FakeCluster, form: str, existing: dict[str, Any] | None
) -> None:
    if existing is not None:
        cluster.existing[ObjectKey("ns", "a")] = config_map(**existing)
    body = config_map(annotations={"team": "a", **OF_OWNERS})
    stage.token = stage.identities.issue(stage.make_run(owner_annotations=False))
    seen = orjson.loads((await send(stage, STARTS[form], body, MEDIA[form])).body)
    assert seen["metadata"]["annotations"] == {"team": "a"}
    is_new = form == "create" or (existing is None and "merge" not in form)
    is_kept = form in {"apply", "update"} and existing is not None and "ownerReferences" in existing
    assert seen["metadata"].get("ownerReferences") == ([REFERENCE] if is_new or is_kept else None)


async def test_annotations_about_owners_have_no_value_in_protobuf_where_the_watch_disables_them(stage: Stage) -> None:
    noted = b"".join(message(12, text(1, name) + text(2, value)) for name, value in {"team": "a", **OF_OWNERS}.items())
    raw = message(1, text(1, "a") + noted)
    content = b"k8s\0" + message(1, text(1, "v1") + text(2, "ConfigMap")) + message(2, raw)
    stage.token = stage.identities.issue(stage.make_run(owner_annotations=False))
    seen = read((await send(stage, f"POST {PATH}", content, "Content-Type: application/vnd.kubernetes.protobuf")).body)
    assert seen is not None
    assert seen["metadata"]["annotations"] == {"team": "a", **dict.fromkeys(OF_OWNERS, "")}
    assert seen["metadata"]["ownerReferences"] == [REFERENCE]


async def test_a_list_loses_the_annotations_of_each_object(stage: Stage) -> None:
    items = [config_map(annotations=OF_OWNERS), config_map(annotations={"team": "a"})]
    stage.token = stage.identities.issue(stage.make_run(owner_annotations=False))
    seen = await send(stage, f"POST {PATH}", {"apiVersion": "v1", "kind": "List", "items": items})
    sent = orjson.loads(seen.body)["items"]
    assert [each["metadata"]["annotations"] for each in sent] == [{}, {"team": "a"}]
    assert [each["metadata"]["ownerReferences"] for each in sent] == [[REFERENCE]] * 2


async def test_protobuf_gets_the_owner_and_keeps_every_owner_when_it_replaces(
    stage: Stage, cluster: FakeCluster
) -> None:
    content = b"k8s\0\n\x0f\n\x02v1\x12\x09ConfigMap\x12\x05\n\x03\n\x01a"
    other = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "other", "controller": True}
    cluster.existing[ObjectKey("ns", "a")] = config_map(ownerReferences=[other, REFERENCE])
    header = "Content-Type: application/vnd.kubernetes.protobuf"
    created = read((await send(stage, f"POST {PATH}", content, header)).body)
    replaced = read((await send(stage, f"PUT {PATH}/a", content, header)).body)
    metadata = {"name": "a", "ownerReferences": [REFERENCE]}
    assert created == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    assert replaced is not None
    assert replaced["metadata"]["ownerReferences"] == [other, REFERENCE]


async def test_a_json_patch_passes_as_it_is(stage: Stage) -> None:
    patch = b'[{"op": "add", "path": "/data/x", "value": "y"}]'
    seen = await send(stage, f"PATCH {PATH}/a", patch, "Content-Type: application/json-patch+json")
    assert seen.body == patch


@pytest.mark.parametrize(
    ("start", "headers"),
    [
        (f"POST {PATH}/a/binding", ()),
        (f"PUT {PATH}/a/status", ()),
        ("POST /api/v1/namespaces/ns/bindings", ()),
        ("POST /api/v1/namespaces/ns/unknown", ()),
        ("POST /apis/broken/v1/namespaces/ns/things", ()),
        ("POST /some/path", ()),
        (f"POST {PATH}", ("Content-Type: application/cbor",)),
    ],
)
async def test_writes_that_get_no_owner_are_forwarded_unchanged(
    stage: Stage, start: str, headers: tuple[str, ...]
) -> None:
    assert (await send(stage, start, config_map(), *headers)).body == orjson.dumps(config_map())


async def test_without_injection_no_owner_is_added_and_nothing_is_reported(stage: Stage, cluster: FakeCluster) -> None:
    stage.token = stage.identities.issue(replace(stage.run, inject=False))
    assert (await send(stage, f"POST {PATH}", config_map())).body == orjson.dumps(config_map())
    assert not cluster.reports
    assert not cluster.discoveries


@pytest.mark.parametrize("body", [b"no json", b"[1]", b'"text"', b"{\xff}"])
async def test_content_that_is_not_an_object_is_forwarded_unchanged(stage: Stage, body: bytes) -> None:
    assert (await send(stage, f"POST {PATH}", body)).body == body


async def test_content_too_large_to_be_held_passes_as_it_is_with_one_warning(stage: Stage) -> None:
    body = orjson.dumps({**config_map(), "data": {"x": "y" * (5 << 20)}})
    with capture_logs() as logs:
        for _ in range(2):
            assert (await send(stage, f"POST {PATH}", body)).body == body
        wire = await stage.connect()
        chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        wire.send(stage.request(f"POST {PATH}", "Content-Type: application/json", "Transfer-Encoding: chunked"))
        assert (await wire.ask(chunked)).status == 200
        assert stage.api.seen[-1].body == body
    assert len([line for line in logs if line["log_level"] == "warning"]) == 1


_JSON, _APPLY = "application/json", "application/apply-patch+yaml"


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("media", "deep"),
    [
        (_JSON, b"[" * 300 + b"]" * 300),  # orjson reads it, and does not write it
        (_JSON, b'{"a":' * 1500 + b"1" + b"}" * 1500),  # orjson does not read it
        (_APPLY, b"[" * 1500 + b"]" * 1500),
        (_APPLY, b"[a, " * 1500 + b"]" * 1500),  # YAML
        (_APPLY, b"[a, " * 100_000 + b"]" * 100_000),  # libyaml would exhaust the stack
        (_APPLY, b"\n- " + b"- " * 100_000 + b"x"),
    ],
)
async def test_an_object_that_nests_too_deeply_for_an_owner_is_forwarded_with_a_warning_and_observed(
    stage: Stage, cluster: FakeCluster, media: str, deep: bytes
) -> None:
    head = b'"kind": "ConfigMap", "metadata": {"name": "a"}'
    body = b"{%b, data: {x: %b}}" % (head, deep) if media == _APPLY else b'{%b, "data": %b}' % (head, deep)
    if deep.startswith(b"\n"):
        body = b"kind: ConfigMap\nmetadata: {name: a}\ndata:" + deep
    stored = b'{%b, "data": %b}' % (head, b"[" * 5000 + b"]" * 5000)
    stage.api.answers(stage.reply(stored))
    with capture_logs() as logs:
        start = f"PATCH {PATH}/a" if media == _APPLY else f"POST {PATH}"
        seen = await send(stage, start, body, f"Content-Type: {media}")
    assert seen.body == body
    (warning,) = (line for line in logs if line["log_level"] == "warning")
    assert warning["event"].startswith("Cannot add the owner: the object is too large, too deep or invalid; set the")
    assert cluster.reports == [("wrote configmaps of sample", "a")]


async def test_an_object_with_half_a_character_which_the_api_server_accepts_is_forwarded_with_a_warning(
    stage: Stage,
) -> None:
    body = b'{"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "caf\\udce9"}}'
    with capture_logs() as logs:
        seen = await send(stage, f"POST {PATH}", body)
    assert seen.body == body
    (warning,) = (line for line in logs if line["log_level"] == "warning")
    assert warning["event"].startswith("Cannot add the owner: the object is too large, too deep or invalid")


async def test_a_client_that_waits_for_leave_gets_it(stage: Stage) -> None:
    wire = await stage.connect()
    body = orjson.dumps(config_map())
    wire.send(stage.request(f"POST {PATH}", "Expect: 100-continue", f"Content-Length: {len(body)}"))
    assert (await stage.read_head(wire.reader)).status == 100
    assert (await wire.ask(body)).status == 200
    assert stage.api.seen[-1].get("Expect") is None
    assert b"ownerReferences" in stage.api.seen[-1].body


@pytest.mark.parametrize(
    ("start", "body", "reports"),
    [
        (f"POST {PATH}", b"{}", "wrote configmaps of sample"),
        (f"PUT {PATH}/a", b"{}", "wrote configmaps of sample"),
        (f"PATCH {PATH}/a", b"{}", "wrote configmaps of sample"),
        (f"PATCH {PATH}/a/status", b"{}", "wrote configmaps of sample"),
        (f"DELETE {PATH}/a", b"{}", "deleted configmaps of sample"),
        (f"GET {PATH}/a", b"", "read configmaps of sample"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
async def test_a_write_or_read_is_reported_before_the_client_gets_the_answer(
    stage: Stage, cluster: FakeCluster, start: str, body: bytes, reports: str, *, packed: bool
) -> None:
    data = orjson.dumps(config_map(resourceVersion="7"))
    sent = gzip.compress(data) if packed else data
    stage.api.answers(stage.reply(sent, "200 OK", *(["Content-Encoding: gzip"] if packed else [])))
    answer = await stage.ask(start, "Content-Type: application/merge-patch+json", body=body)
    assert answer.body == sent
    assert cluster.reports == [(reports, "a")]


PROTOBUF = "Content-Type: application/vnd.kubernetes.protobuf"
STORED = message(1, text(1, "a") + text(3, "ns") + text(5, "uid-a") + text(6, "7"))


def protobuf(kind: str, raw: bytes = STORED) -> bytes:
    return b"k8s\0" + message(1, text(1, "v1") + text(2, kind)) + message(2, raw)


@pytest.mark.parametrize(
    ("start", "body", "reports"),
    [
        (f"POST {PATH}", protobuf("ConfigMap"), "wrote configmaps of sample"),
        (f"PATCH {PATH}/a", protobuf("ConfigMap"), "wrote configmaps of sample"),
        (f"GET {PATH}/a", protobuf("ConfigMap"), "read configmaps of sample"),
        (f"DELETE {PATH}/a", protobuf("ConfigMap"), "deleted configmaps of sample"),
        (f"DELETE {PATH}", protobuf("ConfigMapList", message(2, STORED)), "deleted configmaps of sample"),
    ],
)
async def test_objects_in_protobuf_are_reported_like_those_in_json(
    stage: Stage, cluster: FakeCluster, start: str, body: bytes, reports: str
) -> None:
    stage.api.answers(stage.reply(body, "200 OK", PROTOBUF))
    sent = b"" if start.startswith("GET") else b"{}"
    answer = await stage.ask(start, "Content-Type: application/merge-patch+json", body=sent)
    assert answer.body == body
    assert cluster.reports == [(reports, "a")]


async def test_the_objects_of_a_table_are_reported(stage: Stage, cluster: FakeCluster) -> None:
    rows = [{"object": {**config_map(), "kind": "PartialObjectMetadata"}}, {"cells": []}, None]
    stage.api.answers(stage.reply(orjson.dumps({"kind": "Table", "rows": rows})))
    await stage.ask(f"PATCH {PATH}/a", "Content-Type: application/merge-patch+json", body=b"{}")
    assert cluster.reports == [("wrote configmaps of sample", "a")]


@pytest.mark.parametrize("headers", [(), ("Content-Type: application/cbor",)], ids=["no content", "an unknown type"])
@pytest.mark.parametrize("start", [f"POST {PATH}", f"PATCH {PATH}/a"])
async def test_an_object_that_an_answer_does_not_contain_is_read(
    stage: Stage, cluster: FakeCluster, start: str, headers: tuple[str, ...]
) -> None:
    body = orjson.dumps(config_map())
    header = f"Content-Type: application/{'json' if start.startswith('POST') else 'merge-patch+json'}"
    stage.api.answers(stage.reply(b"\xd9\xd9\xf7" if headers else b"", "200 OK", *headers))
    with capture_logs() as logs:
        await stage.ask(start, header, body=body)
        assert not cluster.reports
        cluster.existing[ObjectKey("ns", "a")] = config_map(uid="1")
        await stage.ask(start, header, body=body)
    assert cluster.reports == [("wrote configmaps of sample", "a")]
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == [
        "Cannot read an object that a run wrote: its changes are not watched"
    ]


async def test_each_object_of_a_deleted_collection_is_reported(stage: Stage, cluster: FakeCluster) -> None:
    stage.api.answers(stage.reply(orjson.dumps({"kind": "ConfigMapList", "items": [config_map(), config_map()]})))
    await stage.ask(f"DELETE {PATH}")
    assert cluster.reports == [("deleted configmaps of sample", "a")] * 2


@pytest.mark.parametrize(
    ("start", "answer"),
    [
        (f"POST {PATH}", "409 Conflict"),
        (f"POST {PATH}?dryRun=All", "201 Created"),
        (f"GET {PATH}/a", "404 Not Found"),
        (f"GET {PATH}", "200 OK"),
        (f"POST {PATH}/a/eviction", "201 Created"),
    ],
)
async def test_writes_without_an_effect_are_not_reported(
    stage: Stage, cluster: FakeCluster, start: str, answer: str
) -> None:
    stage.api.answers(stage.reply(orjson.dumps(config_map()), answer))
    await stage.ask(start, body=b"{}" if start.startswith("POST") else b"")
    assert not cluster.reports


async def test_reads_that_are_not_observed_are_streamed(stage: Stage, cluster: FakeCluster) -> None:
    cluster.interested = False
    stage.api.answers(stage.reply(orjson.dumps(config_map())))
    assert (await stage.get(f"{PATH}/a")).status == 200
    assert not cluster.reports


async def test_a_write_is_reported_although_its_client_has_disconnected(stage: Stage, cluster: FakeCluster) -> None:
    go = asyncio.Event()

    async def script(_: Message, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        writer.write(stage.reply(orjson.dumps(config_map())))

    stage.api.script = script
    wire = await stage.connect()
    wire.send(stage.request(f"POST {PATH}", body=b"{}"))
    await until(lambda: stage.api.seen)
    wire.close()
    await wire.writer.wait_closed()
    await asyncio.sleep(0.02)
    go.set()
    await until(lambda: cluster.reports)


async def test_a_warning_is_logged_once_for_each_namespace(stage: Stage) -> None:
    with capture_logs() as logs:
        for namespace in ("ns", "other", "ns"):
            await send(stage, f"POST /api/v1/namespaces/{namespace}/configmaps", b"text", "Content-Type: text/plain")
    warnings = [line["event"] for line in logs if line["log_level"] == "warning"]
    assert len(warnings) == 2
    assert warnings[0].startswith("Cannot add the owner: the request is no JSON, YAML or protobuf")


async def test_kinds_are_discovered_once_and_again_for_a_new_kind(stage: Stage, cluster: FakeCluster) -> None:
    for _ in range(3):
        await send(stage, f"POST {PATH}", config_map())
    assert cluster.discoveries == 1
    await send(stage, "POST /api/v1/namespaces/ns/news", config_map())
    assert cluster.discoveries == 2


@pytest.mark.parametrize(
    ("state", "refused"),
    [
        (OwnerState.EXISTS, set()),
        (OwnerState.GONE, {"POST", "PATCH"}),
        (OwnerState.REPLACED, {"POST", "PATCH", "PUT", "DELETE"}),
    ],
)
async def test_a_run_whose_object_was_deleted_creates_nothing_and_one_whose_object_was_replaced_writes_nothing(
    stage: Stage, cluster: FakeCluster, state: OwnerState, refused: set[str]
) -> None:
    cluster.existing[ObjectKey("ns", "others")] = config_map(uid="1")
    requests = {
        "POST": (PATH, "application/json"),
        "PATCH": (f"{PATH}/a", "application/apply-patch+yaml"),
        "PUT": (f"{PATH}/others", "application/json"),
        "DELETE": (f"{PATH}/a", "application/json"),
    }

    async def owner_state() -> OwnerState:
        return state

    stage.token = stage.identities.issue(replace(stage.run, owner_state=owner_state))
    for method, (path, kind) in requests.items():
        wire = await stage.connect()
        data = orjson.dumps(config_map())
        answer = await wire.ask(stage.request(f"{method} {path}", f"Content-Type: {kind}", body=data))
        assert (answer.status == 410) == (method in refused), method
        if method in refused:
            reports = orjson.loads(answer.body)
            assert reports["reason"] == "Gone"
            assert reports["message"].startswith("Memcached ns/sample ")
            assert "UID uid-sample" in reports["message"]
    assert {each.start.split()[0] for each in stage.api.seen} == requests.keys() - refused


async def test_requests_for_many_groups_do_not_fill_the_memory() -> None:
    class Discovery:
        async def request(self, *_: object, **__: object) -> dict[str, object]:
            raise NotFoundError("no such group", status=404)

    served = ServedResources(Discovery(), lambda: 0.0)
    for number in range(1200):
        assert await served.find(f"group{number}", "v1", "things") is None
    assert len(served._lookups) <= 500
