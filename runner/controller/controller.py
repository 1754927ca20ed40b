"""One watched kind: its informer, its queue and its workers.

Here events become requests and verdicts become delays; everything else is somebody else's. One kind's trouble never
stops another's.
"""

from __future__ import annotations

import asyncio

from runner import log
from runner.controller import triggers
from runner.controller.reconcile import TROUBLE_BACKOFF, Reconciler
from runner.controller.result import Done, RequeueAfter, Retry, Terminal, Verdict
from runner.dependents.loop_guard import Contention
from runner.kube.cache import Change
from runner.kube.informer import Informer
from runner.monitoring.metrics import Metrics, controller_name
from runner.objects import ObjectKey
from runner.references.watching import References
from runner.watches.watch import Watch
from runner.workqueue.concurrency import Share, Slots
from runner.workqueue.queue import Reason, Request, WorkQueue

_RESULT_NAMES = {Done: "success", RequeueAfter: "requeue_after", Retry: "error", Terminal: "error"}


class Controller:
    """Runs one watch of watches.yaml."""

    def __init__(
        self,
        watch: Watch,
        informer: Informer,
        reconciler: Reconciler,
        metrics: Metrics,
        references: References,
        workers: int,
        slots: Slots,
    ) -> None:
        self.watch = watch
        self.queue = WorkQueue(Share.of(workers), slots)
        self.informer = informer
        """For whoever looks on, as `queue` is."""
        self._reconciler = reconciler
        self._metrics = metrics
        self._references = references
        self.workers = workers
        self._holding = reconciler.holding
        self._name = controller_name(watch.gvk)
        self._terminal: set[ObjectKey] = set()
        self._notes: dict[ObjectKey, Contention | None] = {}
        self._noted = asyncio.Event()
        self._log = log.get(__name__, gvk=str(watch.gvk))
        metrics.add_kind(watch.gvk, self.queue, workers)
        self._holding.listen(self)
        metrics.objects.labels(str(watch.gvk)).set_function(informer.__len__)
        metrics.add_objects(watch.gvk, informer.created, informer.age)

    def problem(self) -> str | None:
        """Say what keeps the kind from being watched; None while nothing does."""
        return self.informer.problem()

    def silence(self) -> str | None:
        """Say that the watch is silent for longer than any may be, so that something of ours must be broken."""
        return self.informer.silence()

    async def follow(self) -> None:
        """Turn what happens to the kind's objects into requests, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.informer.follow(self._changed))
            group.create_task(self._reconciler.sweep())
            group.create_task(self._note())

    def wake(self, key: ObjectKey, why: str) -> None:
        """Run an object because of something that it owns."""
        if self._holding.owns(self.watch.gvk, key) and key in self.informer and key not in self._terminal:
            self._log.info("A dependent changed", why=why, **key._asdict())
            self.queue.add(key, Reason.DEPENDENT, (why,))

    def wake_for_reference(self, key: ObjectKey, why: str) -> None:
        """Run an object because of something that it names: also one that was left alone until it changes."""
        if self._holding.owns(self.watch.gvk, key) and key in self.informer:
            self._log.info("A reference changed", why=why, **key._asdict())
            self.queue.add(key, Reason.REFERENCE, (why,))

    def run_all(self, why: str) -> None:
        """Run every object because of what its runs execute: also those that were left alone until they change."""
        for key in self.informer.all_keys():
            if self._holding.owns(self.watch.gvk, key):
                self.queue.add(key, Reason.EDITED, (why,))

    def gained(self, shard: int) -> None:
        """A shard's objects are ours: each runs once, as at start, since nobody knows what we have missed."""
        for key in self._of(shard):
            # Another replica's runs have written what this one may have kept of before.
            self._reconciler.forget(key)
            self.queue.add(key, Reason.PRESENT)

    def lost(self, shard: int) -> None:
        """A shard's objects are no longer ours."""
        for key in self._of(shard):
            self._terminal.discard(key)
            self.queue.forget(key)

    def _of(self, shard: int) -> list[ObjectKey]:
        shard_of, gvk = self._holding.shard_of, self.watch.gvk
        return [key for key in self.informer.all_keys() if shard_of(gvk, key) == shard]

    def contended(self, key: ObjectKey, contention: Contention | None) -> None:
        """Show that an object is slowed down because of something that it owns, or (None) no longer."""
        self._notes[key] = contention
        self._noted.set()

    async def _note(self) -> None:
        """Write what is to be shown of objects that are slowed down, for ever; of each, the latest."""
        while True:
            await self._noted.wait()
            self._noted.clear()
            while self._notes:
                key, contention = self._notes.popitem()
                await self._reconciler.note(key, contention)

    async def work(self) -> None:
        """Serve requests until the queue is closed; what is being served then is served to its end."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self.workers):
                group.create_task(self._work())

    def _changed(self, change: Change) -> None:
        if change.new is None:
            self._terminal.discard(change.key)
            self.queue.forget(change.key)
        self._note_references(change)
        reason = triggers.decide(self.watch, change, terminal=change.key in self._terminal)
        if reason is None or not (change.new is None or self._holding.owns(self.watch.gvk, change.key)):
            return
        # A kind without a generation does not show whether the change was the run's own.
        new = change.new
        if new is not None and not new.paused and (new.deleting or new.generation is not None):
            self._reconciler.supersede(change.key, reason)
        self.queue.add(change.key, reason, change.fields)

    def _note_references(self, change: Change) -> None:
        old, new = change.old, change.new
        if new is None:
            self._references.forget(self.watch.gvk, change.key)
        elif self.watch.references and (old is None or new.generation is None or old.generation != new.generation):
            obj = self.informer.get(change.key)
            if obj is not None:
                self._references.update(self.watch.gvk, obj)

    async def _work(self) -> None:
        while (request := await self.queue.get()) is not None:
            started = asyncio.get_running_loop().time()
            self._metrics.queue_seconds.labels(self._name, self._name).observe(request.waited)
            self._metrics.waits.labels(str(self.watch.gvk), request.reason.value).observe(request.waited)
            try:
                verdict = await self._reconcile(request)
                self._apply(request, verdict)
            finally:
                self.queue.done(request.key)
            seconds = asyncio.get_running_loop().time() - started
            self._metrics.work_seconds.labels(self._name, self._name).observe(seconds)
            self._metrics.reconcile_seconds.labels(self._name).observe(seconds)
            self._metrics.reconciles.labels(self._name, _RESULT_NAMES[type(verdict)]).inc()

    async def _reconcile(self, request: Request) -> Verdict:
        try:
            await self._references.ready(self.watch.gvk, request.key)
            return await self._reconciler.reconcile(self.queue.begun(request))
        except Exception:  # noqa: BLE001 - a defect of ours must not end the worker: it is told whole, and tried again
            self._log.exception("Reconcile failed unexpectedly", **request.key._asdict())
            return Retry(TROUBLE_BACKOFF, ran=False)

    def _apply(self, request: Request, verdict: Verdict) -> None:
        key = request.key
        if isinstance(verdict, Terminal):
            self._terminal.add(key)
            return
        self._terminal.discard(key)
        if isinstance(verdict, Retry):
            delay = self.queue.retry(key, verdict.backoff, ran=verdict.ran)
            if delay:
                self._log.info("Object is tried again", seconds=delay, failures=request.failures + 1, **key._asdict())
            return
        self.queue.succeeded(key)
        if isinstance(verdict, RequeueAfter):
            self.queue.add_after(key, Reason.REQUEUED, verdict.delay)
        elif verdict.again is not None and key in self.informer:
            self.queue.add_after(key, Reason.RESYNC, verdict.again)
