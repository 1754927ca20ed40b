"""The self-test of the proxy, which sends a request like that of a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from runner.app.self_test import SelfTest


@asynccontextmanager
async def answering(line: bytes) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(line)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def problem_with(line: bytes) -> str | None:
    async with answering(line) as url:
        test = SelfTest(url)
        await test.check()
        return test.problem


async def test_a_proxy_that_refuses_requests_without_a_token_is_healthy() -> None:
    assert await problem_with(b"HTTP/1.1 401 Unauthorized\r\n\r\n") is None


async def test_any_other_answer_is_a_problem() -> None:
    assert await problem_with(b"HTTP/1.1 200 OK\r\n\r\n") == "answers 'HTTP/1.1 200 OK'"
    assert await problem_with(b"") == "answers ''"


async def test_a_port_without_a_listener_is_a_problem() -> None:
    async with answering(b"") as url:
        test = SelfTest(url)
    await test.check()
    assert test.problem is not None
    assert test.problem.startswith("cannot be reached: ")
