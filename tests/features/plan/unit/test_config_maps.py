"""What becomes of a plan whose ConfigMap the API server does not accept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.core.kube.client import Client
from runner.features.plan.changes import ResourcePlan
from runner.features.plan.runs import PlanConfigMaps
from runner.values.errors import ApiError, ConflictError, ForbiddenError, InvalidError, NotFoundError, ServerError
from runner.values.objects import ObjectRef
from tests.unit.controller.attempts import THINGS, attempt_value

OBJ = {"metadata": {"name": "one", "namespace": "ns", "uid": "u"}}


class _Server:
    """Has no ConfigMap, and answers each creation with an error."""

    credentials = SimpleNamespace(namespace="operator")

    def __init__(self, error: ApiError) -> None:
        self._error = error

    async def get(self, *_: Any) -> None:
        raise NotFoundError("none", status=404)

    async def create(self, *_: Any) -> None:
        raise self._error


@pytest.mark.parametrize(
    "error",
    [
        ForbiddenError("no right", status=403),
        ApiError("too large", status=413),
        InvalidError("no", status=422),
        ConflictError("exists", status=409),
        NotFoundError("no namespace", status=404),
    ],
    ids=lambda error: str(error.status),
)
async def test_a_refused_config_map_is_omitted_and_logged_once(
    error: ApiError, capsys: pytest.CaptureFixture[str]
) -> None:
    maps = PlanConfigMaps(THINGS, cast("Client", _Server(error)))
    made = ResourcePlan(ObjectRef.of(THINGS, OBJ), "complete")
    assert [await maps.write(attempt_value(OBJ), made) for _ in range(3)] == [""] * 3
    assert capsys.readouterr().out.count("Cannot write the ConfigMap of a plan") == 1


async def test_an_outage_repeats_the_plan() -> None:
    maps = PlanConfigMaps(THINGS, cast("Client", _Server(ServerError("down", status=500))))
    with pytest.raises(ServerError):
        await maps.write(attempt_value(OBJ), ResourcePlan(ObjectRef.of(THINGS, OBJ), "complete"))
