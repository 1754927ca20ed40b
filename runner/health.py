"""Probes and metrics over HTTP.

`/healthz` says whether the process works at all, `/readyz` whether it watches what it should; `?verbose` lists each
check. `/metrics` is Prometheus' text format. Source: the conventions of the Kubernetes components' own probes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from aiohttp import web

from runner.errors import ConfigError

Check: TypeAlias = Callable[[], str | None]
"""Returns what is wrong, or None."""

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.Response]]


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


def probes(live: Mapping[str, Check], ready: Mapping[str, Check]) -> dict[str, Handler]:
    """Handlers of both probes."""
    return {"/healthz": _probe(live), "/readyz": _probe({**live, **ready})}


def exposition(text: Callable[[], bytes]) -> dict[str, Handler]:
    """Handler of `/metrics`."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    return {"/metrics": metrics}


def _probe(checks: Mapping[str, Check]) -> Handler:
    async def probe(request: web.Request) -> web.Response:
        found = {name: check() for name, check in checks.items()}
        broken = {name: problem for name, problem in found.items() if problem is not None}
        lines = [f"[-] {name}: {found[name]}" if name in broken else f"[+] {name} ok" for name in found]
        verbose = "verbose" in request.query or bool(broken)
        return web.Response(text="\n".join(lines) + "\n" if verbose else "ok", status=500 if broken else 200)

    return probe


async def serve(address: Address, handlers: Mapping[str, Handler], flag: str) -> tuple[web.AppRunner, int]:
    """Listen; return the running server (call `cleanup`) and its port. A place that is taken is a ConfigError."""
    app = web.Application()
    for path, handler in handlers.items():
        app.router.add_get(path, handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, address.host or None, address.port)
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
