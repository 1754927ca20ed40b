"""Connection of the agent to the operator."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from . import frames
from .frames import ALPN_LINK, PROTOCOL, Contact, Exit, Kind, encode, encode_json
from .spool import Spool

_LONGEST_DELAY = 5.0
_PATIENCE = 15 * 60.0
"""Seconds without an operator after which the agent gives up."""
_IDLE_PATIENCE = 30.0
"""The same for an idle agent: only the operator that started it can give it a run."""
_CLOSE = 2.0
"""Seconds in which an operator closes a connection that has ended."""


class Uplink:
    """Connection to the operator, which is renewed until the outcome of the run is recorded."""

    def __init__(
        self,
        secret: Path,
        order: Path,
        spool: Spool,
        on_order: Callable[[str], None],
        on_stop: Callable[[], None],
    ) -> None:
        """`on_order` is called when the order is complete, or with an error if it cannot be stored."""
        self._folder = secret
        self._order = order
        self._spool = spool
        self._on_order, self._on_stop = on_order, on_stop
        self._agent = os.urandom(16).hex()
        self._is_idle = (secret / "warm").exists()
        self._assigned: dict[str, Any] = {}
        """Run and token, in place of those of the Secret."""
        self._address = ""
        """The last operator's."""
        self.problem = ""
        """Why Ansible is not loaded."""
        self._has_order = False
        self._logged = 0
        """Highest number of which the text is in the log."""
        self._is_pinged = False
        self._changed = asyncio.Event()
        self._last_seen = time.monotonic()
        self._reported: set[str] = set()
        self.operator: tuple[Contact, str] | None = None
        """Contact and address of the connected operator."""
        self.on_operator: Callable[[str], None] = lambda _: None
        """Called with the address of each operator that accepts the agent."""
        spool.on_change = self._changed.set

    @property
    def is_idle(self) -> bool:
        """True while the agent has no run."""
        return self._is_idle

    async def keep(self) -> Exit:
        """Stay connected; return why that ended."""
        delay = frames.FIRST_DELAY
        self._last_seen = time.monotonic()
        while time.monotonic() - self._last_seen < (_IDLE_PATIENCE if self._is_idle else _PATIENCE):
            before, was_idle = self._last_seen, self._is_idle
            ended = await self._try_all()
            if ended is not None:
                return ended
            if was_idle and not self._is_idle:
                continue
            delay = frames.FIRST_DELAY if self._last_seen > before else min(delay * 2, _LONGEST_DELAY)
            # Many agents lose the same operator at the same time.
            await asyncio.sleep(delay * random.uniform(0.5, 1))  # noqa: S311 - not for cryptography
        if self._is_idle:
            frames.log("the operator that started this idle pod is gone")
            return Exit.DONE
        frames.log("no operator accepted this run for too long")
        return Exit.ABANDONED

    async def _try_all(self) -> Exit | None:
        """Try the addresses of the operator in turn, until a connection is lost."""
        loop = asyncio.get_running_loop()
        server = "the operator"
        try:
            contact = Contact.read(self._folder)._replace(**self._assigned)
            server = f"the operator at {contact.host}:{contact.port}"
            lookup = loop.getaddrinfo(contact.host, contact.port, type=socket.SOCK_STREAM)
            addresses = [str(info[4][0]) for info in await frames.within(frames.CONNECT, lookup)]
        except (OSError, ValueError, asyncio.TimeoutError) as error:
            self._report(f"cannot reach {server}: {frames.text_of(error)}")
            return None
        for address in sorted(addresses, key=lambda candidate: candidate != self._address):
            before = self._last_seen
            try:
                return await self._connect(contact, address)
            except (OSError, ValueError, EOFError, asyncio.TimeoutError) as error:
                if self._last_seen > before:
                    self._report(f"the connection to {server} was lost: {frames.text_of(error)}")
                    return None
                self._report(f"cannot connect to {server}, address {address}: {frames.text_of(error)}")
        return None

    def _report(self, text: str) -> None:
        """Log a message, once until the next operator accepts the agent."""
        if text not in self._reported:
            self._reported.add(text)
            frames.log(text)

    async def _connect(self, contact: Contact, address: str) -> Exit | None:
        """Use one connection to its end; return None after ASSIGN. Raises an error if the connection was lost."""
        reader, writer = await frames.within(frames.CONNECT, frames.connect(contact, address, ALPN_LINK))
        try:
            writer.write(
                encode_json(
                    Kind.HELLO,
                    {
                        "protocol": PROTOCOL,
                        "run": contact.run,
                        "token": contact.token,
                        "agent": self._agent,
                        "has_order": self._has_order,
                        "last": self._spool.last,
                        "acknowledged": self._logged,
                        "problem": self.problem[:1000],  # the operator accepts no long frame
                    },
                )
            )
            kind, _, payload = await frames.within(frames.CONNECT, frames.read(reader))
            answer = json.loads(payload)
            if kind == Kind.REFUSED:
                if answer["final"]:
                    return self._refused(answer)
                raise ValueError(f"it refuses this run: {answer['reason']}")
            if kind != Kind.WELCOME or not 0 <= answer["applied"] <= self._spool.last:
                raise ValueError("unexpected response")
            ended = await self._use(reader, writer, answer["applied"] + 1, contact, address)
            if ended is None:
                return None
            writer.close()
            with contextlib.suppress(OSError, asyncio.TimeoutError):  # the operator closed first, or is gone
                await frames.within(_CLOSE, writer.wait_closed())
        except (KeyError, TypeError) as error:
            raise ValueError("invalid response") from error
        else:
            return ended
        finally:
            writer.transport.abort()

    def _refused(self, answer: dict[str, Any]) -> Exit:
        if self._is_idle:
            return Exit.DONE
        frames.log(f"the operator ended this run: {answer['reason']}")
        return Exit.REFUSED

    async def _use(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int, contact: Contact, address: str
    ) -> Exit | None:
        """Send frames from this number, and process those of the operator."""
        self._reported.clear()
        self._address = address
        self._is_pinged = False
        self.operator = contact, address
        self._last_seen = time.monotonic()
        self.on_operator(address)
        tasks: set[asyncio.Task[Exit | None]] = {
            asyncio.create_task(self._send(writer, number)),
            asyncio.create_task(self._receive(reader)),
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return next(iter(done)).result()
        finally:
            self.operator = None
            self._last_seen = time.monotonic()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, writer: asyncio.StreamWriter, number: int) -> Exit | None:
        batch = bytearray()
        while True:
            self._changed.clear()
            if self._is_pinged:
                self._is_pinged = False
                batch += encode(Kind.PONG, self._logged)
            while number <= self._spool.last:
                for piece in self._spool.pieces(number):
                    batch += piece
                    if len(batch) >= frames.PIECE:
                        writer.write(bytes(batch))
                        batch.clear()
                        await writer.drain()
                number += 1
            writer.write(bytes(batch))
            batch.clear()
            await writer.drain()
            await self._changed.wait()

    async def _receive(self, reader: asyncio.StreamReader) -> Exit | None:
        part: IO[bytes] | None = None
        try:
            while True:
                kind, number, payload = await frames.within(frames.SILENCE, frames.read(reader))
                if kind == Kind.ORDER and not self._has_order:
                    part = self._store(part, payload)
                elif kind == Kind.ACKNOWLEDGED and number > self._logged:
                    self._logged = number
                    frames.write_log(payload)
                elif kind == Kind.PING:
                    self._is_pinged = True
                    self._changed.set()
                elif kind == Kind.STOP:
                    self._on_stop()
                elif kind == Kind.ASSIGN and self._is_idle:
                    answer = json.loads(payload)
                    self._assigned, self._is_idle = {"run": answer["run"], "token": answer["token"]}, False
                    return None
                elif kind == Kind.RECORDED:
                    return Exit.DONE
                elif kind == Kind.REFUSED and json.loads(payload)["final"]:
                    return self._refused(json.loads(payload))
        finally:
            if part is not None:
                part.close()

    def _store(self, part: IO[bytes] | None, payload: bytes) -> IO[bytes] | None:
        """Store a part of the order in a file; return the file."""
        error = ""
        try:
            if part is None:
                part = self._order.open("wb")
            part.write(payload)
            if payload:
                return part
            part.close()
        except OSError as cause:
            error = f"cannot store the order of the run: {frames.text_of(cause)}"
        self._has_order = True
        self._on_order(error)
        return None
