"""What is left of a client's connections when it has ended, before a real TLS server (the I/O seam)."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.base.credentials import auth
from runner.base.credentials.auth import HostEnvironment
from runner.base.pki import Authority
from runner.core.kube.client import Client
from tests.unit.kube.scripted import KubeConfigFile

BEGIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n"


class Silent:
    """Begins a watch, and then neither sends nor reads: it never answers the end of TLS."""

    def __init__(self, authority: Authority, folder: Path) -> None:
        pair = authority.issue("api", hosts=["127.0.0.1"])
        (folder / "pair.pem").write_bytes(pair.certificate + pair.key)
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(folder / "pair.pem")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with self._context.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(65536)
            wrapped.sendall(BEGIN)
            self._done.wait()

    def close(self) -> None:
        self._done.set()
        self._thread.join()
        self._listener.close()


@pytest.fixture
def authority() -> Authority:
    return Authority.create("test")


@pytest.fixture
def silent(authority: Authority, tmp_path: Path) -> Iterator[Silent]:
    server = Silent(authority, tmp_path)
    yield server
    server.close()


def connections_to(port: int) -> set[str]:
    """The sockets of this process that are connected to a port on loopback.

    The kernel can list one twice, if others come and go meanwhile.
    """
    inodes = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # another thread closed it
            inodes.add(str(each.readlink()))
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return {row[1] for row in rows if row[2].endswith(f":{port:04X}") and f"socket:[{row[9]}]" in inodes}


async def test_no_connection_outlives_the_client_whatever_the_peer_does(
    silent: Silent, authority: Authority, write_kubeconfig: KubeConfigFile, tmp_path: Path
) -> None:
    trusted = base64.b64encode(authority.pair.certificate).decode()
    path = write_kubeconfig(silent.url, user={"token": "t0ken"}, **{"certificate-authority-data": trusted})
    port = int(silent.url.rpartition(":")[2])
    async with Client(await auth.load(str(path), None, HostEnvironment({}, tmp_path))) as client:
        async with client.stream("/apis", {"watch": "true"}, idle=60.0) as lines:
            assert await anext(lines) == b"{}"
            assert len(connections_to(port)) == 1
        # TLS' own end is on its way, and the peer does not answer it.
        await asyncio.sleep(0)
    assert connections_to(port) == set()
