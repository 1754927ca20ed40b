"""OpenAPI documents of groups and versions, as the API server publishes them, cached for a minute.

A CRD's document appears some time after its discovery, so that a missing path is requested again for two seconds.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from http import HTTPStatus

import orjson

from runner.features.plan.requests.calls import PlanCall, RefusedError
from runner.features.plan.trial.schemas import ApiDocument

_TIME_TO_LIVE = 60.0
_MOST = 16
"""Cached documents."""
_LARGEST = 64 << 20
_ATTEMPTS = 5
_INTERVAL = 0.5


class ApiDocuments:
    """OpenAPI documents by group and version."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._documents: OrderedDict[tuple[str, str], tuple[float, ApiDocument]] = OrderedDict()

    async def check(self, plan: PlanCall) -> ApiDocument:
        """Return the document of a write. Raises RefusedError if the API server cannot dry-run it."""
        info, method = plan.info, plan.call.head.method
        document = await self._get(plan, newer=False)
        for _ in range(_ATTEMPTS):
            if document.can_dry_run(plan.template, method):
                return document
            if any(document.can_dry_run(plan.template, other) for other in ("post", "put", "patch", "delete")):
                break
            await asyncio.sleep(_INTERVAL)
            document = await self._get(plan, newer=True)
        raise RefusedError(f"its API does not document dry runs for {info.verb} (OpenAPI parameter dryRun)")

    async def _get(self, plan: PlanCall, *, newer: bool) -> ApiDocument:
        info = plan.info
        place, now = (info.group, info.version), self._clock()
        cached = self._documents.get(place)
        if cached is not None and not newer and now - cached[0] < _TIME_TO_LIVE:
            return cached[1]
        path = f"apis/{info.group}/{info.version}" if info.group else f"api/{info.version}"
        reply = await plan.get(f"/openapi/v3/{path}", most=_LARGEST)
        if not reply.is_success and reply.status != HTTPStatus.NOT_FOUND:
            raise RefusedError(f"cannot read its OpenAPI document: status {reply.status}")
        document = await asyncio.to_thread(_parse, (await reply.data() or b"") if reply.is_success else b"{}")
        self._documents[place] = now, document
        self._documents.move_to_end(place)
        while len(self._documents) > _MOST:
            self._documents.popitem(last=False)
        return document


def _parse(data: bytes) -> ApiDocument:
    try:
        return ApiDocument(orjson.loads(data))
    except (orjson.JSONDecodeError, AttributeError, TypeError) as error:
        raise RefusedError(f"its OpenAPI document is invalid: {error}") from error
