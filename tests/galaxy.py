"""A server of collections with Galaxy's API, version 3, as far as `ansible-galaxy collection install` asks."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

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
    (packed,) = folder.glob("*.tar.gz")
    return packed


@contextmanager
def serve(packed: Path) -> Iterator[str]:
    """Serve this one collection on loopback; the address is what ansible.cfg calls `server`."""
    namespace, name, version = packed.name.removesuffix(".tar.gz").split("-", 2)
    content = packed.read_bytes()
    collection = f"/api/v3/collections/{namespace}/{name}"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0].rstrip("/")
            if path == "/download":
                self._answer(200, content, "application/gzip")
                return
            body = documents(f"http://{self.headers['Host']}").get(path)
            self._answer(
                404 if body is None else 200, json.dumps(body or {"code": "not_found"}).encode(), "application/json"
            )

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def documents(address: str) -> dict[str, Any]:
        one = {
            "version": version,
            "href": f"{collection}/versions/{version}/",
            "namespace": {"name": namespace},
            "collection": {"name": name},
            "name": name,
            "download_url": f"{address}/download",
            "artifact": {"filename": packed.name, "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)},
            "metadata": {"dependencies": {}},
            "signatures": [],
        }
        return {
            "/api": {"available_versions": {"v3": "v3/"}},
            collection: {"namespace": namespace, "name": name, "highest_version": {"version": version}},
            f"{collection}/versions": {"meta": {"count": 1}, "links": {"next": None}, "data": [one]},
            f"{collection}/versions/{version}": one,
        }

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()
