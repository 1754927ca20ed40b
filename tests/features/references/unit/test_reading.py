"""Reads of referenced objects whose metadata does not show a change."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from runner.core.kube.state import SECRETS
from runner.features.references.kind import ReferenceKind
from runner.values.errors import ApiError, ApiUnavailableError, ServerError
from runner.values.objects import ObjectKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from runner.core.kube.client import Client
    from runner.core.kube.discovery import Discovery

BAD, GOOD, OTHER = (ObjectKey(space, name) for space, name in (("evil", "50%"), ("shop", "good"), ("shop", "other")))


class Reads:
    """Answers to reads by key: an error, or none for an object. Notes what was read, in order."""

    def __init__(self) -> None:
        self.errors: dict[ObjectKey, Exception] = {}
        self.read: list[ObjectKey] = []

    async def get(self, _resource: object, key: ObjectKey) -> dict[str, Any]:
        self.read.append(key)
        await asyncio.sleep(0.01)
        if (error := self.errors.get(key)) is not None:
            raise error
        return {"metadata": {"name": key.name, "namespace": key.namespace, "uid": key.name, "resourceVersion": "1"}}

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[ReferenceKind]:
        """Read references of one kind, without a watch."""
        client, discovery = cast("Client", self), cast("Discovery", None)
        kind = ReferenceKind(client, discovery, SECRETS.gvk, (), lambda *_: None, lambda *_: None, reads_status=False)
        kind._resource = SECRETS
        task = asyncio.create_task(kind._read())
        yield kind
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def request(kind: ReferenceKind, *keys: ObjectKey) -> None:
    for key in keys:
        kind.add(key)
        kind._request_read(key, None)


@pytest.mark.virtual_time
@pytest.mark.parametrize("error", [ApiError("invalid name", status=400), ServerError("cannot decrypt", status=500)])
async def test_an_object_that_cannot_be_read_delays_no_other_one(error: Exception) -> None:
    reads = Reads()
    reads.errors[BAD] = error
    async with reads.reading() as kind:
        request(kind, GOOD, BAD)
        await asyncio.sleep(120)
        assert kind.is_known(GOOD)
        assert not kind.is_known(BAD)
        request(kind, OTHER)
        await asyncio.sleep(1)
        assert kind.is_known(OTHER), "another object is not read only when the wait for the first one is over"
        del reads.errors[BAD]
        await asyncio.sleep(60)
        assert kind.is_known(BAD)
    assert reads.read.count(GOOD) == reads.read.count(OTHER) == 1
    assert reads.read.count(BAD) < 20


@pytest.mark.virtual_time
async def test_an_object_whose_reads_time_out_delays_another_one_by_one_wait_at_most() -> None:
    reads = Reads()
    reads.errors[BAD] = ApiUnavailableError("timeout")
    async with reads.reading() as kind:
        request(kind, GOOD, BAD)
        await asyncio.sleep(60)
        assert kind.is_known(GOOD)


@pytest.mark.virtual_time
async def test_nothing_is_read_again_and_again_while_all_reads_fail() -> None:
    reads = Reads()
    reads.errors = dict.fromkeys((BAD, GOOD, OTHER), ApiUnavailableError("refused"))
    async with reads.reading() as kind:
        request(kind, BAD, GOOD, OTHER)
        await asyncio.sleep(600)
        assert len(reads.read) < 40
        reads.errors.clear()
        await asyncio.sleep(60)
        assert all(map(kind.is_known, (BAD, GOOD, OTHER)))
