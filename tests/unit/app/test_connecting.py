"""What the operator says while the API server is unreachable or rejects its credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from structlog.testing import capture_logs

from runner.app import connecting
from runner.core.kube.client import Client
from runner.core.kube.meaning import Request
from runner.values.errors import ApiUnavailableError, InvalidError, ServerError, ThrottledError, UnauthorizedError
from runner.values.objects import Object
from tests.kit.virtual_time import virtually

URL = "https://10.0.0.1:6443"


class Server:
    """Raises the given errors, then responds; records the time of each request."""

    def __init__(self, failures: Iterator[Exception]) -> None:
        self.credentials = SimpleNamespace(base_url=URL, origin="/home/me/.kube/config")
        self.times: list[float] = []
        self._failures = failures

    async def request(self, method: str, path: str) -> Object:
        self.times.append(asyncio.get_running_loop().time())
        assert (method, path) == ("GET", "/version")
        failure = next(self._failures, None)
        if failure is not None:
            raise failure
        return {"gitVersion": "v1.99.0"}


def refused() -> Exception:
    key = cast("Any", SimpleNamespace(ssl=True, host="10.0.0.1", port=6443))
    error = ApiUnavailableError(f"GET /version: {URL}: connection refused")
    error.__cause__ = aiohttp.ClientConnectorError(key, ConnectionRefusedError(111, "Connect call failed"))
    return error


def connect(*failures: Exception) -> tuple[Object | None, Server, list[str], Any]:
    server, notes = Server(iter(failures)), list[str]()
    with capture_logs() as logs:
        found = virtually(connecting.connect(cast("Client", server), asyncio.Event(), notes.append))
    return found, server, notes, logs


def test_an_unreachable_server_is_logged_with_address_cause_and_advice() -> None:
    found, _, notes, (line,) = connect(refused())
    assert found == {"gitVersion": "v1.99.0"}
    assert notes == [f"Cannot reach the API server: GET /version: {URL}: connection refused"]
    assert (line["event"], line["log_level"]) == ("Cannot reach the API server; retrying", "warning")
    assert (line["url"], line["credentials"]) == (URL, "/home/me/.kube/config")
    assert line["error"].endswith("connection refused")
    assert line["advice"] == "check that the API server runs, and the server's address in the credentials"


def test_rejected_credentials_and_an_unreachable_server_have_different_messages() -> None:
    error = UnauthorizedError("GET /version: Unauthorized (HTTP 401)", status=401)
    _, _, notes, (line,) = connect(error)
    assert line["event"] == "The API server rejects the credentials; retrying"
    assert line["advice"].startswith("renew the credentials, or select others with --kubeconfig")
    assert notes == ["The API server rejects the credentials: GET /version: Unauthorized (HTTP 401)"]


def test_the_delay_between_attempts_grows_to_a_limit() -> None:
    _, server, _, logs = connect(*(refused() for _ in range(20)))
    delays = [later - earlier for earlier, later in zip(server.times, server.times[1:], strict=False)]
    assert [round(delay, 1) for delay in delays] == [line["seconds"] for line in logs]
    assert delays[0] <= 1
    assert all(7.5 <= delay <= 15 for delay in delays[6:])


def test_requests_at_the_start_are_repeated_after_a_temporary_error_and_only_then() -> None:
    server = Server(iter(()))

    def resolved(*failures: Exception) -> str | None:
        left = iter(failures)

        async def resolve() -> str:
            for failure in left:
                raise failure
            return "resolved"

        return virtually(
            connecting.until_answered(
                Request.AUTHORITY, cast("Client", server), resolve, asyncio.Event(), lambda _: None
            )
        )

    busy = ServerError("GET /x: busy (HTTP 503)", status=503)
    assert resolved(busy, ThrottledError("GET /x: (HTTP 429)", status=429), refused()) == "resolved"
    with pytest.raises(InvalidError):
        resolved(busy, InvalidError("GET /x: no (HTTP 422)", status=422))


@pytest.mark.parametrize("before", [True, False])
def test_a_stop_ends_the_wait(*, before: bool) -> None:
    async def stopped() -> Object | None:
        stop = asyncio.Event()
        if before:
            stop.set()
        else:
            asyncio.get_running_loop().call_later(30, stop.set)
        server = cast("Client", Server(refused() for _ in iter(int, 1)))
        return await connecting.connect(server, stop, lambda _: None)

    assert virtually(stopped()) is None
