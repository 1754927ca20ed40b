"""Observer that records missing rights, service accounts and terminating namespaces from responses with status 403."""

from __future__ import annotations

from http import HTTPStatus

from runner.core.kube import forbidden, service_accounts
from runner.core.proxy.calls import Answer, Call, Observer


async def answered(call: Call, answer: Answer) -> None:
    """Record a refusal in the statistics of the run."""
    statuses = await answer.objects("Status") if answer.status == HTTPStatus.FORBIDDEN else []
    if not statuses:
        return
    status = statuses[0]
    missing = forbidden.read(str(status.get("message") or ""))
    run = call.run.run
    if missing is not None:
        run.stats.lacks(missing)
        if run.stats.absent_user is None and run.service_account:
            run.stats.absent_user = ""  # one question for each run
            if await run.account_exists() is False:
                run.stats.absent_user = service_accounts.user(run.service_account)
    if forbidden.terminating(status):
        run.stats.terminates(call.info.namespace)


OBSERVER = Observer(answered=answered)
