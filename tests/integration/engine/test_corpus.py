"""Roles as operators in the field have them (`bench/roles`) need no new interpreter on any ansible-core."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from bench.corpus import CASES, Case
from bench.engine_bed import Access, Bed, service
from runner.base.credentials import auth
from runner.core.engine.job import Event, Outcome
from runner.core.kube.client import Client
from runner.engines.warm import task_record
from runner.features.rolemetrics import endpoint as role_metrics
from runner.sdk.devcluster import DevCluster
from tests.integration.engine.runs import ENGINE
from tests.kit.engines import ProcessEngines

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(ENGINE != "warm", reason="only forked runs report how their tasks were executed"),
    # All roles share one control plane and one fork server.
    pytest.mark.xdist_group("corpus"),
]

_IN_CI = {"portal", "queue", "directory"}
"""The others are nightly. Together, these have each kind of task: loops, lookups, status, metrics, and requests."""
_HOST = "127.0.0.1"
_RECAPS = {
    "portal": (78, 68),
    "registry": (49, 8),
    "queue": (6, 18),
    "tenants": (94, 10),
    "feed": (13, 0),
    "typical": (29, 11),
}
"""Tasks that are ok and skipped in the first run for a new object. One of `typical` is skipped if pods are ready."""
_TASKS = {
    "portal": (146, 16),
    "registry": (57, 24),
    "queue": (24, 5),
    "tenants": (85, 33),
    "feed": (13, 12),
    "typical": (40, 13),
}
"""Tasks of such a run, and how many of them have a module, which runs again in a loop. Their lookups need no worker."""
_MODULES_OF_DIRECTORY = 7


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared_bed(
    engine: tuple[ProcessEngines, Path], devcluster: DevCluster, kubeconfig: Path
) -> AsyncIterator[Bed]:
    """The control plane, an external service and the operator's metrics; a fork server that has loaded all roles."""
    metrics, port = await role_metrics.serve(role_metrics.UserMetrics(time.time), _HOST, 0)
    credentials = await auth.load(str(kubeconfig), None, auth.HostEnvironment.of_process())
    try:
        async with Client(credentials) as client:
            with service() as url:
                content = await asyncio.to_thread(kubeconfig.read_text, encoding="utf-8")
                way = Access(content, role_metrics.address(_HOST, port))
                bed = Bed(client, engine[1], way, url, devcluster.exec_container)
                os.environ.pop("PYTEST_CURRENT_TEST", None)  # the name of the test is no reason for another fork server
                engine[0].expect([case.watch.content for case in CASES], bed.environment())
                yield bed
    finally:
        await metrics.cleanup()


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=[] if case.name in _IN_CI else [pytest.mark.nightly]) for case in CASES],
)
async def test_a_role_of_the_corpus_needs_no_new_interpreter(
    case: Case, shared_bed: Bed, engine: tuple[ProcessEngines, Path], namespace: str, notes: list[str]
) -> None:
    bed = replace(shared_bed, namespace=namespace)
    await bed.install(case)
    events: list[Event] = []
    os.environ.pop("PYTEST_CURRENT_TEST", None)  # as above

    notes.clear()
    result = await engine[0].run(await bed.job(case), events.append)

    said = "\n".join(event.get("stdout") or "" for event in events[-8:])
    assert result.outcome is Outcome.SUCCEEDED, f"{result}\n{said}"
    executions = task_record.executions("\n".join(notes))
    ways = Counter(each.way for each in executions)
    assert ways.keys() == {task_record.PLAYBOOK, task_record.MODULE}, (executions, engine[0].pool.problem)
    assert result.recap is not None
    if case.name == "directory":  # each core has its own version of this role
        assert ways[task_record.MODULE] >= _MODULES_OF_DIRECTORY
    else:
        ok, skipped = _RECAPS[case.name]
        ready = case.name == "typical" and result.recap.skipped > skipped
        assert (result.recap.ok, result.recap.skipped) == (ok - ready, skipped + ready)
        tasks, with_module = _TASKS[case.name]
        assert ways[task_record.PLAYBOOK] == tasks
        assert ways[task_record.MODULE] >= with_module
