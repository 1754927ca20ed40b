"""Authentication of runs: the kubeconfig that a run gets, the check of its token, and its namespace.

The address is the same for all runs, because clients cache discovery on disk by address. The Python client does so in
`osrcp-*.json`, kubernetes.core in `k8srcp-*.json`, kubectl and helm in `~/.kube/cache`. A token in the address would
create such a cache for each run, and would show in error messages.

The kubeconfig contains the token twice. Clients that send a bearer token over plain HTTP use `token`. Without TLS,
client-go (kubectl, helm, oc) sends no credentials, but it sends the impersonated user. So the token is also an extra
field of that user, which `--as` on a command line does not remove.

The proxy forwards any other impersonation (`kubectl --as`, `impersonate_user` of kubernetes.core): without it, the
request would have the operator's rights instead of fewer.
"""

from __future__ import annotations

import json
import re
from http import HTTPStatus

from runner.base import log
from runner.core.proxy.calls import Answer, Call, Proceed, refusal
from runner.core.proxy.http.messages import Headers
from runner.core.proxy.identity import Identities
from runner.core.proxy.request import RequestInfo

_USER = "ansible-operator-run"
"""The impersonated user of requests without other impersonation."""
_TOKEN_EXTRA = "run-token"  # noqa: S105 - the name of a field
"""The extra field of that user which contains the token."""
_CONTEXT = "ansible-operator-proxy"
_TOKEN_FIELD = f"impersonate-extra-{_TOKEN_EXTRA}".encode()
_USER_FIELD = b"impersonate-user"
_BEARER = "bearer "


def kubeconfig(url: str, token: str) -> str:
    """Return the kubeconfig of a run as JSON, which is YAML and a hundred times faster to write.

    It sets no namespace, like that of the Go operator: without `-n`, `kubectl` in a pod uses the pod's namespace.
    """
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": _CONTEXT,
            "contexts": [{"name": _CONTEXT, "context": {"cluster": _CONTEXT, "user": _CONTEXT}}],
            "clusters": [{"name": _CONTEXT, "cluster": {"server": url}}],
            "users": [
                {"name": _CONTEXT, "user": {"token": token, "as": _USER, "as-user-extra": {_TOKEN_EXTRA: [token]}}}
            ],
        },
    )


def authenticate(identities: Identities, call: Call) -> Answer | None:
    """Set the run of a call, and remove the credentials. Without the token of an active run, return a refusal."""
    tokens, rest = _read(call.headers)
    active = next((known for token in tokens if (known := identities.active(token))), None)
    if active is None:
        return refusal(
            401,
            "the token does not belong to an active run: use the kubeconfig named by K8S_AUTH_KUBECONFIG and "
            "KUBECONFIG, and only while the run is active",
            (b"WWW-Authenticate", b'Bearer realm="ansible-operator"'),
        )
    call.active, call.headers = active, rest
    active.connections.add(call.client)
    call.client.admitted()
    return None


def _read(headers: Headers) -> tuple[list[str], Headers]:
    """Return the tokens in the headers, and all other headers."""
    tokens: list[str] = []
    rest: Headers = []
    for name, value in headers:
        lower = name.lower()
        if lower == b"authorization":
            text = value.decode("latin-1")
            if text[: len(_BEARER)].lower() == _BEARER:
                tokens.append(text[len(_BEARER) :].strip())
        elif lower == _TOKEN_FIELD:
            tokens.append(value.decode("latin-1"))
        elif lower != _USER_FIELD or value != _USER.encode():
            rest.append((name, value))
    return tokens, rest


_DESCRIPTIONS = re.compile(r"(?!.*\.\.)/(version|openapi/v[23]|api|apis)(/[A-Za-z0-9._/-]*)?")
"""Paths that are no resources."""
_LONGEST = 200
"""Characters of a resource in the log."""
_OWN_REVIEWS = frozenset({"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"})
_REVIEW_GROUPS = frozenset({"authorization.k8s.io", "authentication.k8s.io"})


class Confined:
    """Handler that confines a run to the namespace of its resource (`ownNamespaceOnly`).

    A user who may read Secrets in that namespace can have the token of a run in a pod. Such a token then reads and
    writes nothing elsewhere, whatever the permissions of the run are. Everything else is refused except what describes
    the API server and the caller: discovery, reviews of the own permissions, and the namespace itself. It must be
    before every handler that answers calls.
    """

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
