"""A container registry and a package index on loopback, as a release publishes to them."""

from __future__ import annotations

import functools
import http.server
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from runner.base.config import locks
from runner.sdk.devcluster import folders
from tests.kit import debian
from tests.kit.wait import wait_for_program

_CONFIG = """\
version: 0.1
log: {{accesslog: {{disabled: false}}}}
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""
_NAMES = """\
unqualified-search-registries = []
[[registry]]
prefix = "{published}"
location = "{address}/{path}"
insecure = true
[[registry]]
location = "{address}"
insecure = true
"""


@dataclass(frozen=True, slots=True)
class Registry:
    """A running registry."""

    address: str
    log: Path
    names: Path
    """A registries.conf: names below the published prefix are pulled from this registry."""

    def requests(self) -> list[str]:
        """Return method and path of each request."""
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return [" ".join(line.split('"')[1].split()[:2]) for line in lines if '"' in line and "HTTP/1.1" in line]


def get_program(progress: TextIO) -> Path:
    """Return the registry of Debian's package docker-registry, unpacked. Raises ClusterError if it cannot be had."""
    program = folders.binaries(os.environ) / "docker-registry" / "docker-registry"
    with locks.locked(program.with_name("lock"), lambda: None):
        if not program.exists():
            print("Unpacking Debian's package docker-registry", file=progress)
            with tempfile.TemporaryDirectory(dir=program.parent, prefix=".new-") as new:
                debian.unpack(["docker-registry"], Path(new))
                Path(new, "usr/bin/docker-registry").replace(program)
    return program


@contextmanager
def serve(program: Path, folder: Path, published: str) -> Iterator[Registry]:
    """Run a registry. `published` is the prefix of names that are pulled from it instead of from the network."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    config, log, names = folder / "registry.yml", folder / "registry.log", folder / "registries.conf"
    config.write_text(_CONFIG.format(folder=folder / "registry", port=port), encoding="utf-8")
    text = _NAMES.format(published=published, address=address, path=published.partition("/")[2])
    names.write_text(text, encoding="utf-8")
    with (
        log.open("wb") as output,
        subprocess.Popen([program, "serve", config], stdout=output, stderr=output) as process,
    ):
        try:
            wait_for_program(lambda: _accepts(port), process, log)
            yield Registry(address, log, names)
        finally:
            process.terminate()


def _accepts(port: int) -> bool:
    socket.create_connection(("127.0.0.1", port), timeout=1).close()
    return True


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Write no line for a request."""


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve the files of a folder; yield its address."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def index(project: str, *files: Path, folder: Path) -> Iterator[str]:
    """Serve files of a project as a package index; yield its URL."""
    pages = folder / "simple" / project
    pages.mkdir(parents=True)
    for file in files:
        (pages / file.name).symlink_to(file)
    links = "".join(f'<a href="{file.name}">{file.name}</a>\n' for file in files)
    (pages / "index.html").write_text(f"<!DOCTYPE html>\n<html><body>\n{links}</body></html>\n", encoding="utf-8")
    with serving(folder) as address:
        yield f"{address}/simple/"
