"""Connections and certificates of the servers for probes and metrics."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509

from runner.base.monitoring import certificates as serving_certificates
from runner.base.monitoring import endpoints
from runner.base.monitoring.certificates import CertificateFiles, Certificates
from runner.base.monitoring.endpoints import MOST_CONNECTIONS, Address, serve
from runner.base.pki import Authority
from runner.values.errors import ConfigError
from tests.kit.wait import patience, until


async def show(_: web.Request) -> web.Response:
    return web.Response(text="shown")


@asynccontextmanager
async def serving(host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    runner, port = await endpoints.serve(Address(host, 0), {"/": show}, "flag", tls)
    try:
        yield port
    finally:
        await runner.cleanup()


@pytest.mark.lengthy
@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nX: "])
async def test_idle_connections_are_bounded_and_a_new_client_is_served(*, secure: bool, begun: bytes) -> None:
    tls = Certificates(None).context if secure else None
    async with serving(tls=tls) as port:
        idle = []
        for _ in range(MOST_CONNECTIONS + 10):
            idle.append(await asyncio.open_connection("127.0.0.1", port))
            idle[-1][1].write(begun)  # with TLS no handshake, which fails or never begins
        scheme = "https" if secure else "http"
        async with aiohttp.ClientSession() as session, session.get(f"{scheme}://127.0.0.1:{port}/", ssl=False) as found:
            assert await found.text() == "shown"
        async with asyncio.timeout(patience()):
            for reader, _ in idle[:10]:
                try:
                    await reader.read()  # returns: the server closed the oldest
                except ConnectionError:
                    continue
        for _, writer in idle:
            writer.close()


async def test_a_connection_is_used_for_many_requests() -> None:
    async with serving() as port, aiohttp.ClientSession() as session:
        for _ in range(MOST_CONNECTIONS + 10):
            async with session.get(f"http://127.0.0.1:{port}/") as found:
                assert await found.text() == "shown"


async def test_an_empty_host_means_all_interfaces() -> None:
    async with (
        serving(host="") as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/") as found,
    ):
        assert found.status == 200


def write(folder: Path, name: str) -> CertificateFiles:
    pair = Authority.create(name).pair
    files = CertificateFiles(folder / "tls.crt", folder / "tls.key")
    files.certificate.write_bytes(pair.certificate)
    files.key.write_bytes(pair.key)
    return files


@asynccontextmanager
async def served(certificates: Certificates) -> AsyncIterator[int]:
    server, port = await serve(Address("127.0.0.1", 0), {}, "metrics-bind-address", certificates.context)
    following = asyncio.create_task(certificates.follow())
    yield port
    following.cancel()
    await server.cleanup()


async def shown(port: int) -> str:
    """The common name of the certificate that a new connection gets."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    raw = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    (name,) = x509.load_der_x509_certificate(raw).subject
    return str(name.value)


async def until_shown(port: int, name: str) -> None:
    async def is_shown() -> bool:
        return await shown(port) == name

    await until(is_shown)


@pytest.mark.lengthy
async def test_a_renewed_certificate_comes_into_use_and_one_that_cannot_be_used_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_certificates, "_POLL_INTERVAL", 0.01)
    certificates = Certificates(write(tmp_path, "first"))
    async with served(certificates) as port:
        assert await shown(port) == "first"
        write(tmp_path, "second")
        await until_shown(port, "second")
        (tmp_path / "tls.key").write_bytes(Authority.create("other").pair.key)
        assert certificates._changed() is None
        (tmp_path / "tls.crt").unlink()
        assert certificates._changed() is None
        assert await shown(port) == "second"


async def test_without_files_one_is_made_for_this_process_alone() -> None:
    one, other = Certificates(None), Certificates(None)
    async with served(one) as port:
        assert await shown(port)
    assert one._loaded[1] != other._loaded[1]


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    files = write(tmp_path, "first")
    files.key.write_text("no key")
    with pytest.raises(
        ConfigError, match=r"--metrics-cert-path: .*tls.crt and .*tls.key: not a PEM certificate with its key"
    ):
        Certificates(files)
    files.key.unlink()
    with pytest.raises(ConfigError, match=r"--metrics-cert-path: .*tls.key: No such file or directory; use a folder"):
        Certificates(files)
