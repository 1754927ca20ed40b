"""Handler that confines a run to the namespace of its resource (`ownNamespaceOnly`).

A user who may read Secrets in that namespace can have the token of a run in a pod. Such a token then reads and writes
nothing elsewhere, whatever the permissions of the run are. Everything else is refused except what describes the API
server and the caller: discovery, reviews of the own permissions, and the namespace itself. Must run before every
handler that answers calls.
"""

from __future__ import annotations

import re
from http import HTTPStatus

from runner.base import log
from runner.core.proxy.calls import Answer, Call, Proceed, refusal
from runner.core.proxy.request import RequestInfo

_DESCRIPTIONS = re.compile(r"(?!.*\.\.)/(version|openapi/v[23]|api|apis)(/[A-Za-z0-9._/-]*)?")
"""Paths that are no resources."""
_LONGEST = 200
"""Characters of a resource in the log."""
_OWN_REVIEWS = frozenset({"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"})
_REVIEW_GROUPS = frozenset({"authorization.k8s.io", "authentication.k8s.io"})


class Confined:
    """Handler that refuses requests outside of a namespace."""

    def __init__(self) -> None:
        self._logged = log.Once()

    async def handle(self, call: Call, proceed: Proceed) -> Answer:
        """Answer a call."""
        run, info = call.run.run, call.info
        namespace = run.owner.ref.key.namespace
        if not run.own_namespace_only or not namespace or _is_within(info, namespace):
            return await proceed(call)
        if self._logged.is_new((namespace, info.verb, info.qualified[:_LONGEST])):
            _log.warning(
                "Refused a request of a run outside of its namespace; if the role needs it, remove ownNamespaceOnly",
                job=run.ident,
                verb=info.verb,
                resource=info.qualified[:_LONGEST],
                namespace=info.namespace or None,
            )
        return refusal(
            HTTPStatus.FORBIDDEN,
            f"{info.verb} {info.qualified} outside of namespace {namespace}: the watch of this run sets "
            "ownNamespaceOnly. If the role needs other namespaces or cluster-scoped objects, remove that field",
        )


_log = log.get(__name__)


def _is_within(info: RequestInfo, namespace: str) -> bool:
    if not info.is_resource:
        return info.verb == "get" and _DESCRIPTIONS.fullmatch(info.path) is not None
    if info.resource == "namespaces" and not info.group:
        return info.verb == "get" and info.name == namespace and not info.subresource
    if info.resource in _OWN_REVIEWS and info.group in _REVIEW_GROUPS:
        return info.verb == "create"
    return info.namespace == namespace
