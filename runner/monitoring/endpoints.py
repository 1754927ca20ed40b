"""HTTP(S) servers of probes, metrics and the status page."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from aiohttp import web

from runner.errors import ConfigError

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Address:
    """Address to listen on. An empty host means all interfaces, port 0 a free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, flag: str) -> Address | None:
        """Parse `host:port` or `:port`; None for `0` and empty text. Raises ConfigError."""
        if text in {"", "0"}:
            return None
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:  # noqa: PLR2004 - the highest TCP port
            raise ConfigError(f"--{flag}: invalid address {text!r}: use host:port, :port, or 0 to disable")
        return cls(host.strip("[]"), int(port))


async def serve(
    address: Address, handlers: Mapping[str, Handler], flag: str, tls: ssl.SSLContext | None = None
) -> tuple[web.AppRunner, int]:
    """Listen; return the server (call `cleanup`) and its port. Raises ConfigError if the address is in use."""
    app = web.Application()
    for path, handler in handlers.items():
        app.router.add_get(path, handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, address.host or None, address.port, ssl_context=tls)
    try:
        await site.start()
    except OSError as error:
        await runner.cleanup()
        raise ConfigError(
            f"--{flag}: cannot listen on {address.host or '*'}:{address.port}: {error.strerror or error}; "
            "use another address, or 0 to disable"
        ) from error
    port: int = runner.addresses[0][1]
    return runner, port
