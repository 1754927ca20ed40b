"""Handler of plan runs (`RunIdentity.view`), which must not change the cluster.

Owns: which requests reach the API server. Reads do, with the planned writes merged into their responses. Writes do as
dry runs. Requests that the API server cannot dry-run are refused and recorded. Writes of a run with an approved plan
(`APPROVED`) reach it if the plan contains them. Must be the last handler before the
request is forwarded, so that all other handlers treat a plan run like a real one. Must not import: the read cache.
"""

from __future__ import annotations

from collections.abc import Callable

from runner.core.kube.discovery import ServedResources
from runner.core.proxy.calls import Answer, Call, Proceed, refusal
from runner.core.proxy.request import RequestInfo, parse_query
from runner.features.plan.approved import APPROVED, ApprovedPlan
from runner.features.plan.requests import approved, calls, reads
from runner.features.plan.requests.calls import PlanCall, RefusedError, StatusError
from runner.features.plan.requests.writes import PlanWrites
from runner.features.plan.trial.overlay import Overlay

_LONGEST_WATCH = 30.0
_SAFE = frozenset({"GET", "HEAD"})
_CONNECTS = frozenset({"exec", "attach", "portforward", "proxy"})
_READS = frozenset({"get", "list", "watch"})
_BAD_REQUEST = 400
_LARGEST_PLAN = 64 << 20
"""Bytes of planned objects."""
_TOO_LARGE = "the run plans more than 64 MiB of objects"


class Planning:
    """Handler of plan runs."""

    def __init__(
        self, served: ServedResources, clock: Callable[[], float], longest_watch: float = _LONGEST_WATCH
    ) -> None:
        """`longest_watch` is the duration in seconds of watches whose objects the plan changes."""
        self._longest_watch = longest_watch
        self._writes = PlanWrites(served, clock)

    async def handle(self, call: Call, proceed: Proceed) -> Answer:
        """Answer a call of a plan run, and writes of a run with an approved plan; forward the calls of other runs."""
        run = call.run.run
        approval, overlay = run.more.get(APPROVED), run.view
        if approval is not None:
            return await self._approve(call, proceed, approval)
        if not isinstance(overlay, Overlay):
            return await proceed(call)
        if overlay.size > _LARGEST_PLAN and call.head.method not in _SAFE:
            overlay.incomplete(_TOO_LARGE)
            return refusal(413, _TOO_LARGE)
        plan = PlanCall(call, proceed, call.run.run, overlay, parse_query(call.info.query))
        try:
            return await self._answer(plan)
        except RefusedError as error:
            return calls.refused(plan, error)
        except StatusError as error:
            return error.answer

    async def _approve(self, call: Call, proceed: Proceed, approval: ApprovedPlan) -> Answer:
        plan = PlanCall(call, proceed, call.run.run, Overlay(), parse_query(call.info.query))
        try:
            if call.head.method in _SAFE and not _connects(call):
                return await proceed(call)
            _check(plan)
            return await approved.answer(self._writes, plan, approval)
        except RefusedError as error:
            why = RefusedError(plan.run.secrets.masker.text(str(error)), error.status)
            approval.refuse(f"{plan.info.verb} {plan.info.qualified} {plan.key}: {why}")
            return calls.refused(plan, why, "approved run")
        except StatusError as error:
            return error.answer

    async def _answer(self, plan: PlanCall) -> Answer:
        info, method = plan.info, plan.call.head.method
        if method in _SAFE and not info.is_resource and not _connects(plan.call):
            return await plan.forward()
        _check(plan)
        if method not in _SAFE:
            return await self._writes.answer(plan)
        if info.verb in _READS:
            return await reads.answer(plan, self._longest_watch)
        raise RefusedError("plan runs do not support this verb")


def _connects(call: Call) -> bool:
    info = call.info
    return bool(call.head.upgrade) or info.subresource in _CONNECTS or info.verb == "proxy"


def _check(plan: PlanCall) -> None:
    """Raise RefusedError if the API server cannot dry-run a request, or if its path is ambiguous."""
    if _connects(plan.call):
        raise RefusedError("it opens a session with a process in the cluster, which the API server cannot dry-run")
    if not plan.info.is_resource:
        raise RefusedError("it is no request for a resource, so the API server cannot dry-run it")
    if not _is_canonical(plan.call.head.target, plan.info):
        raise RefusedError(
            "the path is ambiguous: use /apis/GROUP/VERSION/namespaces/NAMESPACE/PLURAL/NAME", _BAD_REQUEST
        )


def _is_canonical(target: str, info: RequestInfo) -> bool:
    """Return whether a path has one meaning only: no encoded slashes, empty or dot segments, or more parts."""
    raw = target.partition("?")[0].rstrip("/")
    segments = info.path.rstrip("/").split("/")[1:]
    if "%2f" in raw.lower() or any(segment in {"", ".", ".."} for segment in segments):
        return False
    name = "" if info.verb in {"list", "deletecollection"} else info.name
    if info.verb == "watch":
        # The name is in the field selector, or in a deprecated path.
        name = info.name if segments[-1] == info.name else ""
        segments = [segment for number, segment in enumerate(segments) if (segment, number) not in _OLD_WATCH]
    return segments == calls.segments_of(info, info.key.namespace, name, info.subresource)


_OLD_WATCH = frozenset({("watch", 2), ("watch", 3)})
"""Places of the verb in `/api/v1/watch/pods` and `/apis/apps/v1/watch/deployments`."""
