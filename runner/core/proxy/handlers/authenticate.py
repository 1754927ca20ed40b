"""Authentication of runs: the kubeconfig that a run gets, and the check of its token.

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

from runner.core.proxy.calls import Answer, Call, refusal
from runner.core.proxy.http.messages import Headers
from runner.core.proxy.identity import Identities

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
    session = next((active for token in tokens if (active := identities.session(token))), None)
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
