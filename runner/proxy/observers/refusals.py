"""Observer that records missing rights and terminating namespaces from responses with status 403."""

from __future__ import annotations

from http import HTTPStatus

from runner.kube import forbidden
from runner.proxy.calls import Answer, Call


async def answered(call: Call, answer: Answer) -> None:
    """Record a refusal in the statistics of the run."""
    if answer.status != HTTPStatus.FORBIDDEN or (status := await answer.object()) is None:
        return
    missing = forbidden.read(str(status.get("message") or ""))
    if missing is not None:
        call.run.run.stats.lacks(missing)
    if forbidden.terminating(status):
        call.run.run.stats.terminates(call.info.namespace)
