"""Handler of the proxy that keeps the operator's own Secrets from runs."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from urllib.parse import urlencode

from runner.base import log
from runner.core.proxy import request
from runner.core.proxy.calls import Answer, Call, Proceed, refusal
from runner.core.proxy.request import RequestInfo
from runner.engines.pod import jobs

_log = log.get(__name__)


class OwnSecrets:
    """Handler that refuses the operator's own Secrets.

    These are the Secret with the key of its certificate authority, and those of runs in pods. With their keys and
    tokens, a run could pose as another one. Requests for one of them are refused. Lists, watches and deletions of
    collections get selectors that leave them out. Must run before every handler that answers calls.
    """

    def __init__(self, namespace: str, authority: str) -> None:
        """`authority` is the name of a Secret in the operator's `namespace`."""
        self._namespace = namespace
        self._authority = authority
        self._logged = log.Once()

    async def handle(self, call: Call, proceed: Proceed) -> Answer:
        """Answer a call."""
        info = call.info
        if not info.is_resource or info.resource != "secrets" or info.group:
            return await proceed(call)
        if info.name:
            return self._refuse(call) if self._is_own(info) else await proceed(call)
        if info.verb in {"list", "watch", "deletecollection"}:
            self._restrict(call)
        return await proceed(call)

    def _is_own(self, info: RequestInfo) -> bool:
        # Without a namespace, the request selects the name in all of them.
        is_here = info.namespace in {"", self._namespace}
        return (is_here and info.name == self._authority) or jobs.is_secret_name(info.name, warm=is_here)

    def _refuse(self, call: Call) -> Answer:
        info, job = call.info, call.run.run.ident
        secret = f"{info.namespace}/{info.name}"
        if self._logged.is_new((job, secret)):
            _log.warning(
                "Refused a request of a run for a Secret of the operator", job=job, verb=info.verb, secret=secret
            )
        return refusal(
            HTTPStatus.FORBIDDEN,
            f"the Secret {secret} contains a key or token of the operator: the proxy refuses it to all runs",
        )

    def _restrict(self, call: Call) -> None:
        """Add to the selectors of a request."""
        info = call.info
        params = request.parse_query(info.query)
        labels, fields = [f"!{label}" for label in jobs.OWN_LABELS], []
        if info.namespace in {"", self._namespace}:
            fields = [f"metadata.name!={self._authority}"]
        for name, more in (("labelSelector", labels), ("fieldSelector", fields)):
            # The API server uses the first value of a parameter.
            requested = next((value for key, value in params if key == name), "")
            selector = ",".join([*([requested] if requested.strip() else []), *more])
            params = [(key, value) for key, value in params if key != name]
            params += [(name, selector)] if selector else []
        query = urlencode(params)
        call.head = replace(call.head, target=f"{call.head.target.partition('?')[0]}?{query}")
        call.info = replace(info, query=query)
