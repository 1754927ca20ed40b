"""The small images of tests: the same bytes each time, and programs that answer."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from runner.sdk.devcluster import ports
from tests.kit import workloads
from tests.kit.images import Image, hindrance, stop
from tests.kit.wait import wait_for_program

PATIENCE = 60.0
PASSWORD = "correct horse"

pytestmark = [
    pytest.mark.full,
    pytest.mark.xdist_group("workloads"),
    pytest.mark.skipif(bool(why := hindrance()), reason=why),
]


@pytest.fixture(scope="module")
def archives() -> dict[str, Path]:
    return workloads.archives(sys.stderr)


@pytest.fixture
def unpacked(archives: dict[str, Path], tmp_path: Path) -> Callable[[str], Image]:
    return lambda name: workloads.unpack(archives[name], tmp_path / name)


@contextmanager
def running(
    image: Image, log: Path, *arguments: str, environ: dict[str, str] | None = None, volumes: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the image with these arguments instead of its own; it ends by SIGTERM, as a kubelet ends it."""
    command = image.command(*image.config.get("Entrypoint", ()), *arguments, environ=environ, volumes=volumes)
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            yield process
            stop(process, PATIENCE)
        finally:
            if process.poll() is None:
                process.kill()


def talk(port: int, line: str) -> str:
    """Send a line, and return the first one of the answer."""
    with socket.create_connection((ports.LOOPBACK, port), timeout=10) as connection:
        connection.sendall(f"{line}\r\n".encode())
        return connection.makefile().readline().strip()


def test_an_image_of_the_same_packages_is_the_same_image(archives: dict[str, Path], tmp_path: Path) -> None:
    """It is built again of packages that are unpacked again, at another time and place."""
    time.sleep(1.1 - time.time() % 1)  # the times in archives are whole seconds
    workloads.build(tmp_path, ["web", "memcached"])
    for name in ("web", "memcached"):
        first, again = (hashlib.sha256(path.read_bytes()) for path in (archives[name], tmp_path / f"{name}.tar"))
        assert first.digest() == again.digest(), name


def test_the_web_server_serves_its_page(unpacked: Callable[[str], Image], tmp_path: Path) -> None:
    image, port, log = unpacked("web"), ports.probe(), tmp_path / "log"
    command = ("httpd", "-f", "-p", f"{ports.LOOPBACK}:{port}", "-h", "/www")
    assert image.config["Cmd"][0] == "httpd"
    with running(image, log, *command) as process:
        page = wait_for_program(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/").read(), process, log)
    assert b"It works" in page


def test_memcached_answers_and_takes_flags_alone(unpacked: Callable[[str], Image], tmp_path: Path) -> None:
    image, port, log = unpacked("memcached"), ports.probe(), tmp_path / "log"
    with running(image, log, f"--port={port}", f"--listen={ports.LOOPBACK}", "--extended=modern") as process:
        assert wait_for_program(lambda: talk(port, "version"), process, log).startswith("VERSION 1.")
        assert talk(port, "set greeting 0 0 5\r\nhello") == "STORED"
        assert talk(port, "get greeting") == "VALUE greeting 0 5"


def test_redis_answers(unpacked: Callable[[str], Image], tmp_path: Path) -> None:
    image, port, log = unpacked("redis"), ports.probe(), tmp_path / "log"
    with running(image, log, "redis-server", "--port", str(port), volumes=["/data"]) as process:
        assert wait_for_program(lambda: talk(port, "PING"), process, log) == "+PONG"
        assert talk(port, "SET greeting hello") == "+OK"


def test_mariadb_has_the_password_and_the_users_of_its_variables(
    unpacked: Callable[[str], Image], tmp_path: Path
) -> None:
    image, port, log = unpacked("mariadb"), ports.probe(), tmp_path / "log"
    environ = {
        "MARIADB_ROOT_PASSWORD": PASSWORD,
        "MARIADB_REPLICATION_USER": "replication",
        "MARIADB_REPLICATION_PASSWORD": "battery staple",
        "MARIADB_DATABASE": "shop",
    }
    flags = (f"--port={port}", f"--bind-address={ports.LOOPBACK}", "--innodb-buffer-pool-size=16M", "--log-bin")

    def query(statement: str, user: str, password: str) -> str | None:
        where = ["--host=127.0.0.1", f"--port={port}", f"--user={user}", "--protocol=tcp", "--batch"]
        client = ["mariadb", *where, "--skip-column-names", f"--execute={statement}"]
        given = {**os.environ, "MYSQL_PWD": password}
        done = subprocess.run(client, env=given, check=False, capture_output=True, text=True)
        return None if done.returncode else done.stdout

    start = ("bash", "-ec", 'exec docker-entrypoint.sh mariadbd "$@"', "bash")
    image = Image(image.root, {**image.config, "Entrypoint": start}, image.size)
    with running(image, log, *flags, environ=environ, volumes=["/var/lib/mysql"]) as process:
        found = wait_for_program(lambda: query("SHOW DATABASES", "root", PASSWORD), process, log)
        assert found is not None
        assert "shop" in found.split()
        assert query("SELECT 1", "root", "") is None
        granted = query("SHOW GRANTS", "replication", "battery staple")
        assert granted is not None
        assert "REPLICATION SLAVE" in granted
    assert process.returncode == 0, log.read_text()[-3000:]
