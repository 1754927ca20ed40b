"""Output of the worker, as numbered frames."""

from __future__ import annotations

import asyncio
import json
import os
import re
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

from . import frames
from .bounds import LONGEST_EVENT, MOST_VALUES, exceeds
from .frames import AgentError, Kind, encode

_ARTIFACTS = re.compile(rb'\{"zipfile": *(\d+)\}\n')
_ARTIFACTS_BEGIN = b'{"zipfile":'
_LONGEST_ANNOUNCEMENT = 64
_LARGE = 64 * 1024
"""Bytes of a line that can exceed the bounds."""
_LONGEST_MEMBER = 4096
"""Bytes of a text in the result of a shortened event."""
_LONGEST_OUTPUT = 1024 * 1024
"""Characters of its output."""


class Spool:
    """All numbered frames: the worker's output in a file, and the ending in memory."""

    def __init__(self, path: Path) -> None:
        """Raises FileExistsError if an agent has used this path before."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._ends = array("Q")
        """Offsets of the newlines."""
        self._size = 0
        self._shortened: dict[int, bytes] = {}
        """Lines that exceeded the bounds, by number."""
        self._ending: bytes | None = None
        self.on_change: Callable[[], None] = lambda: None

    @property
    def last(self) -> int:
        """Highest number."""
        return len(self._ends) + (self._ending is not None)

    def add(self, data: bytes) -> None:
        """Append output; each complete line is a frame. Raises OSError, and AgentError if a line is too long."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        start = self._ends[-1] + 1 if self._ends else 0
        at = data.find(b"\n")
        while at >= 0:
            self._complete(start, self._size + at)
            start = self._size + at + 1
            at = data.find(b"\n", at + 1)
        self._size += len(data)
        _check_length(self._size - start)
        self.on_change()

    def _complete(self, start: int, end: int) -> None:
        """Make a frame of a line, and a shorter one if it exceeds the bounds."""
        _check_length(end - start)
        self._ends.append(end)
        if end - start < _LARGE:
            return
        line = os.pread(self._file, end - start, start)
        if len(line) > LONGEST_EVENT or exceeds(line, MOST_VALUES):
            frames.log(f"an event of {len(line)} bytes is sent without its result: it is too large")
            self._shortened[self.last] = shortened(line)

    def end(self, payload: bytes) -> None:
        """Set the ending. An incomplete last line is dropped."""
        self._ending = payload
        self.on_change()

    def pieces(self, number: int) -> Iterator[bytes]:
        """Yield a frame in pieces."""
        if number > len(self._ends):
            yield encode(Kind.END, number, self._ending or b"")
            return
        if number in self._shortened:
            yield encode(Kind.DATA, number, self._shortened[number])
            return
        at = self._ends[number - 2] + 1 if number > 1 else 0
        end = self._ends[number - 1]
        yield frames.HEADER.pack(Kind.DATA, number, end - at)
        while at < end:
            piece = os.pread(self._file, min(frames.PIECE, end - at), at)
            if not piece:
                raise AgentError("the file with the worker's output was truncated")
            at += len(piece)
            yield piece


def _check_length(length: int) -> None:
    if length > frames.LARGEST:
        raise AgentError(f"ansible-runner wrote a line of more than {frames.LARGEST} bytes")


def shortened(line: bytes) -> bytes:
    """Return an event with only the short members of its result, and the begin of its output."""
    try:
        event = json.loads(line)
        data = event.get("event_data") or {}
        result = data.get("res") or {}
        members = {name: value for name, value in result.items() if len(json.dumps(value)) <= _LONGEST_MEMBER}
    except (ValueError, AttributeError, RecursionError) as error:
        raise AgentError(f"ansible-runner wrote a line of {len(line)} bytes that contains no event") from error
    short = {name: value for name, value in data.items() if len(json.dumps(value)) <= _LONGEST_MEMBER}
    short |= {"res": members} if "res" in data else {}
    reduced = {**event, "stdout": (event.get("stdout") or "")[:_LONGEST_OUTPUT], "event_data": short}
    text = json.dumps(reduced).encode()
    if len(text) > LONGEST_EVENT or exceeds(text, MOST_VALUES):
        raise AgentError(f"ansible-runner wrote a line of {len(line)} bytes that cannot be shortened")
    return text


class ArtifactsFilter:
    """Removes the artifacts from the worker's output.

    ansible-runner sends them as a zip file: a line with its size, and base64, with the next line directly after it.
    The operator makes its artifacts from the events, and a zip file can be too long for a frame.
    """

    def __init__(self) -> None:
        self._left = 0
        """Bytes of base64 that follow."""
        self._held = b""
        """Begin of a line that can be an announcement of artifacts."""
        self._is_within = False
        """True after the first part of another line."""

    def feed(self, data: bytes) -> bytes:
        """Return the output without artifacts. The begin of a line can be in the result of a later call."""
        output = bytearray()
        at = 0
        while at < len(data):
            if self._left:
                skipped = min(self._left, len(data) - at)
                self._left -= skipped
                at += skipped
                continue
            end = data.find(b"\n", at) + 1 or len(data)
            line = self._held + data[at:end]
            at, self._held = end, b""
            is_complete = line.endswith(b"\n")
            if not self._is_within and _can_be_announcement(line):
                match = _ARTIFACTS.fullmatch(line)
                if match:
                    self._left = (int(match[1]) + 2) // 3 * 4
                    continue
                if not is_complete:
                    self._held = line
                    continue
            output += line
            self._is_within = not is_complete
        return bytes(output)


def _can_be_announcement(line: bytes) -> bool:
    begin = line[: len(_ARTIFACTS_BEGIN)]
    return len(line) <= _LONGEST_ANNOUNCEMENT and begin == _ARTIFACTS_BEGIN[: len(line)]


class Output(asyncio.Protocol):
    """Standard output of the worker."""

    def __init__(self, spool: Spool, stop: Callable[[], None]) -> None:
        self._spool = spool
        self._filter = ArtifactsFilter()
        self._stop = stop
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails with AgentError or OSError if the output cannot be stored."""

    def data_received(self, data: bytes) -> None:
        """Store output."""
        if self.ended.done():
            return
        try:
            self._spool.add(self._filter.feed(data))
        except OSError as error:
            self._fail(AgentError(f"cannot store the output of ansible-runner: {frames.text_of(error)}"))
        except AgentError as error:
            self._fail(error)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the signature is asyncio's
        """End."""
        if not self.ended.done():
            self.ended.set_result(None)

    def _fail(self, error: AgentError) -> None:
        self.ended.set_exception(error)
        self._stop()
