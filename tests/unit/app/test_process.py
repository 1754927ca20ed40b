"""Errors that the event loop reports."""

from __future__ import annotations

import asyncio
import socket

import pytest
from structlog.testing import capture_logs

from runner.app.process import LoopErrorHandler
from tests.shortage import no_descriptor_left


async def test_a_server_without_descriptors_says_so_once_and_serves_again_when_there_are_some() -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(LoopErrorHandler())
    served = asyncio.Event()

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.set()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        with socket.socket() as client, capture_logs() as logs:
            client.setblocking(False)  # noqa: FBT003 - the standard library's
            with no_descriptor_left():
                await loop.sock_connect(client, server.sockets[0].getsockname())
                while not logs:
                    await asyncio.sleep(0)
            await served.wait()
    assert [line["reason"] for line in logs] == ["Too many open files"]
    assert "ulimit -n" in logs[0]["event"]


async def test_a_shortage_that_goes_on_is_logged_again_after_a_while() -> None:
    loop, report = asyncio.get_running_loop(), LoopErrorHandler()
    context = {"message": "out of resources", "socket": None, "exception": OSError(24, "Too many open files")}
    with capture_logs() as logs:
        report(loop, context)
        report(loop, context)
        report._logged_at = loop.time() - 11
        report(loop, context)
    assert len(logs) == 2


async def test_any_other_error_is_reported_as_asyncio_does(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(LoopErrorHandler())
    loop.call_exception_handler({"message": "Something else", "exception": ValueError("why")})
    assert "Something else" in caplog.text
