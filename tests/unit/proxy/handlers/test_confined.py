"""Runs that may use the API in the namespace of their resource only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import orjson
import pytest

from runner.core.proxy.handlers.authenticate import Confined
from runner.values.objects import ObjectKey
from tests.unit.proxy.stage import OWNER, Stage, Staged


@pytest.fixture
async def stage(staged: Staged) -> AsyncIterator[Stage]:
    async with staged(Confined()) as made:
        yield made


async def _status(stage: Stage, start: str) -> int:
    stage.token = stage.identities.issue(stage.make_run(own_namespace_only=True))
    wire = await stage.connect()
    return (await wire.ask(stage.request(start), to_head=start.startswith("HEAD"))).status


@pytest.mark.parametrize(
    "start",
    [
        "GET /api/v1/namespaces/other/secrets/a",
        "GET /api/v1/namespaces/other/secrets",
        "HEAD /api/v1/namespaces/oth%65r/secrets/a",
        "GET /api/v1/secrets",
        "GET /api/v1/secrets?watch=1",
        "GET /api/v1/watch/secrets",
        "GET /api/v1/watch/namespaces/other/secrets",
        "GET /api/v1/namespaces",
        "GET /api/v1/namespaces/other",
        "PATCH /api/v1/namespaces/ns",
        "PUT /api/v1/namespaces/ns/finalize",
        "POST /api/v1/namespaces",
        "GET /api/v1/nodes/a",
        "GET /api/v1/nodes/a/proxy/logs",
        "POST /apis/authorization.k8s.io/v1/subjectaccessreviews",
        "POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "DELETE /apis/example.com/v1/selfsubjectreviews",
        "GET /api/../api/v1/namespaces/other/secrets/a",
        "GET //api/v1/namespaces/other/secrets/a",
        "GET /version/../api/v1/secrets",
        "GET /metrics",
        "GET /logs/kube-apiserver.log",
        "POST /version",
    ],
)
async def test_a_confined_run_uses_nothing_outside_of_its_namespace(stage: Stage, start: str) -> None:
    assert await _status(stage, start) == 403
    assert stage.api.seen == []


@pytest.mark.parametrize(
    "start",
    [
        "GET /api/v1/namespaces/ns/secrets/a",
        "POST /api/v1/namespaces/ns/secrets",
        "GET /api/v1/watch/namespaces/ns/secrets",
        "POST /apis/apps/v1/namespaces/ns/deployments",
        "GET /api/v1/namespaces/ns",
        "GET /version",
        "GET /api",
        "GET /api/v1",
        "GET /apis/apps/v1",
        "GET /openapi/v2",
        "GET /openapi/v3/apis/apps/v1",
        "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    ],
)
async def test_a_confined_run_uses_its_namespace_and_discovery(stage: Stage, start: str) -> None:
    assert await _status(stage, start) == 200


async def test_a_refusal_is_logged_once_for_each_namespace_verb_and_resource(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    for namespace in ("ns", "ns", "other"):
        owner = replace(OWNER, ref=replace(OWNER.ref, key=ObjectKey(namespace, "sample")))
        stage.token = stage.identities.issue(stage.make_run(own_namespace_only=True, owner=owner))
        for start in ("GET /api/v1/secrets", "GET /api/v1/nodes"):
            assert (await stage.ask(start)).status == 403
    assert capsys.readouterr().out.count("Refused a request of a run outside of its namespace") == 4


async def test_the_refusal_names_the_field_and_other_runs_are_not_confined(stage: Stage) -> None:
    assert (await stage.get("/api/v1/secrets")).status == 200
    stage.token = stage.identities.issue(stage.make_run(own_namespace_only=True))
    answer = await stage.get("/api/v1/secrets")
    assert "ownNamespaceOnly" in orjson.loads(answer.body)["message"]
