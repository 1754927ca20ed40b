"""Tests of the servers of probes and metrics against clients that leave connections open."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from runner.base.monitoring import endpoints
from runner.base.monitoring.certificates import Certificates
from runner.base.monitoring.endpoints import MOST_CONNECTIONS, Address
from tests.kit.wait import patience


async def show(_: web.Request) -> web.Response:
    return web.Response(text="shown")


@asynccontextmanager
async def serving(host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    runner, port = await endpoints.serve(Address(host, 0), {"/": show}, "flag", tls)
    try:
        yield port
    finally:
        await runner.cleanup()


@pytest.mark.lengthy
@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nX: "])
async def test_idle_connections_are_bounded_and_a_new_client_is_served(*, secure: bool, begun: bytes) -> None:
    tls = Certificates(None).context if secure else None
    async with serving(tls=tls) as port:
        idle = []
        for _ in range(MOST_CONNECTIONS + 10):
            idle.append(await asyncio.open_connection("127.0.0.1", port))
            idle[-1][1].write(begun)  # with TLS no handshake, which fails or never begins
        scheme = "https" if secure else "http"
        async with aiohttp.ClientSession() as session, session.get(f"{scheme}://127.0.0.1:{port}/", ssl=False) as found:
            assert await found.text() == "shown"
        async with asyncio.timeout(patience()):
            for reader, _ in idle[:10]:
                try:
                    await reader.read()  # returns: the server closed the oldest
                except ConnectionError:
                    continue
        for _, writer in idle:
            writer.close()


async def test_a_connection_is_used_for_many_requests() -> None:
    async with serving() as port, aiohttp.ClientSession() as session:
        for _ in range(MOST_CONNECTIONS + 10):
            async with session.get(f"http://127.0.0.1:{port}/") as found:
                assert await found.text() == "shown"


async def test_an_empty_host_means_all_interfaces() -> None:
    async with (
        serving(host="") as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/") as found,
    ):
        assert found.status == 200
