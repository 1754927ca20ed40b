"""What is kept of the refusals that a run met."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from tests.unit.proxy.conftest import Stage

Staged = Callable[..., AbstractAsyncContextManager["Stage"]]


def refused(verb: str, resource: str) -> bytes:
    message = f'{resource} is forbidden: User "me" cannot {verb} resource "{resource}" in API group "" in the namespace'
    return orjson.dumps({"kind": "Status", "code": 403, "reason": "Forbidden", "message": f'{message} "ns"'})


async def test_a_missing_right_is_recorded_and_the_answer_is_unchanged(staged: Staged) -> None:
    async with staged() as stage:
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


async def test_refusals_for_other_reasons_are_not_recorded(staged: Staged) -> None:
    quota = orjson.dumps({"kind": "Status", "message": 'pods "a" is forbidden: exceeded quota: few', "code": 403})
    async with staged() as stage:
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


async def test_a_run_that_meets_ever_new_refusals_costs_bounded_memory(staged: Staged) -> None:
    async with staged() as stage:
        stage.api.answers(*(stage.reply(refused("get", f"kind{n}"), "403 Forbidden") for n in range(30)))
        for _ in range(30):
            await stage.get()
        assert len(stage.run.stats.forbidden()) == 20
