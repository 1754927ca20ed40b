"""Listening over HTTP, or HTTPS, for those who look after the operator."""

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
    """Where to listen. An empty host means every interface; port 0 picks a free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, flag: str) -> Address | None:
        """Read `host:port` or `:port`; `0` (or nothing) means: do not listen. Anything else is a ConfigError."""
        if text in {"", "0"}:
            return None
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:  # noqa: PLR2004 - the highest TCP port
            raise ConfigError(f"--{flag}: {text!r} is no address; write host:port, :port, or 0 to turn it off")
        return cls(host.strip("[]"), int(port))


async def serve(
    address: Address, handlers: Mapping[str, Handler], flag: str, tls: ssl.SSLContext | None = None
) -> tuple[web.AppRunner, int]:
    """Listen; return the running server (call `cleanup`) and its port. A place that is taken is a ConfigError."""
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
            "choose another address, or 0 to turn it off"
        ) from error
    port: int = runner.addresses[0][1]
    return runner, port
