"""The operator's own Secrets, which no run may read or write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import parse_qs, quote

import orjson
import pytest
from structlog.testing import capture_logs

from runner.engines.pod import jobs
from runner.engines.pod.own_secrets import OwnSecrets
from tests.unit.proxy.stage import Stage, Staged

RUN = f"run-{'0f8fad5b-d9cb-469f-a165-70867728950e'}-12"
WARM = "warm-memcached-0123456789"
HERE = "/api/v1/namespaces/operator/secrets"
THERE = "/api/v1/namespaces/tenant/secrets"
NOT_OF_RUNS = f"!{jobs.RUN_OF},!{jobs.WARM}"


@pytest.fixture
async def stage(staged: Staged) -> AsyncIterator[Stage]:
    async with staged(OwnSecrets("operator", "op-pods-ca")) as made:
        yield made


@pytest.mark.parametrize(
    "start",
    [
        f"GET {HERE}/op-pods-ca",
        f"HEAD {HERE}/op-pods-ca",
        f"PUT {HERE}/op-pods-ca",
        f"PATCH {HERE}/op-pods-ca",
        f"DELETE {HERE}/op-pods-ca",
        f"GET {HERE}/op%2Dpods-ca?watch=1",
        f"GET {HERE}?fieldSelector=metadata.name%3Dop-pods-ca",
        "GET /api/v1/secrets?watch=1&fieldSelector=metadata.name=op-pods-ca",
        "GET /api/v1/watch/namespaces/operator/secrets/op-pods-ca",
        f"GET {HERE}/{WARM}",
        f"GET {HERE}/{RUN}",
        f"GET {THERE}/{RUN}",
        f"DELETE {THERE}/{RUN}",
    ],
)
async def test_a_request_for_a_secret_of_the_operator_is_refused(stage: Stage, start: str) -> None:
    wire = await stage.connect()
    with capture_logs() as logs:
        answer = await wire.ask(stage.request(start), to_head=start.startswith("HEAD"))
    assert answer.status == 403
    assert stage.api.seen == []
    assert any(each["event"].startswith("Refused a request of a run for a Secret") for each in logs)
    if answer.body:
        assert "contains a key or token of the operator" in orjson.loads(answer.body)["message"]


@pytest.mark.parametrize(
    "start",
    [
        f"GET {HERE}/mine",
        f"GET {THERE}/op-pods-ca",
        f"GET {THERE}/{WARM}",
        f"GET {THERE}/run-1",
        f"POST {THERE}",
        "GET /api/v1/namespaces/operator/configmaps?limit=5",
        "GET /apis/example.com/v1/namespaces/operator/secrets/op-pods-ca",
    ],
)
async def test_other_requests_are_forwarded_unchanged(stage: Stage, start: str) -> None:
    assert (await stage.ask(start)).status == 200
    assert stage.api.seen[0].start == f"{start} HTTP/1.1"


@pytest.mark.parametrize(
    ("start", "labels", "fields"),
    [
        (f"GET {HERE}", NOT_OF_RUNS, "metadata.name!=op-pods-ca"),
        (f"GET {THERE}?watch=1", NOT_OF_RUNS, None),
        ("GET /api/v1/secrets?labelSelector=", NOT_OF_RUNS, "metadata.name!=op-pods-ca"),
        (f"DELETE {HERE}", NOT_OF_RUNS, "metadata.name!=op-pods-ca"),
        (
            f"GET {HERE}?labelSelector={quote('owner=helm,a in (b,c)')}&labelSelector=x&fieldSelector=type%3DOpaque",
            f"owner=helm,a in (b,c),{NOT_OF_RUNS}",
            "type=Opaque,metadata.name!=op-pods-ca",
        ),
    ],
)
async def test_lists_watches_and_deletions_of_collections_leave_them_out(
    stage: Stage, start: str, labels: str, fields: str | None
) -> None:
    assert (await stage.ask(start)).status == 200
    query = parse_qs(stage.api.seen[0].target.partition("?")[2])
    assert query["labelSelector"] == [labels]
    assert query.get("fieldSelector") == ([fields] if fields else None)
    assert query.get("watch") == (["1"] if "watch" in start else None)


@pytest.mark.parametrize("kind", ["Memcached", "A" * 60])
def test_the_secrets_of_runs_and_warm_pods_are_recognized_by_their_names(kind: str) -> None:
    uid = "0f8fad5b-d9cb-469f-a165-70867728950e"
    assert jobs.is_secret_name(jobs.run_name(uid, 3), warm=False)
    assert jobs.is_secret_name(jobs.warm_name(kind), warm=True)
    assert not jobs.is_secret_name(jobs.warm_name(kind), warm=False)
    assert not jobs.is_secret_name("run-of-the-mill", warm=True)
