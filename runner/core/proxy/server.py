"""HTTP server of the proxy: accepts connections on loopback, calls the handlers, and writes their responses.

Owns: the order of the handlers, the lifetime of each client's connection, and the end of each call. After a response,
an error, or the loss of the client, it closes everything that the call has opened (`Call.ends`).

Promises: responses of one connection keep the order of its requests. If a client disconnects, its request to the API
server is canceled. A slow client does not delay other clients. If a response is incomplete, the connection is aborted,
so that no client mistakes it for a complete one. `close` waits for active requests, except watches and other endless
ones. A connection without a valid token is closed after some seconds (`Newcomers`). Each run has a limited number of
connections, and one call with large content.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from http.client import responses
from types import MappingProxyType
from typing import NoReturn

from runner.base import log
from runner.base.credentials.auth import Credentials
from runner.core.kube import answers, rights, service_accounts
from runner.core.proxy import request
from runner.core.proxy.calls import Answer, Call, Content, Handler, Observer, Proceed, Whole, refusal
from runner.core.proxy.handlers.authenticate import authenticate, kubeconfig
from runner.core.proxy.handlers.forward import Forward
from runner.core.proxy.http import messages
from runner.core.proxy.http.connection import Body, BrokenError, MalformedError
from runner.core.proxy.http.ends import ClientConnection, ServerConnection, Upstream
from runner.core.proxy.http.limits import Newcomers, Turns
from runner.core.proxy.http.messages import Headers, RequestHead
from runner.core.proxy.identity import Identities
from runner.values.errors import PASSING, ConfigError

_HEAD_TIMEOUT = 300.0
"""Seconds until an idle connection is closed."""
_LINGER = 1.0
"""Seconds for which the server still reads after its last response."""
_BETWEEN_LINES = 60.0
"""Seconds between two log lines about malformed requests."""
_MOST_CONNECTIONS = 128
"""Connections of one run."""
_LARGE_CALLS, _LARGE_WITHIN = 3, 120.0
"""Calls with large content at once, and seconds for each."""
_log = log.get(__name__)


class Proxy:
    """HTTP server."""

    def __init__(
        self,
        credentials: Credentials,
        identities: Identities,
        handlers: Sequence[Handler],
        observers: Sequence[Observer] = (),
        own_paths: Mapping[str, Proceed] = MappingProxyType({}),
    ) -> None:
        """`handlers` process calls in this order. `own_paths` are answered by their functions instead, unobserved."""
        self._identities = identities
        self._upstream = Upstream(credentials)
        self.forward: Proceed = Forward(credentials, self._upstream)
        """Passes an authenticated call through the handlers. Raises ApiUnavailableError and other passing errors."""
        for handler in reversed(handlers):
            self.forward = partial(handler.handle, proceed=self.forward)
        self._requested = [observer.requested for observer in observers if observer.requested is not None]
        self._answered = [observer.answered for observer in (*observers, REFUSALS) if observer.answered is not None]
        self._own_paths = own_paths
        self._malformed = _MalformedRequests()
        self._newcomers = Newcomers("API proxy")
        self._turns = Turns(_LARGE_CALLS, _LARGE_WITHIN)
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[None], _Client] = {}
        self._address = ("", 0)

    @property
    def port(self) -> int:
        """The port on which the proxy listens."""
        return self._address[1]

    @property
    def url(self) -> str:
        """The URL on which the proxy listens."""
        host, port = self._address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def kubeconfig_for(self, token: str) -> str:
        """Return the kubeconfig of a run with this token."""
        return kubeconfig(self.url, token)

    async def start(self, host: str, port: int) -> int:
        """Listen on `port`, or on a free one if it is 0; return it. Raises ConfigError if the address is in use."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self.connection, host, port, backlog=512)
        except OSError as error:
            raise ConfigError(
                f"--proxy-port: cannot listen on {host}:{port}: {error.strerror or error}; "
                "choose another port, or 0 to let one be picked"
            ) from error
        bound: int = self._server.sockets[0].getsockname()[1]
        self._address = (host, bound)
        return bound

    async def close(self, grace: float) -> None:
        """Accept no new requests, wait up to `grace` seconds for active ones, then cancel them."""
        if self._server is not None:
            self._server.close()
        for task, client in list(self._clients.items()):
            client.is_closing = True
            if not client.is_busy:
                task.cancel()
        if self._clients:
            await asyncio.wait(list(self._clients), timeout=grace)
        for task in list(self._clients):
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        self._upstream.close()
        self._malformed.log()

    def connection(self) -> ClientConnection:
        """Return the protocol of a new client's connection."""
        client = _Client(self._handle, self._malformed.note, self._newcomers, self._turns)
        task = asyncio.create_task(client.serve())
        self._clients[task] = client
        client.connection.on_lost = partial(_end, client, task)
        task.add_done_callback(self._ended)
        return client.connection

    async def _handle(self, call: Call) -> Answer:
        """Answer a call; its observers see the request first, and the response before the client does."""
        if (refused := authenticate(self._identities, call)) is not None:
            return refused
        if len(call.run.connections) > _MOST_CONNECTIONS:
            # It is closed: open, it would occupy memory, and the run's other connections would be refused too.
            call.run.connections.discard(call.client)
            call.head = replace(call.head, keep_alive=False)
            return refusal(429, f"the run has more than {_MOST_CONNECTIONS} connections: use fewer, or close idle ones")
        if (receive := self._own_paths.get(call.info.path)) is not None:
            return await receive(call)
        try:
            for observe in self._requested:
                await observe(call)
            answer = await self.forward(call)
            for observe_answer in self._answered:
                await observe_answer(call, answer)
        except PASSING as error:
            return refusal(503, f"the API server cannot be reached: {error}")
        return answer

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Log an unexpected exception of a handler; the client's connection is closed."""
        del self._clients[task]
        if not task.cancelled() and task.exception() is not None:
            # Without local variables, which can contain credentials.
            trace = "".join(traceback.format_exception(task.exception()))
            _log.error("Proxy request failed", traceback=trace)


def _end(client: _Client, task: asyncio.Task[None]) -> None:
    client.connection.admitted()
    task.cancel()


class _MalformedRequests:
    """Count of malformed requests, logged once a minute: every process on the machine can send many of them."""

    def __init__(self) -> None:
        self._count, self._latest = 0, ""
        self._timer: asyncio.TimerHandle | None = None

    def note(self, error: MalformedError) -> None:
        """Count a request, and log the count within a minute."""
        self._count, self._latest = self._count + 1, str(error)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_BETWEEN_LINES, self.log)

    def log(self) -> None:
        """Log the requests since the last line, if there are any."""
        if self._timer is not None:
            self._timer.cancel()
            _log.warning("Rejected malformed requests of clients of the proxy", count=self._count, latest=self._latest)
        self._count, self._timer = 0, None


class _Client:
    """Connection of one client."""

    def __init__(
        self, proceed: Proceed, rejected: Callable[[MalformedError], None], newcomers: Newcomers, turns: Turns
    ) -> None:
        """`rejected` is called for each malformed request. `turns` are for large content."""
        self._proceed = proceed
        self._rejected = rejected
        self._newcomers = newcomers
        self._turns = turns
        self.connection = ClientConnection()
        self.is_busy = False
        """True during a request that is not endless."""
        self.is_closing = False

    async def serve(self) -> None:
        """Handle requests until either side closes the connection."""
        await asyncio.sleep(0)  # for the transport
        self.connection.admitted = self._newcomers.add(self.connection.peer, self.connection.abort)
        try:
            await self._serve()
        except (BrokenError, TimeoutError):
            # The client disconnected, or was idle for too long: no response is possible.
            pass
        finally:
            self.connection.close()

    async def _serve(self) -> None:
        try:
            while not self.is_closing:
                async with asyncio.timeout(_HEAD_TIMEOUT):
                    head, body = await self.connection.receive()
                if not await self._answer(head, body):
                    await self.connection.linger(_LINGER)
                    break
                self.connection.resume_http()
        except MalformedError as error:
            self._rejected(error)
            await self._refuse(error)

    async def _refuse(self, error: MalformedError) -> None:
        answer = refusal(error.status, f"invalid request: {error}")
        self.connection.write(_render(answer, [*answer.headers, (b"Connection", b"close")]) + answer.content.take())
        await self.connection.linger(_LINGER)

    async def _answer(self, head: RequestHead, body: Body) -> bool:
        """Handle one request; return whether the connection can be reused."""
        began = time.perf_counter()
        info = request.parse(head.method, head.target)
        call = Call(head, info, self.connection, head.headers, body if head.length else b"", turns=self._turns)
        self.is_busy = not info.is_endless
        status = 0
        try:
            answer = await self._proceed(call)
            status = answer.status
            return await self._respond(call, body, answer)
        finally:
            self.is_busy = False
            call.end()
            _note(call, status, time.perf_counter() - began)

    async def _respond(self, call: Call, body: Body, answer: Answer) -> bool:
        if answer.upgraded is not None:
            await self._tunnel(answer, answer.upgraded)
        modern = call.head.version != "1.0"
        chunked = answer.length < 0 and modern
        keep = call.head.keep_alive and modern and body.ended and not self.is_closing
        headers = list(answer.headers)
        if chunked:
            headers.append((b"Transfer-Encoding", b"chunked"))
        if not keep:
            headers.append((b"Connection", b"close"))
        # The client of a HEAD would read the content of a refusal as the next response.
        content = Whole(b"") if call.head.method == "HEAD" else answer.content
        await self._send(_render(answer, headers), content, chunked=chunked)
        return keep

    async def _tunnel(self, answer: Answer, upgraded: ServerConnection) -> NoReturn:
        """Join both connections. If one closes, the other is closed; the end of the client's one cancels this task."""
        self.connection.write(_render(answer, answer.headers))
        upgraded.join(self.connection)  # first: the API server may have closed it after its last bytes
        self.connection.join(upgraded)
        await asyncio.get_running_loop().create_future()
        raise AssertionError("unreachable: the client's end cancels the wait")

    async def _send(self, head: bytes, content: Content, *, chunked: bool) -> None:
        """Write a response: head and available content in one write, the rest as it arrives."""
        connection, data = self.connection, head
        try:
            while True:
                if piece := content.take():
                    data += messages.chunk(piece) if chunked else piece
                if content.ended:
                    break
                connection.write(data)
                await connection.drain()
                piece = await content.read()
                data = messages.chunk(piece) if piece and chunked else piece
        except (BrokenError, MalformedError) as error:
            connection.abort()
            raise BrokenError(f"the response is incomplete: {error}") from error
        connection.write(data + messages.chunk(b"") if chunked else data)
        await connection.drain()


def _render(answer: Answer, headers: Headers) -> bytes:
    reason = answer.reason or responses.get(answer.status, "").encode()
    return messages.render(b"HTTP/1.1 %d %b" % (answer.status, reason), headers)


def _note(call: Call, status: int, seconds: float) -> None:
    """Count the request in the run's statistics and log it, without its content and credentials."""
    if call.active is None:
        return
    run, info = call.active.run, call.info
    run.stats.add(seconds, endless=info.is_endless)
    _log.debug(
        "API request",
        job=run.ident,
        verb=info.verb,
        resource=info.qualified,
        **({"object": f"{info.namespace}/{info.name}"} if info.is_resource else {}),
        **call.noted,
        code=status or "client disconnected",
        milliseconds=round(seconds * 1000, 1),
    )


async def answered(call: Call, answer: Answer) -> None:
    """Record a refusal in the statistics of the run."""
    statuses = await answer.objects("Status") if answer.status == HTTPStatus.FORBIDDEN else []
    if not statuses:
        return
    status = statuses[0]
    missing = rights.read(str(status.get("message") or ""))
    run = call.run.run
    if missing is not None:
        run.stats.lacks(missing)
        if run.stats.absent_user is None and run.service_account:
            run.stats.absent_user = ""  # one question for each run
            if await run.account_exists() is False:
                run.stats.absent_user = service_accounts.user(run.service_account)
    if answers.is_terminating(status):
        run.stats.terminates(call.info.namespace)


REFUSALS = Observer(answered=answered)
"""Records missing rights, service accounts and terminating namespaces from responses with status 403."""
