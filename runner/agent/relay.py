"""API calls and metrics of the run, which the agent passes to the operator."""

from __future__ import annotations

import asyncio
import contextlib
import time

from . import frames
from .frames import ALPN_HTTP, ALPN_METRICS, CONNECT, METRICS_PORT, RELAY_PORT, AgentError, Kind, encode_json
from .uplink import Uplink

_RELAY_WAIT = 60.0
"""Seconds for which an API call waits for an operator."""


class Relay:
    """Servers on loopback that pass API calls and metrics of the run to the operator."""

    def __init__(self, uplink: Uplink) -> None:
        self._uplink = uplink
        self._addresses: dict[asyncio.StreamWriter, str] = {}
        uplink.on_operator = self._moved

    async def start(self) -> None:
        """Listen. Raises OSError, except for the port for metrics: a run without metrics does not need it."""
        await asyncio.start_server(self._serve, "127.0.0.1", RELAY_PORT)
        try:
            await asyncio.start_server(self._serve_metrics, "127.0.0.1", METRICS_PORT)
        except OSError as error:
            frames.log(
                f"cannot listen on 127.0.0.1:{frames.METRICS_PORT} for metrics of roles: {frames.text_of(error)}"
            )

    def _moved(self, address: str) -> None:
        """Close connections to another operator. It can be unreachable, or not responsible any more."""
        for writer, other in list(self._addresses.items()):
            if other != address:
                writer.transport.abort()

    async def _serve_metrics(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._serve(reader, writer, ALPN_METRICS)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, protocol: str = ALPN_HTTP
    ) -> None:
        upstream = None
        try:
            above, upstream = await self._dial(protocol)
            copies = {asyncio.ensure_future(_copy(reader, upstream)), asyncio.ensure_future(_copy(above, writer))}
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
            for copy in copies:
                copy.cancel()
            await asyncio.gather(*copies, return_exceptions=True)
        except AgentError as error:
            frames.log(str(error))
        finally:
            if upstream is not None:
                del self._addresses[upstream]
                upstream.transport.abort()
            writer.close()

    async def _dial(self, protocol: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the operator that accepted the agent; wait for one if there is none."""
        deadline = time.monotonic() + _RELAY_WAIT
        problem = "no operator is connected"
        while time.monotonic() < deadline:
            if self._uplink.operator is not None:
                contact, address = self._uplink.operator
                try:
                    above, upstream = await frames.within(CONNECT, frames.connect(contact, address, protocol))
                except (OSError, ValueError, asyncio.TimeoutError) as error:
                    problem = frames.text_of(error)
                else:
                    if protocol == ALPN_METRICS:
                        upstream.write(encode_json(Kind.METRICS, {"run": contact.run, "token": contact.token}))
                    self._addresses[upstream] = address
                    return above, upstream
            await asyncio.sleep(frames.FIRST_DELAY)
        raise AgentError(f"an API call waited {_RELAY_WAIT:g} s for the operator: {problem}")


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):  # either side closed; the caller closes the other one
        while data := await reader.read(frames.PIECE):
            writer.write(data)
            await writer.drain()
