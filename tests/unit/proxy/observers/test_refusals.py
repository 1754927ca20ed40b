"""What is kept of the refusals that a run met."""

from __future__ import annotations

import gzip
from dataclasses import replace

import orjson
import pytest

from runner.core.proxy.protobuf import message, text
from tests.unit.proxy.stage import Stage, Staged, make_run


def refused(verb: str, resource: str) -> bytes:
    message = f'{resource} is forbidden: User "me" cannot {verb} resource "{resource}" in API group "" in the namespace'
    return orjson.dumps({"kind": "Status", "code": 403, "reason": "Forbidden", "message": f'{message} "ns"'})


async def test_a_missing_right_is_recorded_and_the_answer_is_unchanged(stage: Stage) -> None:
    packed = gzip.compress(refused("list", "pods"))
    stage.api.answers(
        stage.reply(refused("get", "secrets"), "403 Forbidden"),
        stage.reply(packed, "403 Forbidden", "Content-Encoding: gzip"),
        stage.reply(refused("get", "secrets"), "403 Forbidden"),
    )
    assert (await stage.get()).body == refused("get", "secrets")
    assert (await stage.get()).body == packed
    assert (await stage.get("/api/v1/secrets?watch=1")).status == 403
    listing, getting = stage.run.stats.forbidden()
    assert listing.startswith("forbidden: list pods in namespace ns (as me); add to its Role: ")
    assert getting.endswith('Role: {apiGroups: [""], resources: [secrets], verbs: [get]}')


async def test_a_missing_right_in_protobuf_is_recorded(stage: Stage) -> None:
    status = text(3, orjson.loads(refused("get", "secrets"))["message"]) + message(5, text(1, "a"))
    body = b"k8s\0" + message(1, text(1, "v1") + text(2, "Status")) + message(2, status)
    header = "Content-Type: application/vnd.kubernetes.protobuf"
    stage.api.answers(stage.reply(body, "403 Forbidden", header))
    await stage.get()
    (getting,) = stage.run.stats.forbidden()
    assert getting.endswith('Role: {apiGroups: [""], resources: [secrets], verbs: [get]}')


async def test_a_missing_right_of_an_account_that_does_not_exist_says_so(staged: Staged) -> None:
    questions = []

    async def exists() -> bool:
        questions.append(1)
        return False

    user = b'User \\"system:serviceaccount:home:runs\\"'
    refusal = refused("get", "secrets").replace(b'User \\"me\\"', user)
    async with staged() as plain:
        run = make_run(service_account="home/runs", account_exists=exists)
        stage = replace(plain, run=run, token=plain.identities.issue(run))
        stage.api.answers(
            stage.reply(refusal, "403 Forbidden"),
            stage.reply(refusal, "403 Forbidden"),
            stage.reply(refused("get", "pods"), "403 Forbidden"),
        )
        for _ in range(3):
            await stage.get()
        pods, secrets = stage.run.stats.forbidden()
    assert secrets == (
        "forbidden: get secrets in namespace ns (as system:serviceaccount:home:runs); this service account does not "
        'exist: create it, and add to its Role: {apiGroups: [""], resources: [secrets], verbs: [get]}'
    )
    assert "(as me); add to its Role" in pods
    assert len(questions) == 1


async def test_refusals_for_other_reasons_are_not_recorded(stage: Stage) -> None:
    quota = orjson.dumps({"kind": "Status", "message": 'pods "a" is forbidden: exceeded quota: few', "code": 403})
    stage.api.answers(
        stage.reply(quota, "403 Forbidden"),
        stage.reply(b"not JSON", "403 Forbidden"),
        stage.reply(b"[]", "403 Forbidden"),
        stage.reply(refused("get", "pods"), "404 Not Found"),
        stage.reply(refused("get", "pods")),
    )
    for _ in range(5):
        await stage.get()
    assert stage.run.stats.forbidden() == ()


@pytest.mark.lengthy
async def test_a_run_that_meets_ever_new_refusals_costs_bounded_memory(stage: Stage) -> None:
    stage.api.answers(*(stage.reply(refused("get", f"kind{n}"), "403 Forbidden") for n in range(30)))
    for _ in range(30):
        await stage.get()
    assert len(stage.run.stats.forbidden()) == 20
