"""Health check of the proxy: an HTTP request without a token, which the proxy must reject with status 401.

The request does not reach the API server.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

_INTERVAL = 3.0
_PATIENCE = 3.0
_QUESTION = b"GET /version HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\n\r\n"
_REFUSED = b" 401 "


class SelfTest:
    """Periodic check of the proxy at `url`."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 0
        self.problem: str | None = None
        """Problem found by the last check; None if there was none."""

    async def follow(self) -> None:
        """Check forever."""
        while True:
            await self.check()
            await asyncio.sleep(_INTERVAL)

    async def check(self) -> None:
        """Check once."""
        try:
            async with asyncio.timeout(_PATIENCE):
                status = await self._status()
        except TimeoutError:
            self.problem = f"did not answer within {_PATIENCE:.0f} s"
        except OSError as error:
            self.problem = f"cannot be reached: {error.strerror or error}"
        else:
            self.problem = None if _REFUSED in status else f"answers {status.decode(errors='replace').strip()!r}"

    async def _status(self) -> bytes:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(_QUESTION)
            return await reader.readline()
        finally:
            writer.transport.abort()
