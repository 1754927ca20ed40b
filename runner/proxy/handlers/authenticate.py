"""Authentication of runs: the kubeconfig that a run gets, and the check of its token. Also the operator's own Secrets.

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
from dataclasses import replace
from http import HTTPStatus
from typing import Protocol
from urllib.parse import urlencode

from runner import log
from runner.proxy import request
from runner.proxy.calls import Answer, Call, Proceed, refusal
from runner.proxy.http.messages import Headers
from runner.proxy.identity import Identities
from runner.proxy.request import RequestInfo

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
    """Set the session of a call, and remove the credentials. Without the token of an active run, return a refusal."""
    tokens, rest = _read(call.headers)
    session = next((found for token in tokens if (found := identities.session(token))), None)
    if session is None:
        return refusal(
            401,
            "the token does not belong to an active run: use the kubeconfig named by K8S_AUTH_KUBECONFIG and "
            "KUBECONFIG, and only while the run is active",
            (b"WWW-Authenticate", b'Bearer realm="ansible-operator"'),
        )
    call.session, call.headers = session, rest
    session.connections.add(call.client)
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


_log = log.get(__name__)


class NamesRuns(Protocol):
    """Decision whether a name is that of a Secret of a run; with `warm`, also of a warm pod."""

    def __call__(self, name: str, *, warm: bool) -> bool:
        """Return the decision."""
        ...


class OwnSecrets:
    """Handler that refuses the operator's own Secrets.

    These are the Secret with the key of its certificate authority, and those of runs in pods. With their keys and
    tokens, a run could pose as another one. Requests for one of them are refused. Lists, watches and deletions of
    collections get selectors that leave them out. Must run before every handler that answers calls.
    """

    def __init__(self, namespace: str, authority: str, is_of_run: NamesRuns, labels: tuple[str, ...]) -> None:
        """`authority` is the name of a Secret in the operator's `namespace`. Secrets of runs have one of `labels`."""
        self._namespace = namespace
        self._authority = authority
        self._is_of_run = is_of_run
        self._labels = labels
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
        return (is_here and info.name == self._authority) or self._is_of_run(info.name, warm=is_here)

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
        labels, fields = [f"!{label}" for label in self._labels], []
        if info.namespace in {"", self._namespace}:
            fields = [f"metadata.name!={self._authority}"]
        for name, more in (("labelSelector", labels), ("fieldSelector", fields)):
            # The API server uses the first value of a parameter.
            given = next((value for key, value in params if key == name), "")
            selector = ",".join([*([given] if given.strip() else []), *more])
            params = [(key, value) for key, value in params if key != name]
            params += [(name, selector)] if selector else []
        query = urlencode(params)
        call.head = replace(call.head, target=f"{call.head.target.partition('?')[0]}?{query}")
        call.info = replace(info, query=query)
