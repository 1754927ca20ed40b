"""Controller of one kind: events become requests, and the results of requests become delays.

A failure in one kind never stops another (runner.base.monitoring.background).
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

from runner.base import log
from runner.base.monitoring.background import Work
from runner.core.kube.cache import Change, Summary
from runner.core.queue import reasons
from runner.core.queue.reasons import Cause, ReconcileRequest
from runner.core.reconcile import decisions
from runner.core.reconcile.decisions import Done, RequeueAfter, Result, Retry, Terminal
from runner.core.reconcile.feature import Kind
from runner.core.reconcile.hooks import REQUEST_BACKOFF
from runner.core.reconcile.metrics import controller_name
from runner.core.reconcile.reconcile import Reconciler
from runner.values.objects import ObjectKey

_LIST_PATIENCE = 3.0
"""Maximum seconds that reruns wait for the first list."""
_RESULT_NAMES = {Done: "success", RequeueAfter: "requeue_after", Retry: "error", Terminal: "error"}


class Controller:
    """Runs one watch of watches.yaml."""

    def __init__(self, kind: Kind, reconciler: Reconciler) -> None:
        scope, metrics, gvk = kind.scope, kind.scope.metrics, kind.scope.watch.gvk
        self.watch = scope.watch
        self.queue = kind.queue
        self.informer = scope.informer
        self._scope = scope
        self._kind = kind
        self._reconciler = reconciler
        self._metrics = metrics
        self._leadership = scope.leadership
        self._name = controller_name(gvk)
        self._waits: dict[ObjectKey, Terminal | Retry] = {}
        """By object: a result that any change ends. It does not run until it changes, or a request is refused."""
        self._log = log.get(__name__, gvk=str(gvk))
        scope.registry.subscribe(lambda key: self._waits.pop(key, None))
        scope.registry.subscribe(self.queue.forget)
        self._leadership.listen(self._leadership_changed)
        metrics.add_kind(gvk, self.queue)
        metrics.objects.labels(str(gvk)).set_function(self.informer.__len__)
        metrics.add_objects(gvk, self.informer.created, self.informer.age)

    async def follow(self) -> None:
        """Turn the events of the kind's objects into requests until canceled, with the kind's work in the background.

        This work repeats writes of statuses, and removes what features keep of former objects.
        """
        self.queue.hold_reruns()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep("watch", partial(self.informer.follow, self._changed)))
            group.create_task(self._keep("status", self._kind.status.follow))
            for hooks in self._kind.hooks:
                group.create_task(self._keep(type(hooks).__name__, hooks.sweep))
            group.create_task(self._release_reruns())

    async def _keep(self, name: str, work: Work) -> None:
        await self._scope.background.keep(f"{self.watch.gvk.kind}/{name}", work)

    async def _release_reruns(self) -> None:
        """Wait for the first list, so that objects that never ran are first. If it takes long, wait no more."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LIST_PATIENCE):
                async for _ in self.informer.known_namespaces():
                    pass
        self.queue.release_reruns()

    def wake(self, key: ObjectKey, cause: Cause) -> None:
        """Run an object for a cause outside it, if this replica leads.

        An object that does not run until it changes needs a reason that starts over.
        """
        reason, exists = cause.reason, self._leadership.leads() and key in self.informer
        if exists and (reason.starts_over or not isinstance(self._waits.get(key), Terminal)):
            if reason.message:
                self._log.info(reason.message, why=", ".join(cause.details), **key._asdict())
            self.queue.add(key, reason, cause.details, cause.handicap)

    def _leadership_changed(self) -> None:
        """Forget all objects. If this replica leads now, run each once, as at start: it missed earlier events."""
        for key in self.informer.all_keys():
            # The runs of another replica may change anything that is cached of the object.
            self._scope.registry.forget(key)
            if self._leadership.leads():
                self.queue.add_at_start(key, decisions.result_at_start(self.watch, self.informer.summary(key)))

    async def work(self) -> None:
        """Serve requests until the queue is closed; what is being served then is served to its end."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self.queue.limit.workers):
                group.create_task(self._keep("worker", self._work))
        await self._kind.status.drain()

    def _changed(self, change: Change) -> None:
        if change.new is None:
            self._scope.registry.forget(change.key)
        for hooks in self._kind.hooks:
            try:
                hooks.changed(change)
            except Exception as error:  # noqa: BLE001 - a defect of a feature must not cost an object its run
                name = f"{self.watch.gvk.kind}/{type(hooks).__name__}"
                self._scope.background.note(name, error, "the change is handled without it")
        reason = decisions.run_reason(self.watch, change, self._scope.marks, waits=change.key in self._waits)
        if reason is None or not (change.new is None or self._leadership.leads()):
            return
        # A kind without a generation does not show whether the run itself made the change.
        new = change.new
        if new is not None and not new.paused and (new.deleting or new.generation is not None):
            self._kind.runs.supersede(change.key, reason)
        if reason is reasons.PRESENT:
            self.queue.add_at_start(change.key, decisions.result_at_start(self.watch, new))
        else:
            self.queue.add(change.key, reason, change.fields)

    async def _work(self) -> None:
        while (request := await self.queue.get()) is not None:
            started = asyncio.get_running_loop().time()
            self._metrics.queue_seconds.labels(self._name, self._name).observe(request.waited)
            self._metrics.waits.labels(str(self.watch.gvk), request.reason.value).observe(request.waited)
            before = self.informer.summary(request.key)
            try:
                result = await self._reconcile(request)
                self._apply(request, result)
                self._catch_up(request.key, before, result)
            except Exception:
                self.queue.retry(request.key, REQUEST_BACKOFF, ran=False)  # the worker begins again without it
                raise
            finally:
                self.queue.done(request.key)
            seconds = asyncio.get_running_loop().time() - started
            self._metrics.work_seconds.labels(self._name, self._name).observe(seconds)
            self._metrics.reconcile_seconds.labels(self._name).observe(seconds)
            self._metrics.reconciled(self._name, _RESULT_NAMES[type(result)])

    async def _reconcile(self, request: ReconcileRequest) -> Result:
        try:
            for hooks in self._kind.hooks:
                await hooks.ready(request.key)
            return await self._reconciler.reconcile(self.queue.begun(request))
        except Exception:  # noqa: BLE001 - a defect must not end the worker: it is logged with its traceback, and retried
            self._log.exception("Reconcile failed unexpectedly", **request.key._asdict())
            return Retry(REQUEST_BACKOFF, ran=False)

    def _catch_up(self, key: ObjectKey, before: Summary | None, result: Result) -> None:
        """Run an object that waits for a change if the change came during the attempt.

        An attempt that ran does not count: the role itself may have changed an annotation.
        """
        waits = (isinstance(result, Terminal) and not result.ran) or (isinstance(result, Retry) and result.refused)
        now = self.informer.summary(key)
        if waits and before is not None and now is not None and before.annotations_digest != now.annotations_digest:
            self.queue.add(key, reasons.CHANGED)

    def _apply(self, request: ReconcileRequest, result: Result) -> None:
        """Queue what follows the attempt."""
        key = request.key
        self._waits.pop(key, None)
        match result:
            case Terminal():
                self._waits[key] = result
            case Retry(backoff, ran, refused):
                if refused:
                    self._waits[key] = result
                delay = self.queue.retry(key, backoff, ran=ran)
                if delay:
                    failures = request.failures + 1
                    # A run that waits for its pod has not failed; its status contains the reason.
                    write = self._log.debug if backoff is decisions.POD_BACKOFF else self._log.info
                    write("Retrying the object with backoff", seconds=delay, failures=failures, **key._asdict())
            case RequeueAfter(delay, why):
                self.queue.succeeded(key)
                self.queue.add_after(key, why, delay)
            case Done(resync_after):
                self.queue.succeeded(key)
                if resync_after is not None and key in self.informer:
                    self.queue.add_after(key, reasons.RESYNC, resync_after)
