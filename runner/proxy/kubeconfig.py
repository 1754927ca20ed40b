"""The kubeconfig of a run: where the proxy is, and who asks.

The address is the same for all runs, because clients keep what they discover on disk by address: the Python client in
`osrcp-*.json`, kubernetes.core in `k8srcp-*.json`, kubectl and helm below `~/.kube/cache`. An address with the token in
it would leave such a cache behind for each run, and discover everything anew; and it would show in error messages.

The token stands there twice. Clients that send a bearer token over plain HTTP take `token`. client-go (kubectl, helm,
oc) ignores whatever logs in unless the server has TLS, but not whom to impersonate: the token is an extra field of
that user, and a `--as` on a command line leaves extra fields as they are.
"""

from __future__ import annotations

import json

USER = "ansible-operator-run"
"""The user that a run's clients ask to impersonate when nothing else was asked."""
EXTRA = "run-token"
"""The extra field of that user which holds the token."""
_NAME = "ansible-operator-proxy"


def text(url: str, token: str, namespace: str) -> str:
    """Render the kubeconfig of a run: as JSON, which is YAML too and takes a hundredth of the time."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": _NAME,
            "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME, "namespace": namespace}}],
            "clusters": [{"name": _NAME, "cluster": {"server": url}}],
            "users": [{"name": _NAME, "user": {"token": token, "as": USER, "as-user-extra": {EXTRA: [token]}}}],
        },
    )
