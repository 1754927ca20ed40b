"""Who may use the proxy, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import orjson
import pytest
import yaml

from runner.core.proxy.identity import Identities
from tests.kit.wait import until
from tests.unit.proxy.stage import Stage


async def test_a_run_is_identified_by_its_token_until_it_ends(stage: Stage) -> None:
    identities, run = Identities(), stage.make_run(ident="one")
    token = identities.issue(run)
    active = identities.active(token)
    assert active is not None
    assert active.run is run
    assert identities.active(token + "x") is None
    identities.revoke(token)
    identities.revoke(token)
    assert identities.active(token) is None


@pytest.mark.lengthy
async def test_no_two_tokens_are_alike_and_none_is_kept(stage: Stage) -> None:
    identities = Identities()
    tokens = {identities.issue(stage.make_run()) for _ in range(100)}
    assert len(tokens) == 100
    assert all(len(token) >= 32 for token in tokens)
    assert not any(token in repr(vars(identities)) for token in tokens)


@pytest.mark.parametrize(
    "headers",
    [
        "Authorization: Bearer {token}",
        "authorization: bearer {token}",
        "Impersonate-User: ansible-operator-run\r\nImpersonate-Extra-Run-Token: {token}",
        "Impersonate-Extra-Run-Token: {token}\r\nAuthorization: Bearer other",
    ],
)
async def test_each_way_to_show_a_token_works_and_none_reaches_the_api_server(stage: Stage, headers: str) -> None:
    wire = await stage.connect()
    shown = headers.format(token=stage.token)
    answer = await wire.ask(f"GET /api/v1/pods HTTP/1.1\r\nHost: here\r\n{shown}\r\n\r\n")
    assert answer.status == 200
    (seen,) = stage.api.seen
    assert stage.token not in repr(seen)
    assert [value for name, value in seen.headers if name == "Authorization"] == ["Bearer operators-own"]
    assert not any(name.lower().startswith("impersonate-") for name, _ in seen.headers)


@pytest.mark.parametrize(
    "headers",
    [
        "",
        "Authorization: Bearer unknown\r\n",
        "Authorization: Bearer \r\n",
        "Authorization: Basic dXNlcjpwYXNz\r\n",
        "Authorization: Bearer operators-own\r\n",
        "Impersonate-User: ansible-operator-run\r\nImpersonate-Extra-Run-Token: guess\r\n",
        "Impersonate-User: system:admin\r\n",
        "Authorization: Bearer \xff\xfe\r\n",
    ],
)
async def test_without_a_token_nothing_is_passed_on(stage: Stage, headers: str) -> None:
    wire = await stage.connect()
    answer = await wire.ask(f"GET /api/v1/pods HTTP/1.1\r\nHost: here\r\n{headers}\r\n")
    assert answer.status == 401
    status = orjson.loads(answer.body)
    assert (status["kind"], status["apiVersion"], status["code"]) == ("Status", "v1", 401)
    assert (status["status"], status["reason"]) == ("Failure", "Unauthorized")
    assert answer.get("WWW-Authenticate")
    assert not stage.api.seen


async def test_a_refused_head_has_no_content_so_that_the_next_response_is_read(stage: Stage) -> None:
    wire = await stage.connect()
    token, stage.token = stage.token, "wrong"
    assert (await wire.ask(stage.request("HEAD /api/v1/pods"), to_head=True)).status == 401
    stage.token = token
    assert (await wire.ask(stage.request())).status == 200


async def test_open_requests_of_a_run_end_with_it(stage: Stage) -> None:
    stage.api.answers(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
    wire = await stage.connect()
    wire.send(stage.request("GET /api/v1/pods?watch=1"))
    assert (await stage.read_head(wire.reader)).status == 200
    assert await stage.read_chunk(wire.reader) == b"{}"
    stage.identities.revoke(stage.token)
    assert await wire.is_closed()
    await stage.api.lost.wait()


async def test_headers_for_impersonation_of_a_client_are_forwarded(stage: Stage) -> None:
    extra = f"Impersonate-Extra-Run-Token: {stage.token}"
    wire = await stage.connect()
    wanted = "Impersonate-User: alice\r\nImpersonate-Group: dev\r\nImpersonate-Extra-Team: x"
    await wire.ask(f"GET /api/v1/pods HTTP/1.1\r\nHost: here\r\n{extra}\r\n{wanted}\r\n\r\n")
    passed = [header for header in stage.api.seen[0].headers if header[0].startswith("Impersonate-")]
    assert passed == [("Impersonate-User", "alice"), ("Impersonate-Group", "dev"), ("Impersonate-Extra-Team", "x")]


async def test_a_run_of_a_service_account_acts_as_it_and_names_no_groups(stage: Stage) -> None:
    stage.token = stage.identities.issue(stage.make_run(service_account="tools/narrow"))
    assert (await stage.get()).status == 200
    passed = [header for header in stage.api.seen[0].headers if header[0].lower().startswith("impersonate-")]
    assert passed == [("Impersonate-User", "system:serviceaccount:tools:narrow")]


async def test_renewed_credentials_keep_the_service_account_of_the_run(stage: Stage) -> None:
    stage.token = stage.identities.issue(stage.make_run(service_account="tools/narrow"))
    stage.api.answers(stage.reply(b"{}", "401 Unauthorized"), stage.reply())
    assert (await stage.get()).status == 200
    assert [seen.get("Impersonate-User") for seen in stage.api.seen] == ["system:serviceaccount:tools:narrow"] * 2


@pytest.mark.parametrize("header", ["impersonate-user: alice", "Impersonate-Group: dev", "Impersonate-Uid: 1"])
async def test_a_run_of_a_service_account_cannot_impersonate_others(stage: Stage, header: str) -> None:
    stage.token = stage.identities.issue(stage.make_run(service_account="tools/narrow"))
    answer = await stage.get("/api/v1/pods", header)
    assert (answer.status, orjson.loads(answer.body)["reason"]) == (403, "Forbidden")
    assert b"uses the watch's serviceAccount tools/narrow" in answer.body
    assert not stage.api.seen


async def test_an_operator_that_impersonates_lends_its_runs_no_second_user(
    staged: Callable[..., AbstractAsyncContextManager[Stage]],
) -> None:
    async with staged(acting_as="bob") as stage:
        assert (await stage.get()).status == 200
        assert stage.api.seen.pop().get("Impersonate-User") == "bob"
        assert b"cannot impersonate another" in (await stage.get("/api/v1/pods", "Impersonate-User: alice")).body
        stage.token = stage.identities.issue(stage.make_run(service_account="tools/narrow"))
        assert b"credentials without `as`" in (await stage.get()).body
        assert not stage.api.seen


async def test_contract_the_kubeconfig_of_a_run_sets_no_namespace_and_no_token_in_the_address(stage: Stage) -> None:
    config = yaml.safe_load(stage.proxy.kubeconfig_for(stage.token))
    assert config["clusters"][0]["cluster"] == {"server": f"http://127.0.0.1:{stage.port}"}
    assert "namespace" not in config["contexts"][0]["context"]
    user = config["users"][0]["user"]
    assert user["token"] == stage.token
    assert user["as-user-extra"] == {"run-token": [stage.token]}


async def test_calls_are_counted_to_their_run(stage: Stage) -> None:
    for _ in range(3):
        await stage.get()
    await until(lambda: stage.run.stats.calls == 3)
    assert 0 < stage.run.stats.seconds < 5
