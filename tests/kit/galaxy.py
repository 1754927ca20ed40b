"""A server of collections with Galaxy's API, version 3, as far as `ansible-galaxy collection install` asks."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import ansible_collections
import yaml


def pack(installed: Path, folder: Path) -> Path:
    """Return a tarball of an installed collection, made in `folder` as its maintainers make it."""
    told = json.loads((installed / "MANIFEST.json").read_text(encoding="utf-8"))["collection_info"]
    source = folder / "source"
    shutil.copytree(installed, source, ignore=shutil.ignore_patterns("MANIFEST.json", "FILES.json", "__pycache__"))
    (source / "galaxy.yml").write_text(yaml.safe_dump({name: value for name, value in told.items() if value}))
    galaxy = str(Path(sys.executable).with_name("ansible-galaxy"))
    build = [galaxy, "collection", "build", f"--output-path={folder}", str(source)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(source)
    (packed,) = folder.glob(f"{told['namespace']}-{told['name']}-*.tar.gz")
    return packed


@contextmanager
def serve(*packed: Path) -> Iterator[str]:
    """Serve these collections on loopback; the address is what ansible.cfg calls `server`."""
    contents = {f"/download/{each.name}": each.read_bytes() for each in packed}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0].rstrip("/")
            if path in contents:
                self._answer(200, contents[path], "application/gzip")
                return
            known: dict[str, Any] = {"/api": {"available_versions": {"v3": "v3/"}}}
            for each in packed:
                known |= _documents(each, f"http://{self.headers['Host']}/download/{each.name}")
            body = known.get(path, {"code": "not_found"})
            self._answer(200 if path in known else 404, json.dumps(body).encode(), "application/json")

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


def _documents(packed: Path, download: str) -> dict[str, Any]:
    """Return what the server knows of a collection, by path."""
    namespace, name, version = packed.name.removesuffix(".tar.gz").split("-", 2)
    collection = f"/api/v3/collections/{namespace}/{name}"
    content = packed.read_bytes()
    with tarfile.open(packed) as archive:
        manifest = archive.extractfile("MANIFEST.json")
        assert manifest is not None
        told = json.load(manifest)["collection_info"]
    one = {
        "version": version,
        "href": f"{collection}/versions/{version}/",
        "namespace": {"name": namespace},
        "collection": {"name": name},
        "name": name,
        "download_url": download,
        "artifact": {"filename": packed.name, "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)},
        "metadata": {"dependencies": told["dependencies"]},
        "signatures": [],
    }
    return {
        collection: {"namespace": namespace, "name": name, "highest_version": {"version": version}},
        f"{collection}/versions": {"meta": {"count": 1}, "links": {"next": None}, "data": [one]},
        f"{collection}/versions/{version}": one,
    }


# FROM tests.integration.image.conftest


def installed(collection: str) -> Path:
    """Return the folder of a collection in this environment."""
    folders = (Path(each, *collection.split(".")) for each in ansible_collections.__path__)
    return next(folder for folder in folders if folder.exists())
