"""Says whose call it is, and takes the client's own credentials off it.

How a client shows its token depends on what it sends over plain HTTP (see `kubeconfig`): clients of other languages
send a bearer token; client-go sends none without TLS, but passes on whom it impersonates, so there the token is the
value of one of the impersonated user's extra fields.

A client that impersonates someone on top of that (`kubectl --as`, `impersonate_user` of kubernetes.core) is passed on
as it asks: to drop that would do with the operator's rights what was meant to be done with fewer.
"""

from __future__ import annotations

from runner.proxy import kubeconfig
from runner.proxy.calls import Answer, Call, Proceed, refusal
from runner.proxy.http.messages import Headers
from runner.proxy.identity import Identities, Session

_TOKEN_FIELD = f"impersonate-extra-{kubeconfig.EXTRA}".encode()
_RUN_USER = kubeconfig.USER.encode()
_USER_FIELD = b"impersonate-user"
_BEARER = "bearer "


class Authenticate:
    """The first handler: without a run's token nothing is passed on."""

    def __init__(self, identities: Identities) -> None:
        self._identities = identities

    async def handle(self, call: Call, proceed: Proceed) -> Answer:
        """Refuse, or go on as a run."""
        session, kept = self._read(call.headers)
        if session is None:
            return refusal(
                401,
                "the token does not belong to an active run: use the kubeconfig named by K8S_AUTH_KUBECONFIG and "
                "KUBECONFIG, and only while the run is active",
                (b"WWW-Authenticate", b'Bearer realm="ansible-operator"'),
            )
        call.session, call.headers = session, kept
        session.connections.add(call.client)
        return await proceed(call)

    def _read(self, headers: Headers) -> tuple[Session | None, Headers]:
        tokens: list[str] = []
        kept: Headers = []
        for name, value in headers:
            lower = name.lower()
            if lower == b"authorization":
                text = value.decode("latin-1")
                if text[: len(_BEARER)].lower() == _BEARER:
                    tokens.append(text[len(_BEARER) :].strip())
            elif lower == _TOKEN_FIELD:
                tokens.append(value.decode("latin-1"))
            elif lower != _USER_FIELD or value != _RUN_USER:
                kept.append((name, value))
        return next((found for token in tokens if (found := self._identities.session(token))), None), kept
