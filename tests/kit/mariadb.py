"""A real MariaDB server for roles to talk to: on a free port of the loopback interface, with nothing in it."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from runner.sdk.devcluster import ports
from tests.kit.processes import captured

PATIENCE = 60.0
ROOT_PASSWORD = "correct horse"


def find(program: str) -> str:
    """Where the program is: Debian puts servers where only root's PATH leads."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
    return shutil.which(program, path=path) or program


class Server:
    """The server, asked as root by MariaDB's own client. `stop` and `start` make an outage; port and rows stay."""

    host = ports.LOOPBACK

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = folder / "data"
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        install = [find("mariadb-install-db"), "--no-defaults", f"--datadir={self._data}", "--skip-test-db"]
        user = [f"--user={getpass.getuser()}", "--auth-root-authentication-method=normal"]
        done = captured(*install, *user)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        """Start it, on the port that it had before, and wait until it answers."""
        end = time.monotonic() + PATIENCE
        while not self._listens(self.port or ports.probe()):
            assert time.monotonic() < end, f"MariaDB does not start:\n{self._log.read_text()[-3000:]}"

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(PATIENCE)
            self._process = None

    def sql(
        self, statement: str, database: str = "", user: str = "root", password: str = ROOT_PASSWORD
    ) -> list[list[str]]:
        """Return the rows of the statement's answer, each a list of texts; NULL is "NULL". Its error fails the test."""
        done = self.client(statement, database, user, password)
        assert done.returncode == 0, f"{statement}: {done.stderr}"
        return [line.split("\t") for line in done.stdout.splitlines()]

    def lets_in(self, user: str, password: str, database: str = "") -> bool:
        """True if the server accepts these credentials."""
        return self.client("SELECT 1", database, user, password).returncode == 0

    def client(self, statement: str, database: str, user: str, password: str) -> subprocess.CompletedProcess[str]:
        """Run MariaDB's client, which reads the password from its environment."""
        where = [f"--host={self.host}", f"--port={self.port}", f"--user={user}", "--protocol=tcp"]
        command = [find("mariadb"), "--no-defaults", *where, "--batch", "--skip-column-names", f"--execute={statement}"]
        return captured(*([*command, database] if database else command), env={**os.environ, "MYSQL_PWD": password})

    def _listens(self, port: int) -> bool:
        """Start it on this port; False if it ended, for example because the port is in use."""
        command = [find("mariadbd"), "--no-defaults", f"--datadir={self._data}", f"--user={getpass.getuser()}"]
        # Its socket is in its data, whose whole name may be too long for a socket.
        where = [f"--bind-address={self.host}", f"--port={port}", "--socket=socket"]
        small = [
            "--innodb-buffer-pool-size=16M",
            "--key-buffer-size=1M",
            "--performance-schema=OFF",
            "--skip-name-resolve",
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*command, *where, *small], stdout=log, stderr=subprocess.STDOUT)
        first, self.port = not self.port, port
        password = "" if first else ROOT_PASSWORD
        while self.client("SELECT 1", "", "root", password).returncode:
            if self._process.poll() is not None:
                self._process, self.port = None, 0 if first else port
                return False
            time.sleep(0.05)
        if first:
            # Its installation made one root for each name of this machine, none with a password.
            one = "DELETE FROM mysql.global_priv WHERE user = 'root' AND host <> '127.0.0.1'; FLUSH PRIVILEGES"
            password = (
                f"RENAME USER root@'127.0.0.1' TO root@'%'; SET PASSWORD FOR root@'%' = PASSWORD('{ROOT_PASSWORD}')"
            )
            done = self.client(f"{one}; {password}", "", "root", "")
            assert done.returncode == 0, done.stderr
        return True


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """Run a server whose files are in `folder`, which must be new."""
    server = Server(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


if __name__ == "__main__":  # to try a role by hand: python -m tests.kit.mariadb FOLDER
    with running(Path(sys.argv[1])) as tried:
        print(f"root's password: {ROOT_PASSWORD}; host {tried.host}, port {tried.port}; Ctrl-C ends it")  # noqa: T201
        with suppress(KeyboardInterrupt):
            time.sleep(86400)
