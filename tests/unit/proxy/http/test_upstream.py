"""How connections to the API server are made: TLS, and the way through a proxy."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest

from runner.base.pki import Authority
from runner.values.errors import ConfigError
from tests.kit.wait import patience
from tests.unit.proxy.stage import Message, Stage, Staged


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority.create("test")


@pytest.fixture(scope="session")
def tls(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """What the API server serves with."""
    pair = authority.issue("api", hosts=["127.0.0.1", "named.example.com"])
    path = tmp_path_factory.mktemp("tls") / "pair.pem"
    path.write_bytes(pair.certificate + pair.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path)
    return context


@pytest.fixture(scope="session")
def trusted(authority: Authority) -> dict[str, str]:
    """Fields of a cluster in a kubeconfig that trusts the authority."""
    return {"certificate-authority-data": encoded(authority.pair.certificate)}


@pytest.fixture
async def stage(staged: Staged, tls: ssl.SSLContext, trusted: dict[str, str]) -> AsyncIterator[Stage]:
    """A stage whose API server has a trusted certificate."""
    async with staged(tls=tls, **trusted) as made:
        yield made


async def test_content_of_any_size_passes_tls_in_both_directions(stage: Stage) -> None:
    async def echo(message: Message, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(stage.reply(message.body))

    stage.api.script = echo
    wire = await stage.connect()
    for size in (1, 16_384, 16_385, 5_000_000):
        body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        assert (await wire.ask(stage.request("POST /x", body=body))).body == body
    assert stage.api.connections == 1


async def test_no_request_is_sent_to_a_server_of_another_authority(staged: Staged, tls: ssl.SSLContext) -> None:
    stranger = Authority.create("stranger").pair.certificate
    async with staged(tls=tls, **{"certificate-authority-data": encoded(stranger)}) as stage:
        answer = await stage.get()
        assert answer.status == 503
        assert "CERTIFICATE_VERIFY_FAILED" in orjson.loads(answer.body)["message"]
        assert not stage.api.seen


@pytest.mark.parametrize(("name", "status"), [("named.example.com", 200), ("other.example.com", 503)])
async def test_the_certificate_must_be_for_the_configured_server_name(
    staged: Staged, tls: ssl.SSLContext, trusted: dict[str, str], name: str, status: int
) -> None:
    async with staged(tls=tls, **trusted, **{"tls-server-name": name}) as stage:
        assert (await stage.get()).status == status


async def test_a_server_that_ends_tls_in_the_middle_breaks_the_answer(stage: Stage) -> None:
    async def script(_: Message, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.transport.abort()

    stage.api.script = script
    wire = await stage.connect()
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await wire.ask(stage.request())


async def test_sessions_pass_tls(stage: Stage) -> None:
    async def script(_: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()

    stage.api.script = script
    wire = await stage.connect()
    wire.send(stage.request("GET /exec", "Connection: Upgrade", "Upgrade: websocket"))
    assert (await stage.read_head(wire.reader)).status == 101
    sent = bytes(3_000_000)
    wire.send(sent)
    async with asyncio.timeout(patience()):
        assert await wire.reader.readexactly(len(sent)) == sent
    wire.close()
    async with asyncio.timeout(patience()):
        await stage.api.lost.wait()


async def test_credentials_that_were_renewed_need_new_connections(stage: Stage, authority: Authority) -> None:
    assert (await stage.get()).status == 200
    credentials = stage.proxy._upstream._credentials
    assert credentials.ssl is not None
    credentials.ssl = ssl.create_default_context(cadata=authority.pair.certificate.decode())
    assert (await stage.get()).status == 200
    assert stage.api.connections == 2


@dataclass
class Corridor:
    """An HTTP proxy that opens a tunnel to the requested address."""

    url: str = ""
    requests: list[str] = field(default_factory=list)
    refuses: bool = False
    is_silent: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client of a silent proxy closes its connection."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_silent:
            await reader.read()  # of a client that may have no time to ask
            self.ended.set()
            writer.close()
            return
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.requests.append(head)
        if self.refuses:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 4\r\n\r\nlong")
            writer.close()
            return
        host, _, port = head.split()[1].rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_copy(reader, back), _copy(there, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
    except ConnectionError:
        pass
    finally:
        writer.close()


@pytest.fixture
async def corridor() -> AsyncIterator[Corridor]:
    made = Corridor()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://user:p%40ss@127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield made
    server.close()


async def test_requests_go_through_a_tunnel_of_the_http_proxy(
    staged: Staged, tls: ssl.SSLContext, trusted: dict[str, str], corridor: Corridor
) -> None:
    async with staged(tls=tls, **trusted, **{"proxy-url": corridor.url}) as stage:
        wire = await stage.connect()
        assert [(await wire.ask(stage.request())).status for _ in range(2)] == [200, 200]
        (request,) = corridor.requests
        assert request.startswith(f"CONNECT {stage.api.url.removeprefix('https://')} HTTP/1.1\r\n")
        assert f"Proxy-Authorization: Basic {encoded(b'user:p@ss')}\r\n" in request


async def test_an_http_proxy_gets_an_ipv6_address_in_brackets(staged: Staged, corridor: Corridor) -> None:
    corridor.refuses = True
    async with staged(**{"proxy-url": corridor.url}) as stage:
        stage.proxy._upstream._credentials.base_url = "https://[fd00::1]:6443"
        assert (await stage.get()).status == 503
    assert corridor.requests[0].startswith("CONNECT [fd00::1]:6443 HTTP/1.1\r\nHost: [fd00::1]:6443\r\n")


async def test_an_error_of_the_http_proxy_is_reported_without_its_password(staged: Staged, corridor: Corridor) -> None:
    corridor.refuses = True
    async with staged(**{"proxy-url": corridor.url}) as stage:
        answer = await stage.get()
    assert answer.status == 503
    message = orjson.loads(answer.body)["message"]
    assert "407" in message
    assert "p@ss" not in message


async def test_an_http_proxy_that_never_answers_keeps_no_connection(
    staged: Staged, corridor: Corridor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.core.proxy.http.ends._CONNECT", 0.05)
    corridor.is_silent = True
    async with staged(**{"proxy-url": corridor.url}) as stage:
        answer = await stage.get()
        assert answer.status == 503
        assert "no connection within 0.05 s" in orjson.loads(answer.body)["message"]
        async with asyncio.timeout(patience()):
            await corridor.ended.wait()


async def test_a_server_that_never_ends_the_handshake_keeps_no_connection(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.core.proxy.http.ends._CONNECT", 0.05)
    closed = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        closed.set()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        credentials = stage.proxy._upstream._credentials
        credentials.base_url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        credentials.ssl = ssl.create_default_context()
        assert (await stage.get()).status == 503
        async with asyncio.timeout(patience()):
            await closed.wait()


async def test_tls_passes_the_tunnel_of_an_http_proxy_with_tls(
    staged: Staged, tls: ssl.SSLContext, trusted: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trusted.pem").write_bytes(base64.b64decode(trusted["certificate-authority-data"]))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "trusted.pem"))
    corridor = Corridor()
    server = await asyncio.start_server(corridor.serve, "127.0.0.1", 0, ssl=tls)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, staged(tls=tls, **trusted, **{"proxy-url": url}) as stage:
        assert (await stage.get()).status == 200
        assert len(corridor.requests) == 1


async def test_a_port_that_is_in_use_is_an_error_that_names_the_flag(staged: Staged) -> None:
    async with staged() as stage:
        with pytest.raises(ConfigError, match="--proxy-port"):
            await stage.proxy.start("127.0.0.1", stage.port)
