"""Recorder of missing rights and terminating namespaces from responses with status 403, in the run's statistics.

The client gets the response unchanged. Must run before every handler that sends requests to the API server.
"""

from __future__ import annotations

from http import HTTPStatus

from runner.kube import forbidden
from runner.proxy.calls import Answer, Call, Proceed
from runner.proxy.handlers import content


class RefusalRecorder:
    """Handler that records responses with status 403."""

    async def handle(self, call: Call, proceed: Proceed) -> Answer:
        """Forward the call, and inspect a response with status 403."""
        answer = await proceed(call)
        if answer.status == HTTPStatus.FORBIDDEN:
            try:
                status = await content.observe(answer)
            except BaseException:
                answer.finish()
                raise
            missing = forbidden.read(str(status.get("message") or "")) if status else None
            if missing is not None:
                call.run.run.stats.lacks(missing)
            if status and forbidden.terminating(status):
                call.run.run.stats.terminates(call.info.namespace)
        return answer
