"""Notes which rights a run turned out not to have, and which namespaces were being deleted under it.

Owns: nothing but the look at answers with 403. What they say stands in the run's stats, and goes to the client as it
came. Stands before every handler that asks the API server, so that no refusal passes it by.
"""

from __future__ import annotations

from http import HTTPStatus

from runner.kube import forbidden
from runner.proxy.calls import Answer, Call, Proceed
from runner.proxy.handlers import content


class RefusalRecorder:
    """The handler."""

    async def handle(self, call: Call, proceed: Proceed) -> Answer:
        """Pass the call on, and read the answer if it is a refusal."""
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
