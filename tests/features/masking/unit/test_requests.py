"""Secret values of a run: from its requests, and from tasks with no_log."""

from __future__ import annotations

import ast
import base64
import gzip
import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import orjson
import pytest

from runner.core.engine import run_secrets
from runner.core.engine.redaction import UNREPORTED
from runner.core.masking.masker import MASK
from runner.core.proxy.protobuf import message, text
from runner.features.masking.feature import FEATURE
from runner.features.masking.requests import NO_LOG_PATH
from tests.unit.proxy.stage import Stage

PATH = "/api/v1/namespaces/ns/secrets"
VALUE = "hunter2hunter2"
PROTOBUF = "application/vnd.kubernetes.protobuf"


def encoded(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def secret(**different: Any) -> dict[str, Any]:
    metadata = {"name": "mine-secret", "namespace": "ns-of-it"}
    return {"kind": "Secret", "metadata": metadata, "data": {"a": encoded(VALUE)}, **different}


def protobuf(kind: str, raw: bytes) -> bytes:
    return b"k8s\0" + message(1, text(1, "v1") + text(2, kind)) + message(2, raw)


def protobuf_secret(value: str, field: int = 2) -> bytes:
    return message(1, text(1, "mine-secret")) + message(field, text(1, "a") + text(2, value))


def knows(stage: Stage, value: str = VALUE) -> bool:
    return stage.run.secrets.masker.text(value) == MASK


LAST_APPLIED = text(1, "kubectl.kubernetes.io/last-applied-configuration") + text(
    2, f'{{"stringData": {{"a": "{VALUE}"}}}}'
)
ANSWERS = {
    "a Secret": orjson.dumps(secret()),
    "a list": orjson.dumps({"kind": "SecretList", "items": [{"data": None}, secret()]}),
    "a List": orjson.dumps({"kind": "List", "items": [secret()]}),
    "a table with objects": orjson.dumps({"kind": "Table", "rows": [{"cells": ["x"], "object": secret()}]}),
    "what was last applied": orjson.dumps(
        secret(
            data={},
            metadata={
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": orjson.dumps(
                        {"stringData": {"a": VALUE}}
                    ).decode()
                }
            },
        )
    ),
    "protobuf": protobuf("Secret", protobuf_secret(VALUE)),
    "a list in protobuf": protobuf("SecretList", message(2, protobuf_secret(VALUE))),
    "metadata in protobuf": protobuf("PartialObjectMetadata", message(1, message(12, LAST_APPLIED))),
    "a list of metadata in protobuf": protobuf(
        "PartialObjectMetadataList", message(2, message(1, message(12, LAST_APPLIED)))
    ),
    "YAML": f"kind: Secret\ndata:\n  a: {encoded(VALUE)}\n".encode(),
}


@pytest.mark.parametrize("body", ANSWERS.values(), ids=ANSWERS)
async def test_values_are_recorded_before_the_client_gets_the_response(stage: Stage, body: bytes) -> None:
    media = PROTOBUF if body.startswith(b"k8s") else "application/yaml" if body.startswith(b"kind") else None
    stage.api.answers(stage.reply(body, "200 OK", f"Content-Type: {media or 'application/json'}"))
    assert (await stage.get(f"{PATH}/a")).body == body
    assert knows(stage)
    assert not stage.run.secrets.is_exhausted


async def test_values_beside_deeply_nested_fields_are_learned(stage: Stage) -> None:
    deep = orjson.dumps(secret())[:-1] + b', "extra": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    stage.api.answers(stage.reply(deep, "200 OK", "Content-Type: application/json"))
    assert (await stage.get(f"{PATH}/a")).body == deep
    assert knows(stage)
    assert not stage.run.secrets.is_exhausted


async def test_yaml_that_nests_too_deeply_to_be_read_withholds_the_output(stage: Stage) -> None:
    body = b"stringData: {a: b}\nextra: " + b"[a, " * 1500 + b"]" * 1500
    wire = await stage.connect()
    kind = "Content-Type: application/apply-patch+yaml"
    assert (await wire.ask(stage.request(f"PATCH {PATH}/a", kind, body=body))).status == 200
    assert stage.run.secrets.is_exhausted


async def test_packed_answers_are_read(stage: Stage) -> None:
    packed = gzip.compress(orjson.dumps(secret()))
    stage.api.answers(
        stage.reply(packed, "200 OK", "Content-Type: application/json", "Content-Encoding: gzip"),
    )
    assert (await stage.get(PATH)).body == packed
    assert knows(stage)


WRITES = {
    "POST": ("application/json", orjson.dumps(secret(data={}, stringData={"a": VALUE}))),
    "PUT": ("application/yaml", f"stringData:\n  a: {VALUE}\n".encode()),
    "PATCH by merge": ("application/merge-patch+json", orjson.dumps({"data": {"a": encoded(VALUE)}})),
    "PATCH by strategic merge": ("application/strategic-merge-patch+json", orjson.dumps({"stringData": {"a": VALUE}})),
    "PATCH by apply": ("application/apply-patch+yaml", f"stringData: {{a: {VALUE}}}".encode()),
    "PATCH of a value": (
        "application/json-patch+json",
        orjson.dumps([{"op": "test", "path": "/x"}, {"op": "add", "path": "/data/a~1b", "value": encoded(VALUE)}]),
    ),
    "PATCH of all values": (
        "application/json-patch+json",
        orjson.dumps([{"op": "replace", "path": "/stringData", "value": {"a": VALUE}}]),
    ),
    "PATCH of the whole": ("application/json-patch+json", orjson.dumps([{"op": "add", "path": "", "value": secret()}])),
    "POST in protobuf": (PROTOBUF, protobuf("Secret", protobuf_secret(VALUE, 4))),
}


@pytest.mark.parametrize(("how", "write"), WRITES.items(), ids=WRITES)
async def test_values_are_recorded_before_the_api_server_gets_the_request(
    stage: Stage, how: str, write: tuple[str, bytes]
) -> None:
    media, body = write
    stage.api.answers(stage.reply(b"{}", "409 Conflict"))
    wire = await stage.connect()
    path = PATH if how.startswith("POST") else f"{PATH}/a"
    await wire.ask(stage.request(f"{how.split(maxsplit=1)[0]} {path}", f"Content-Type: {media}", body=body))
    assert stage.api.seen[0].body == body
    assert knows(stage)
    assert not stage.run.secrets.is_exhausted


@pytest.mark.parametrize("binary", [False, True])
async def test_a_watch_is_learned_from_as_it_passes(stage: Stage, *, binary: bool) -> None:
    if binary:
        events = [
            message(2, message(1, protobuf("Secret", protobuf_secret(value)))) for value in (VALUE, "another-one")
        ]
        stream = b"".join(len(event).to_bytes(4, "big") + event for event in events)
    else:
        events = [
            orjson.dumps({"type": "ADDED", "object": secret(data={"a": encoded(v)})}) for v in (VALUE, "another-one")
        ]
        stream = b"".join(event + b"\n" for event in events)
    media = PROTOBUF if binary else "application/json"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {media}\r\nTransfer-Encoding: chunked\r\n\r\n"
    cut = len(stream) // 3

    stage.api.answers(
        head.encode()
        + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (stream[:cut], stream[cut:]))
        + b"0\r\n\r\n"
    )
    assert (await stage.get(f"{PATH}?watch=1")).body == stream
    assert knows(stage)
    assert knows(stage, "another-one")


async def test_tokens_made_for_a_service_account_are_secret(stage: Stage) -> None:
    stage.api.answers(
        stage.reply(orjson.dumps({"status": {"token": VALUE}}), "201 Created", "Content-Type: application/json")
    )
    await stage.ask("POST /api/v1/namespaces/ns/serviceaccounts/a/token", body=b"{}")
    assert knows(stage)


async def test_other_objects_and_refusals_add_no_values(stage: Stage) -> None:
    body = orjson.dumps(secret())
    stage.api.answers(
        *[stage.reply(body, "200 OK", "Content-Type: application/json")] * 3, stage.reply(body, "403 Forbidden")
    )
    for path in ("/api/v1/namespaces/ns/configmaps/a", "/apis/example.com/v1/namespaces/ns/secrets/a", "/version"):
        await stage.get(path)
    await stage.get(f"{PATH}/a")
    assert not stage.run.secrets.has_learned


OF_OPERATORS = {
    "AWX": (
        {"host": "shopper-postgres", "port": "5432", "database": "automationhub", "username": "automationhub"}
        | {"sslmode": "verify-identity", "type": "managedbyus"},
        {"password": "kR7bQz1LmW"},
    ),
    "CloudNativePG": (
        {"dbname": "storefront", "host": "shopper-rw", "user": "storefront", "username": "storefront"},
        {"password": "kR7bQz1LmW", "uri": "postgresql://storefront:pQ8xVt2K@shopper-rw.ns:5432/storefront"},
    ),
    "Crunchy": (
        {"pgbouncer-host": "shopper-pgbouncer.ns.svc", "user": "storefront"},
        {"verifier": "SCRAM-SHA-256$4096:c2FsdA==", "password": "kR7bQz1LmW"},
    ),
    "MongoDB": (
        {"username": "storefront-admin", "MONGODB_BACKUP_USER": "backupper", "MONGODB_DATABASE_ADMIN_USER": "dbadmin"},
        {"MONGODB_BACKUP_PASSWORD": "kR7bQz1LmW", "connectionString.standard": "mongodb://a:pQ8xVt2K@shopper:27017/b"},
    ),
    "Keycloak": (
        {
            "ADMIN_USERNAME": "keycloakadmin",
            "POSTGRES_DATABASE": "keycloakdb",
            "POSTGRES_EXTERNAL_ADDRESS": "db.shopper",
        }
        | {"POSTGRES_USERNAME": "keycloaker", "POSTGRES_SUPERUSER": "keycloaker"},
        {"ADMIN_PASSWORD": "kR7bQz1LmW", "CLIENT_SECRET": "5f0e9c1a-77ab", "POSTGRES_PASSWORD": "Vt2KpQ8x"},
    ),
}


@pytest.mark.parametrize(("public", "hidden"), OF_OPERATORS.values(), ids=OF_OPERATORS)
@pytest.mark.parametrize("field", ["data", "stringData"])
async def test_names_by_convention_are_not_masked_and_passwords_beside_them_are(
    stage: Stage, public: dict[str, str], hidden: dict[str, str], field: str
) -> None:
    values = {key: encoded(value) if field == "data" else value for key, value in {**public, **hidden}.items()}
    stage.api.answers(stage.reply(orjson.dumps(secret(**{"data": {}, field: values}))))
    await stage.get(f"{PATH}/mine-secret")
    for value in public.values():
        assert stage.run.secrets.masker.text(value) == value
    for value in hidden.values():
        assert MASK in stage.run.secrets.masker.text(value)


async def test_a_name_by_convention_that_is_no_name_or_that_a_task_hides_is_masked(stage: Stage) -> None:
    url = "mongodb://a:pQ8xVt2K@shopper"
    body = secret(data={}, stringData={"host": url, "password_user": "backupper", "user": "two words of it"})
    stage.api.answers(stage.reply(orjson.dumps(body)))
    await stage.get(f"{PATH}/mine-secret")
    posted = orjson.dumps({"task": "1", "values": ["automationhub"]})
    assert (await stage.ask(f"POST {NO_LOG_PATH}", body=posted)).status == 200
    for value in (url, "backupper", "two words of it", "automationhub"):
        assert MASK in stage.run.secrets.masker.text(value)


async def test_words_of_objects_that_a_run_uses_are_not_masked(stage: Stage) -> None:
    body = orjson.dumps(secret(data={}, stringData={"a": "gateway", "b": "storefront", "c": "kR7bQz1LmW"}))
    stage.run.secrets.publish("shop-storefront")
    stage.api.answers(stage.reply(b"{}"), stage.reply(body))
    await stage.get("/api/v1/namespaces/ns/configmaps/shop-gateway")
    await stage.get(f"{PATH}/mine-secret")
    message = "Deployment shop-gateway: kR7bQz1LmW of shop-storefront"
    assert stage.run.secrets.masker.text(message) == f"Deployment shop-gateway: {MASK} of shop-storefront"


async def test_the_name_and_namespace_of_a_secret_are_not_masked(stage: Stage) -> None:
    body = orjson.dumps(secret(data={"namespace": encoded("ns-of-it"), "name": encoded("mine-secret")}))
    stage.api.answers(stage.reply(body, "200 OK", "Content-Type: application/json"))
    await stage.get(f"{PATH}/a")
    assert not stage.run.secrets.masker


@pytest.mark.parametrize(
    ("media", "body"),
    [
        ("application/cbor", b"\xd9\xd9\xf7"),
        ("application/json", b"no JSON"),
        (PROTOBUF, b"k8s\0\xff"),
        ("application/json", b" " * (9 << 20)),
    ],
    ids=["CBOR", "broken JSON", "broken protobuf", "too large"],
)
async def test_an_answer_that_cannot_be_read_makes_the_output_withheld(stage: Stage, media: str, body: bytes) -> None:
    stage.api.answers(stage.reply(body, "200 OK", f"Content-Type: {media}"))
    assert (await stage.get(PATH)).body == body
    assert stage.run.secrets.is_exhausted


async def test_a_run_reports_the_values_of_arguments_with_no_log(stage: Stage) -> None:
    wire = await stage.connect()
    body = orjson.dumps({"task": "t-1", "values": [VALUE, 5]})
    assert (await wire.ask(stage.request(f"POST {NO_LOG_PATH}", body=body))).status == 200
    assert knows(stage)
    assert stage.run.secrets.is_cleared("t-1")
    assert stage.run.stats.calls == 0
    assert stage.api.seen == []
    assert (await stage.ask(f"POST {NO_LOG_PATH}", body=b"[]")).status == 400
    stage.identities.revoke(stage.token)
    assert (await stage.ask(f"POST {NO_LOG_PATH}", body=body)).status == 401


def test_runs_and_the_proxy_mean_the_same_path() -> None:
    callback = FEATURE.callbacks[0] / "ansible_operator_no_log.py"
    tree = ast.parse(callback.read_text(encoding="utf-8"))
    said = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert said["NO_LOG_PATH"] == NO_LOG_PATH


@pytest.mark.parametrize("odd", [None, 5, "x", [], [5], {"data": 5}, {"data": {"a": 5}}, {"metadata": 5, "items": {}}])
def test_odd_objects_have_no_values(odd: Any) -> None:
    assert list(run_secrets.of_secrets(odd)) == []
    assert list(run_secrets.of_json_patch([odd, {"path": odd, "value": odd}])) == []
    assert list(run_secrets.of_token_request(odd)) == []


async def test_the_log_names_the_reason_for_which_output_is_withheld(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.run.secrets.exhaust("withheld: the operator was restarted during this run")
    stage.api.answers(stage.reply(orjson.dumps(secret()), "200 OK", "Content-Type: application/json"))
    await stage.get(f"{PATH}/a")
    written = "".join(capsys.readouterr())
    assert "the operator was restarted during this run" in written
    assert "than can be masked" not in written


PROXY = ("127.0.0.1", 1, "token")


def _run(monkeypatch: pytest.MonkeyPatch, *, has_runner: bool = True) -> tuple[Any, Any, list[str]]:
    """Load the callback; return it, ansible-runner's, and what happens in order."""
    spec = importlib.util.spec_from_file_location("own", FEATURE.callbacks[0] / "ansible_operator_no_log.py")
    assert spec is not None
    assert spec.loader is not None
    own: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(own)
    seen: list[str] = []

    class Emitter:
        def _emit(self, result: Any) -> None:
            seen.append(f"emitted {result}")

        v2_runner_on_ok = v2_runner_on_failed = v2_runner_on_unreachable = _emit
        v2_runner_item_on_ok = v2_runner_item_on_failed = _emit

    module: Any = ModuleType("awx")
    module.event_context, module.CallbackModule = object(), Emitter
    if has_runner:
        monkeypatch.setitem(sys.modules, "ansible.plugins.callback.awx", module)
    monkeypatch.setattr(own, "_proxy", lambda _: PROXY)
    monkeypatch.setattr(
        own.CallbackBase, "__init__", lambda self: setattr(self, "_display", SimpleNamespace(warning=seen.append))
    )
    monkeypatch.setattr(own.CallbackModule, "_look", lambda _, result: seen.append(f"reported {result}"))
    return own.CallbackModule(), Emitter(), seen


def test_arguments_are_reported_before_the_result_is_emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    _, emitter, seen = _run(monkeypatch)
    emitter.v2_runner_item_on_ok("item")
    emitter.v2_runner_on_ok("result")
    assert seen == ["reported item", "emitted item", "reported result", "emitted result"]


def test_a_result_whose_arguments_cannot_be_reported_follows_the_warning_that_withholds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    callback, emitter, seen = _run(monkeypatch)
    monkeypatch.setattr(type(callback), "_look", lambda _, result: result.unknown)
    emitter.v2_runner_on_failed("first")
    emitter.v2_runner_on_ok("second")
    assert UNREPORTED in seen[0]
    assert seen[1:] == ["emitted first", "emitted second"]


def test_output_is_withheld_without_the_callback_of_ansible_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    *_, seen = _run(monkeypatch, has_runner=False)
    assert UNREPORTED in seen[0]
