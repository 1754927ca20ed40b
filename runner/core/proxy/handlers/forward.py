"""Handlers that choose the format of a response, and forward calls with the operator's credentials, as a stream.

Owns the bytes sent to the API server, and which requests are repeated. Two kinds are repeated:

- a request with content of at most 4 MiB after status 401, with refreshed credentials. Streamed content is kept;
- an idempotent request without content (RFC 9110, 9.2.2) on a reused connection that the server has closed.

Promises: no write is sent for a run whose object another replica may own. The lease is checked when the bytes are
passed to the socket, without an `await` in between. Content is streamed at the speed of the slower side; if one side
disconnects, the other is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

from multidict import CIMultiDict

from runner.base.credentials.auth import Credentials
from runner.core.kube import service_accounts
from runner.core.proxy.calls import Answer, Call, Proceed, Whole, refusal
from runner.core.proxy.http import messages
from runner.core.proxy.http.connection import Body, BrokenError, MalformedError
from runner.core.proxy.http.ends import ServerConnection, Upstream
from runner.core.proxy.http.messages import CHUNKED, Headers, ResponseHead
from runner.values.errors import ApiUnavailableError

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
_WITH_CONTENT = frozenset({"POST", "PUT", "PATCH"})
_OURS = frozenset({b"host", b"content-length", b"via"})
_HELD = _OURS | {b"expect"}
_VIA = (b"Via", b"1.1 ansible-operator")
_SWITCHING = 101
_UNAUTHORIZED = 401
_FIRST_FINAL = 200
_DRY_RUN = "dryRun=All"
_IMPERSONATE = "impersonate-"
_LEASE_LOST = (
    "the operator could not renew its Lease in time, so another replica may reconcile this object now: "
    "the proxy rejects all writes of this run"
)
_NOT_A_DRY_RUN = "a trial can send reads and dry runs only"


class Forward:
    """The last step of request processing."""

    def __init__(self, credentials: Credentials, upstream: Upstream) -> None:
        self._credentials = credentials
        self._upstream = upstream

    async def __call__(self, call: Call) -> Answer:
        """Forward the call. Raises ApiUnavailableError if the API server does not respond."""
        login = await self._credentials.headers()
        account = call.run.run.service_account
        if call.run.run.view is not None and not _is_dry_run(call):
            return refusal(403, _NOT_A_DRY_RUN)
        if problem := _clash(login, account, call.headers):
            return refusal(403, problem)
        login = _acting_as(account, login)
        answer = await self._send(call, login)
        if answer.status == _UNAUTHORIZED and await call.is_repeatable():
            answer.release()
            await self._credentials.refresh()
            answer = await self._send(call, _acting_as(account, await self._credentials.headers()))
        return answer

    async def _send(self, call: Call, login: CIMultiDict[str]) -> Answer:
        for fresh in (False, True):
            connection = await self._upstream.acquire(fresh=fresh)
            if not _may_send(call):
                self._upstream.release(connection)
                return refusal(409, _LEASE_LOST)
            exchange = _Exchange(call, connection, self._upstream)
            call.ends.append(exchange.end)
            try:
                return await exchange.run(self._render(call, login))
            except (BrokenError, MalformedError) as error:
                exchange.end()
                exchange.raise_client_error()
                if fresh or not _may_repeat(call, connection):
                    raise ApiUnavailableError(f"{self._credentials.base_url}: {error}") from error
        raise AssertionError("unreachable: the second attempt returns or raises")

    def _render(self, call: Call, login: Mapping[str, str]) -> bytes:
        """Return the head, and the content if it is buffered."""
        server = urlsplit(self._credentials.base_url)
        content, length = call.content, call.head.length
        headers: Headers = [(b"Host", server.netloc.rpartition("@")[2].encode())]
        headers += messages.end_to_end(call.headers, without=_OURS if isinstance(content, Body) else _HELD)
        headers += [(name.encode(), value.encode()) for name, value in login.items()]
        headers.append(_VIA)
        if isinstance(content, bytes):
            length = len(content)
        if length == CHUNKED:
            headers.append((b"Transfer-Encoding", b"chunked"))
        elif length or call.head.method in _WITH_CONTENT:
            headers.append((b"Content-Length", b"%d" % length))
        if call.head.upgrade:
            headers += [(b"Connection", b"Upgrade"), (b"Upgrade", call.head.get(b"upgrade"))]
        start = f"{call.head.method} {server.path}{call.head.target} HTTP/1.1"
        head = messages.render(start.encode("latin-1"), headers)
        return head + content if isinstance(content, bytes) else head


class _Exchange:
    """One request and response on one connection."""

    def __init__(self, call: Call, connection: ServerConnection, upstream: Upstream) -> None:
        self._call = call
        self._connection = connection
        self._upstream = upstream
        self._pump: asyncio.Task[None] | None = None
        self._answered: tuple[ResponseHead, Body] | None = None
        self._is_released = False

    async def run(self, request: bytes) -> Answer:
        """Send the request and return the response, whose content is still being received."""
        connection, content = self._connection, self._call.content
        connection.expect(self._call.head.method)
        connection.write(request)
        if isinstance(content, Body):
            self._pump = self._call.sending = asyncio.create_task(_pump(self._call, content, connection))
            self._pump.add_done_callback(_retrieve)
        head, body = await connection.receive()
        while head.status < _FIRST_FINAL and head.status != _SWITCHING:
            self._pass_interim(head)
            head, body = await connection.receive()
        if head.status == _SWITCHING and not self._call.head.upgrade:
            raise MalformedError("the API server switched protocols without a request to upgrade")
        self._answered = head, body
        if head.status == _SWITCHING:
            return Answer(_SWITCHING, head.reason, head.headers, 0, Whole(b""), upgraded=connection)
        headers, turn = messages.end_to_end(head.headers), self._call.take_turn
        return Answer(head.status, head.reason, headers, head.length, body, self.release, take_turn=turn)

    def release(self) -> bool:
        """Return the connection to the pool if the exchange is complete; return whether it was."""
        if self._is_released or not self._is_complete():
            return self._is_released
        self._is_released = True
        self._upstream.release(self._connection)
        return True

    def end(self) -> None:
        """Release the connection, or close it if its state is unknown. The second time, do nothing."""
        if self.release():
            return
        if self._pump is not None:
            self._pump.cancel()
        if self._answered is not None and self._answered[0].status == _SWITCHING:
            self._connection.close()
        else:
            self._connection.abort()

    def raise_client_error(self) -> None:
        """Raise the error in the client's content, if it ended the exchange."""
        pump = self._pump
        if pump is not None and pump.done() and not pump.cancelled():
            error = pump.exception()
            if isinstance(error, MalformedError):
                raise error

    def _pass_interim(self, head: ResponseHead) -> None:
        if self._call.head.version != "1.0":
            start = b"HTTP/1.1 %d %b" % (head.status, head.reason)
            self._call.client.write(messages.render(start, messages.end_to_end(head.headers)))

    def _is_complete(self) -> bool:
        """Return whether both contents have ended; drop the rest of the response's one."""
        pump, answered = self._pump, self._answered
        if answered is None or answered[0].status == _SWITCHING or not answered[0].keep_alive or not answered[1].ended:
            return False
        if pump is not None and (not pump.done() or pump.cancelled() or pump.exception()):
            return False
        answered[1].take()
        return True


async def _pump(call: Call, content: Body, connection: ServerConnection) -> None:
    """Send content as it is received. Raises MalformedError if the client's content is invalid."""
    chunked = call.head.length == CHUNKED
    try:
        while True:
            piece = await content.read()
            await call.keep(piece)
            if not _may_send(call):
                connection.abort()
                return
            if not piece:
                break
            connection.write(messages.chunk(piece) if chunked else piece)
            await connection.drain()
        if chunked:
            connection.write(messages.chunk(b""))
    except MalformedError:
        connection.abort()
        raise


def _may_send(call: Call) -> bool:
    """Return whether a call is read-only or its run may write. After an upgrade, a client can do anything."""
    return (call.head.method in _SAFE and not call.head.upgrade) or call.run.run.may_write()


def _is_dry_run(call: Call) -> bool:
    """Return whether a call of a trial changes nothing, if another handler failed to ensure that."""
    return not call.head.upgrade and (call.head.method in _SAFE or call.info.query.endswith(_DRY_RUN))


def _retrieve(pump: asyncio.Task[None]) -> None:
    """Mark the exception as retrieved: an error in sending also ends the response."""
    if not pump.cancelled():
        pump.exception()


def _clash(login: CIMultiDict[str], account: str, headers: Headers) -> str:
    """Return why a call would need two impersonated users at once; empty if it does not."""
    is_ours = any(name.lower().startswith(_IMPERSONATE) for name in login)
    is_theirs = any(name.lower().startswith(_IMPERSONATE.encode()) for name, _ in headers)
    if account and is_ours:
        return (
            "the operator's credentials already impersonate a user, so runs cannot use the watch's "
            f"serviceAccount {account}: give the operator credentials without `as`"
        )
    if account and is_theirs:
        return f"this run uses the watch's serviceAccount {account}: it cannot impersonate another user"
    if is_ours and is_theirs:
        return "the operator's credentials already impersonate a user: runs cannot impersonate another one"
    return ""


def _acting_as(account: str, login: CIMultiDict[str]) -> CIMultiDict[str]:
    """Add impersonation of a service account to the credentials.

    The API server adds its groups, so that the operator needs no right to impersonate groups
    (https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/).
    """
    if not account:
        return login
    acting = CIMultiDict(login)
    acting["Impersonate-User"] = service_accounts.user(account)
    return acting


def _may_repeat(call: Call, connection: ServerConnection) -> bool:
    return (
        connection.is_reused and not connection.has_answered and call.head.method in _IDEMPOTENT and call.content == b""
    )


_JSON = b"application/json"
_ANY = frozenset({b"application/*", b"*/*"})
_BINARY = frozenset({b"application/vnd.kubernetes.protobuf", b"application/cbor"})


class Negotiate:
    """Handler that requests JSON, which other handlers can parse, if the client accepts it.

    Typed Go clients prefer protobuf and also accept JSON, or any type. Clients that accept only protobuf get it, and
    watches are unchanged.
    """

    async def handle(self, call: Call, proceed: Proceed) -> Answer:
        """Forward a call, with JSON in `Accept` if possible."""
        if call.info.is_resource and call.info.verb != "watch" and not call.head.upgrade:
            call.headers = without_binary(call.headers)
        return await proceed(call)


def without_binary(headers: Headers) -> Headers:
    """Return headers without binary media types in `Accept`, if it permits JSON (RFC 9110, 12.5.1).

    If only a range such as `*/*` permits JSON, the binary types become JSON with the same parameters, such as `as`.
    """
    ranges = [media_range.strip() for media_range in messages.joined(headers, b"accept").split(b",")]
    types = {_type(media_range) for media_range in ranges}
    if types.isdisjoint(_BINARY) or types.isdisjoint({_JSON, *_ANY}):
        return headers
    if _JSON in types:
        acceptable = [media_range for media_range in ranges if _type(media_range) not in _BINARY]
    else:
        acceptable = [_as_json(media_range) if _type(media_range) in _BINARY else media_range for media_range in ranges]
    return [header for header in headers if header[0].lower() != b"accept"] + [(b"Accept", b", ".join(acceptable))]


def _type(media_range: bytes) -> bytes:
    return media_range.partition(b";")[0].strip().lower()


def _as_json(media_range: bytes) -> bytes:
    _, semicolon, parameters = media_range.partition(b";")
    return _JSON + semicolon + parameters
