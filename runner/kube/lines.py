"""Lines out of a stream of bytes, however it is cut."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable


async def split_lines(chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """Yield each line that ends in a newline, without it; what follows the last newline is dropped.

    Takes time in proportion to the bytes, also for a line that comes in thousands of pieces.
    """
    pieces: list[bytes] = []
    async for chunk in chunks:
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            line = chunk[start:end]
            if pieces:
                line = b"".join([*pieces, line])
                pieces.clear()
            if line.strip():
                yield line
            start = end + 1
        if start < len(chunk):
            pieces.append(chunk[start:])
