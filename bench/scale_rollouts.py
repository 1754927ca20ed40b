"""Many Deployments that become ready at once: runs and reads that this costs, and a user who changes an object."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import AsyncIterator
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from bench import objects
from bench.operator_process import DEADLINE, running
from bench.results import Result, tell
from bench.scale_bed import CASE, ROLLOUT, WARM, Bed, succeeded
from tests.kit.wait import until

_NAME = "{{ ansible_operator_meta.name }}"
_META = {"name": _NAME, "namespace": "{{ ansible_operator_meta.namespace }}"}
_DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": _META,
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": _NAME}},
        "template": {
            "metadata": {"labels": {"app": _NAME}},
            "spec": {"nodeSelector": {"only": "nowhere"}, "containers": [{"name": "main", "image": "example.com/i:1"}]},
        },
    },
}
_TASKS: list[dict[str, Any]] = [
    {"name": "Create a Deployment", "kubernetes.core.k8s": {"definition": _DEPLOYMENT}},
    {
        "name": "Read it",
        "kubernetes.core.k8s_info": {"api_version": "apps/v1", "kind": "Deployment", **_META},
        "register": "found",
    },
    {
        "name": "Report it",
        "operator_sdk.util.k8s_status": {
            "api_version": f"{objects.GROUP}/{objects.VERSION}",
            "kind": objects.KIND,
            **_META,
            "status": {"ready": "{{ found.resources[0].status.readyReplicas | default(0) | int }}"},
        },
    },
]
_PODS = f"/api/v1/namespaces/{ROLLOUT}/pods"
_READY = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}


async def rollouts(bed: Bed) -> AsyncIterator[Result]:
    """A user's change while all pods become ready, against one with nothing else to do."""
    count, repeats = bed.size.rollouts, bed.size.repeats
    async with running(bed.project("rollouts", _TASKS), ROLLOUT, WARM) as operator:
        await operator.await_ready()
        names = [f"rolls-{number:04}" for number in range(count)]
        await objects.concurrently(
            range(count),
            lambda number: bed.client.request("POST", objects.path(ROLLOUT), body=objects.body(names[number])),
        )
        await until(lambda: _are_done(bed, count), f"{count} objects to succeed", DEADLINE)
        alone = [await _change(bed, names[number]) for number in range(repeats)]
        before, reads = len(operator.lines("Run ended")), await _reads(bed)
        pods = [each["metadata"]["name"] for each in (await bed.client.request("GET", _PODS))["items"]]
        start = asyncio.create_task(
            objects.concurrently(range(len(pods)), lambda number: _make_ready(bed, pods[number]))
        )
        meanwhile = [await _change(bed, names[-number - 1]) for number in range(repeats)]
        busy = len(operator.lines("Run ended")) - before < count
        await start
        await until(lambda: _report_ready(bed, count), f"{count} objects to report their pods", DEADLINE)
        runs = len(operator.lines("Run ended")) - before - repeats
        reads = await _reads(bed) - reads
    if not busy:
        tell("rollouts: all were done before the last change; too few for this machine")
    alone_s = statistics.median(alone)
    yield Result(
        CASE,
        f"change to success while {count} Deployments become ready, against alone",
        statistics.median(meanwhile) / alone_s,
        "ratio",
        3,
    )
    yield Result(CASE, "change to success alone", alone_s, "s")
    yield Result(CASE, "runs for a Deployment that becomes ready", runs / count, "runs", 2)
    yield Result(CASE, "reads of a Deployment that becomes ready, those of its run too", reads / count, "reads")


async def _are_done(bed: Bed, count: int) -> bool:
    found = (await bed.client.request("GET", objects.path(ROLLOUT)))["items"]
    pods = (await bed.client.request("GET", _PODS))["items"]
    await asyncio.sleep(0.3)
    return len(pods) >= count and sum(map(succeeded, found)) >= count


async def _report_ready(bed: Bed, count: int) -> bool:
    found = (await bed.client.request("GET", objects.path(ROLLOUT)))["items"]
    await asyncio.sleep(0.3)
    return len([each for each in found if (each.get("status") or {}).get("ready") == 1]) >= count


async def _change(bed: Bed, name: str) -> float:
    """Change the spec of an object; return the seconds until its status has the result."""
    began, path = time.perf_counter(), objects.path(ROLLOUT, name)
    obj = await bed.client.request(
        "PATCH", path, body={"spec": {"text": str(began)}}, content_type="application/merge-patch+json"
    )

    async def is_done() -> bool:
        return succeeded(await bed.client.request("GET", path), obj["metadata"]["generation"])

    await until(is_done, f"{name} to succeed")
    return time.perf_counter() - began


async def _make_ready(bed: Bed, name: str) -> dict[str, Any]:
    path = f"{_PODS}/{name}/status"
    return await bed.client.request("PATCH", path, body=_READY, content_type="application/merge-patch+json")


async def _reads(bed: Bed) -> float:
    """Return the number of Deployments that the API server has served by name so far."""
    families = text_string_to_metric_families((await bed.client.read("/metrics")).decode())
    samples = itertools.chain.from_iterable(family.samples for family in families)
    wanted = {"resource": "deployments", "verb": "GET", "scope": "resource", "subresource": ""}
    return sum(
        sample.value
        for sample in samples
        if sample.name == "apiserver_request_total" and wanted.items() <= sample.labels.items()
    )
