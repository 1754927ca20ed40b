"""A page in a thread of its own, that looks at a real cache, whose objects are put in where an informer would."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from runner.base.config.paths import run_dir
from runner.base.monitoring.endpoints import Address
from runner.core.engine.job import Job, Outcome, RunResult, TaskFailure
from runner.core.proxy.identity import RunStats
from runner.core.queue import reasons
from runner.core.queue.reasons import ReconcileRequest
from runner.core.watches.watch import Role
from runner.features.plan.changes import ObjectChange, ResourcePlan
from runner.features.plan.fields import FieldChange
from runner.features.plan.page import LatestPlans
from runner.features.ui.journal import Journal
from runner.features.ui.server import StatusPage, StreamTimings
from runner.values.backoff import Backoff
from runner.values.objects import GVK, MODE, ObjectKey, ObjectRef
from tests.kit.jobs import job_value
from tests.kit.page_values import AKind, condition, ended, start, views_of

FEW, MANY = 20, 5000
_SETTINGS = {"name": "settings", "namespace": "shop", "managedFields": [{"manager": "x"}]}
_RESULTS: tuple[dict[str, Any], ...] = (
    {
        "_ansible_item_label": "settings",
        "changed": True,
        "method": "create",
        "result": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _SETTINGS, "data": {"max-connections": "1024"}},
        "diff": {"before": {"data": {"max-connections": "512"}}, "after": {"data": {"max-connections": "1024"}}},
    },
    {
        "_ansible_item_label": "login",
        "changed": False,
        "result": {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "login"},
            "data": {"password": "aHVudGVy"},
        },
    },
)
"""Results of the items of a task that creates two objects."""

_TASK = "TASK [memcached : {}] ****\n{}\n\n"
_FAILED_OUTPUT = "".join(
    (
        "No config file found; using defaults\n" * 14,
        "PLAY [localhost] ****\n\n",
        *(_TASK.format(f"Step 1.{number}", "ok: [localhost]") for number in range(20)),
        _TASK.format(
            "Step 2", "[ERROR]: no such image\nfatal: [localhost]: FAILED! => changed=false\n  msg: no such image"
        ),
        "PLAY RECAP ****\nlocalhost : ok=1 failed=1\n" * 20,
    )
)


class Crowd:
    """A page with so many objects. What touches it is run where it lives."""

    def __init__(self, folder: Path, count: int) -> None:
        self.url = ""
        self.kind: AKind
        self._plans: LatestPlans
        self._folder, self._count = folder, count
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._journal = Journal(time.time)
        self._runs = 0

    def serve(self, ready: Future[None]) -> None:
        """Serve until `stop`."""
        asyncio.run(self._serve(ready))

    async def _serve(self, ready: Future[None]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.kind = AKind()
        for number in range(self._count):
            self.kind.informer.put(f"one-{number:04}", condition("Ready", message="Last reconciliation succeeded"))
        self._plans = LatestPlans({self.kind.gvk: "approve"})
        views = views_of(self.kind, self._journal, self._folder, self._plans.sections())
        page = StatusPage(views, StreamTimings(interval=0.05))
        try:
            self.url = await page.start(Address("127.0.0.1", 0))
            ready.set_result(None)
            await self._stop.wait()
        finally:
            self.kind.queue.close()
            await page.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)

    def plan(self, name: str) -> None:
        """Have an object with a plan that waits for approval."""
        ref = ObjectRef(self.kind.gvk, ObjectKey("shop", name), f"uid-shop-{name}")
        fields = (FieldChange("spec.replicas", 3, 5),)
        change = ObjectChange("change", GVK("apps", "v1", "Deployment"), ObjectKey("shop", "web"), fields)
        entry = {
            "verb": "change",
            "kind": "Deployment",
            "namespace": "shop",
            "name": "web",
            "fields": ["spec.replicas"],
        }
        status = {"plan": {"hash": "3b0f", "time": "2026-11-21T11:00:00Z", "changes": [entry]}}
        mode = {"annotations": {MODE: "approve"}}

        def put() -> None:
            self._plans.add(ResourcePlan(ref, "complete", (change,)))
            self.kind.informer.put(name, condition("Planned"), metadata=mode, status=status)

        self.do(put)

    def do(self, action: Callable[[], Any]) -> Any:
        """Do something in the page's event loop."""
        done: Future[Any] = Future()
        self._loop.call_soon_threadsafe(lambda: done.set_result(action()))
        return done.result(60)

    def fail(self, name: str, message: str = "no such image: memcached:9.9; the registry knows 1.5 and 1.6") -> str:
        """Have a run of an object fail at its second task; return its ID."""
        return str(self.do(lambda: self._fail(name, message)))

    def succeed(self, name: str) -> str:
        """Have a run of an object succeed, and keep its files; return its ID."""
        return str(self.do(lambda: self._succeed(name)))

    def _fail(self, name: str, message: str) -> str:
        key, place = ObjectKey("shop", name), "/opt/ansible/roles/memcached/tasks/main.yml:7"
        job = self._job(key)
        folder = self._folder_of(job)
        (folder / "stdout").write_text(_FAILED_OUTPUT)
        (folder / "status").write_text("failed")
        notes = self._journal.start(job, ReconcileRequest(key, reasons.CHANGED, ("spec.image",), 0, 0, 0.2))
        for number, state in enumerate(("ok", "failed"), start=1):
            notes.event(start(f"Step {number}", 2 * number, place))
            res = {"changed": True, "msg": message}
            notes.event(ended(f"on_{state}", 2 * number + 1, res=res))
        failure = TaskFailure("Step 2", message, place)
        notes.end(RunResult(Outcome.FAILED, None, (failure,), "", None, 5.0), RunStats(calls=12))
        self.kind.queue.retry(key, Backoff(60.0), ran=True)
        text = f"{message}\ntask 'Step 2', {place}"
        spec = {"size": 3, "password": "hunter2-hunter2"}
        self.kind.informer.put(name, condition("Failure", message=text), condition("Ready", "False", text), spec=spec)
        return job.ident

    def _folder_of(self, job: Job) -> Path:
        folder = run_dir(self._folder, self.kind.gvk, job.key) / "artifacts" / job.ident
        (folder / "job_events").mkdir(parents=True)
        return folder

    def _succeed(self, name: str) -> str:
        key = ObjectKey("shop", name)
        job = self._job(key)
        events = [
            start("Create the settings", 1, "/opt/ansible/roles/memcached/tasks/main.yml:3"),
            *(ended("item_on_ok", 2, res=result) for result in _RESULTS),
            ended("on_ok", 3, res={"changed": True, "results": list(_RESULTS)}),
        ]
        folder = self._folder_of(job)
        (folder / "stdout").write_text("TASK [memcached : Create the settings] ****\nchanged: [localhost]\n" * 100)
        (folder / "status").write_text("successful")
        (folder / "pod").write_text("shop/run-7b0c-3")
        notes = self._journal.start(job, ReconcileRequest(key, reasons.RETRY, (), 1, 1, 0.2))
        for number, event in enumerate(events, start=1):
            notes.event(event)
            (folder / f"job_events/{number}-uuid.json").write_text(json.dumps(event))
        pod = "shop/run-7b0c-3-x9z on node-1"
        notes.end(RunResult(Outcome.SUCCEEDED, None, (), "", None, 2.0, pod=pod), RunStats(calls=4))
        self.kind.informer.put(name, condition("Ready", message="Last reconciliation succeeded"))
        return job.ident

    def _job(self, key: ObjectKey) -> Job:
        self._runs += 1
        return job_value(
            ident=f"20261121T110000.{self._runs:06}Z-aaaaaa",
            gvk=self.kind.gvk,
            key=key,
            content=Role("memcached", Path("/opt/ansible/roles/memcached")),
            run_dir=run_dir(self._folder, self.kind.gvk, key),
            kubeconfig="",
        )
