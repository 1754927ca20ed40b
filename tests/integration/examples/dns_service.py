"""The DNS service of the example `external`, as a process that can fail: its port and its records outlast it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.kit.wait import patience

Json = dict[str, Any]

LOOPBACK = "127.0.0.1"
PATIENCE = 60.0


class Service:
    """The service, asked as its own administrator. `stop` and `start` make an outage."""

    def __init__(self, program: Path, folder: Path, port: int) -> None:
        self.url = f"http://{LOOPBACK}:{port}"
        self._program = program
        self._folder = folder
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.token = ""
        self.change_token("the first token")

    def change_token(self, token: str) -> None:
        """From now on, no other is taken."""
        self.token = token
        (self._folder / "token").write_text(f"{token}\n")

    def start(self) -> None:
        """Start it, and wait until it listens: it says so by its first line."""
        folder, token = f"--folder={self._folder}", f"--token-file={self._folder}/token"
        command = [sys.executable, str(self._program), f"--port={self._port}", folder, token, "--zone=example.org"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self._process.stdout is not None
        assert self._process.stdout.readline().decode().strip() == self.url, (self._folder / "log").read_text()

    def stop(self) -> None:
        if self._process is not None:
            assert self._process.stdout is not None
            self._process.kill()
            self._process.wait(PATIENCE)
            self._process.stdout.close()
            self._process = None

    def ask(self, method: str, record: str, body: Json | None = None) -> Json | None:
        """Return what the service says about `ZONE/HOST/TYPE`; None where there is no such record."""
        zone, host, kind = record.split("/")
        request = urllib.request.Request(  # noqa: S310 - the URL is our own
            f"{self.url}/zones/{zone}/records/{host}/{kind}",
            method=method,
            headers={"Authorization": f"Bearer {self.token}"},
            data=None if body is None else json.dumps(body).encode(),
        )
        try:
            with urllib.request.urlopen(request, timeout=patience()) as answer:  # noqa: S310
                found: Json = json.loads(answer.read() or b"{}")
                return found
        except urllib.error.HTTPError as error:
            with error:
                if error.code == HTTPStatus.NOT_FOUND:
                    return None
                raise AssertionError(f"{method} {record}: {error.code} {error.read()!r}") from error

    def values(self, record: str) -> list[str]:
        """What the name stands for; nothing where there is no such record."""
        return list((self.ask("GET", record) or {"values": []})["values"])

    def requests(self) -> list[Json]:
        """All that was ever asked of it, by whomever."""
        log = self._folder / "requests.log"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


@contextmanager
def running(program: Path, folder: Path) -> Iterator[Service]:
    """A service on a free port, which stays reserved while the service is down."""
    folder.mkdir()
    with closing(socket.socket()) as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        kept.bind((LOOPBACK, 0))
        service = Service(program, folder, kept.getsockname()[1])
        try:
            service.start()
            yield service
        finally:
            service.stop()
