"""What becomes of a status write while the API server is not itself; against a client whose answers are given."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from runner.errors import ApiError, ApiUnavailableError, ServerError, ThrottledError, UnauthorizedError
from runner.kube.client import Client
from runner.kube.discovery import ApiResource
from runner.objects import GVK, Object
from runner.replicas.lease_guard import LeaseGuard
from runner.status import report
from runner.status.writer import StatusWriter

Virtually = Callable[[Coroutine[Any, Any, None]], None]
GVK_ = GVK("cache.example.com", "v1alpha1", "Memcached")
RESOURCE = ApiResource(GVK_, "memcacheds", namespaced=True, verbs=frozenset(), subresources=frozenset({"status"}))


class _Answers:
    """Refuses as often as it is told, then takes the write."""

    def __init__(self, *refusals: Exception) -> None:
        self.refusals = list(refusals)
        self.written = 0

    async def patch(self, *_: Any, **__: Any) -> Object:
        if self.refusals:
            raise self.refusals.pop(0)
        self.written += 1
        return {"status": {"conditions": [{"type": "Running"}]}}


@pytest.mark.parametrize(
    "refusal",
    [
        ApiUnavailableError("away"),
        ServerError("broken", status=500),
        ThrottledError("busy", status=429),
        UnauthorizedError("the token has expired", status=401),
    ],
    ids=lambda refusal: type(refusal).__name__,
)
def test_a_result_outlives_what_passes_by_itself(virtually: Virtually, refusal: ApiError) -> None:
    async def scenario() -> None:
        answers = _Answers(*[refusal] * 30)
        obj: Object = {"metadata": {"name": "a", "namespace": "ns", "uid": "u", "generation": 1}}
        writer = StatusWriter(cast("Client", answers), GVK_, enabled=True, health=True)
        await writer.write(RESOURCE, obj, report.observed(obj, report.unusable("why")), LeaseGuard(lambda: True))
        assert answers.written == 1

    virtually(scenario())
