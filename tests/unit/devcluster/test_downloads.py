from __future__ import annotations

import hashlib
import http.client
import http.server
import io
import json
import tarfile
import threading
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from runner.sdk.devcluster import downloads
from runner.sdk.devcluster.binaries import ETCD, KUBERNETES, KWOK, PROGRAMS, Target, UnavailableError
from runner.sdk.devcluster.downloads import Downloads
from runner.sdk.devcluster.progress import Progress
from runner.values.errors import ClusterError

_LINUX, _MAC = Target("linux", "amd64"), Target("darwin", "arm64")
_NAMED = {program.name: program for program in PROGRAMS}
_APISERVER = f"/release/{KUBERNETES}/bin/linux/amd64/kube-apiserver"
_ETCD = f"/etcd-io/etcd/releases/download/{ETCD}"
_KWOK_RECORD = f"/repos/kubernetes-sigs/kwok/releases/tags/{KWOK}"
QUIET = Progress(io.StringIO())


class Site:
    """A real HTTP server in the place of all hosts; `files` are its pages by path."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requested: list[str] = []
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requested.append(self.path)
                body = site.files.get(self.path)
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Length", str(len(body or b"") + site.promise_more))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *_arguments: object) -> None:
                pass

        self.promise_more = 0
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def open(self, url: str, *, timeout: float) -> http.client.HTTPResponse:
        parts = urlsplit(url)
        assert parts.scheme == "https"
        return downloads.open_url(f"http://127.0.0.1:{self.server.server_port}{parts.path}", timeout=timeout)

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


@pytest.fixture
def fetch(site: Site, tmp_path: Path) -> Callable[[str], bytes]:
    """Load a program for Linux from the site into a folder of its own; return the content."""
    folder = tmp_path / "programs"
    folder.mkdir()

    def load(name: str) -> bytes:
        Downloads(site.open).fetch(_NAMED[name], _LINUX, folder / name, QUIET)
        assert [path.name for path in folder.iterdir()] == [name]
        return (folder / name).read_bytes()

    return load


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_program_comes_with_the_digest_beside_it(site: Site, fetch: Callable[[str], bytes]) -> None:
    site.files = {_APISERVER: b"program", f"{_APISERVER}.sha256": _digest(b"program").encode()}
    assert fetch("kube-apiserver") == b"program"


def _archive(member: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo(member)
        entry.size = 7
        archive.addfile(entry, io.BytesIO(b"program"))
    return buffer.getvalue()


def test_a_program_comes_out_of_its_archive(site: Site, fetch: Callable[[str], bytes]) -> None:
    file, archive = f"etcd-{ETCD}-linux-amd64.tar.gz", _archive(f"etcd-{ETCD}-linux-amd64/etcd")
    sums = f"{'0' * 64}  {file.replace('amd64', 'arm64')}\n{_digest(archive)}  {file}\n"
    site.files = {f"{_ETCD}/{file}": archive, f"{_ETCD}/SHA256SUMS": sums.encode()}
    assert fetch("etcd") == b"program"


def test_a_program_comes_with_the_digest_of_githubs_record(site: Site, fetch: Callable[[str], bytes]) -> None:
    record = {"assets": [{"name": "kwok-linux-amd64", "digest": f"sha256:{_digest(b'program')}"}]}
    site.files = {
        f"/kubernetes-sigs/kwok/releases/download/{KWOK}/kwok-linux-amd64": b"program",
        _KWOK_RECORD: json.dumps(record).encode(),
    }
    assert fetch("kwok") == b"program"


def test_a_file_with_another_checksum_is_refused(site: Site, tmp_path: Path) -> None:
    site.files = {_APISERVER: b"other", f"{_APISERVER}.sha256": _digest(b"program").encode()}
    with pytest.raises(ClusterError, match="SHA-256"):
        Downloads(site.open).fetch(_NAMED["kube-apiserver"], _LINUX, tmp_path / "file", QUIET)
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("record", [{"assets": []}, {"assets": [{"name": "kwok-linux-amd64", "digest": None}]}])
def test_without_a_published_digest_nothing_is_loaded(
    site: Site, fetch: Callable[[str], bytes], record: dict[str, object]
) -> None:
    site.files = {_KWOK_RECORD: json.dumps(record).encode()}
    with pytest.raises(UnavailableError, match="no digest"):
        fetch("kwok")
    assert len(site.requested) == 1


def test_a_file_missing_at_the_site_is_unavailable(fetch: Callable[[str], bytes]) -> None:
    with pytest.raises(UnavailableError, match="404"):
        fetch("kubectl")


def test_an_unreachable_host_is_requested_once(tmp_path: Path) -> None:
    requested = []

    def unreachable(url: str, *, timeout: float) -> http.client.HTTPResponse:
        requested.append(url)
        raise urllib.error.URLError("no route to host")

    downloading = Downloads(unreachable)
    for name in ("kube-apiserver", "kubectl", "etcd"):
        with pytest.raises(UnavailableError, match="no route to host"):
            downloading.fetch(_NAMED[name], _LINUX, tmp_path / name, QUIET)
    assert [urlsplit(url).netloc for url in requested] == ["dl.k8s.io", "github.com"]


@pytest.mark.parametrize("name", ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"])
def test_a_platform_without_released_files_is_unavailable(name: str) -> None:
    with pytest.raises(UnavailableError, match="darwin"):
        downloads.release(_NAMED[name], _MAC)
