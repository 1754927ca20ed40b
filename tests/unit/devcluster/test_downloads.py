from __future__ import annotations

import hashlib
import http.client
import http.server
import io
import json
import tarfile
import threading
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from runner.sdk.devcluster import downloads
from runner.sdk.devcluster.binaries import (
    ETCD,
    KUBERNETES,
    KWOK,
    PROGRAMS,
    Target,
    UnavailableError,
)
from runner.sdk.devcluster.downloads import Downloads
from runner.sdk.devcluster.progress import Progress
from runner.values.errors import ClusterError

_LINUX, _MAC = Target("linux", "amd64"), Target("darwin", "arm64")
_NAMED = {program.name: program for program in PROGRAMS}
_APISERVER = f"/release/{KUBERNETES}/bin/linux/amd64/kube-apiserver"
_ETCD = f"/etcd-io/etcd/releases/download/{ETCD}"


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
def quiet() -> Progress:
    return Progress(io.StringIO())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_program_comes_with_the_digest_beside_it(site: Site, tmp_path: Path, quiet: Progress) -> None:
    site.files = {_APISERVER: b"program", f"{_APISERVER}.sha256": _digest(b"program").encode()}
    Downloads(site.open).fetch(_NAMED["kube-apiserver"], _LINUX, tmp_path / "file", quiet)
    assert (tmp_path / "file").read_bytes() == b"program"


def _archive(member: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo(member)
        entry.size = 7
        archive.addfile(entry, io.BytesIO(b"program"))
    return buffer.getvalue()


def test_a_program_comes_out_of_its_archive(site: Site, tmp_path: Path, quiet: Progress) -> None:
    file, archive = f"etcd-{ETCD}-linux-amd64.tar.gz", _archive(f"etcd-{ETCD}-linux-amd64/etcd")
    sums = f"{'0' * 64}  {file.replace('amd64', 'arm64')}\n{_digest(archive)}  {file}\n"
    site.files = {f"{_ETCD}/{file}": archive, f"{_ETCD}/SHA256SUMS": sums.encode()}
    Downloads(site.open).fetch(_NAMED["etcd"], _LINUX, tmp_path / "etcd", quiet)
    assert (tmp_path / "etcd").read_bytes() == b"program"
    assert [path.name for path in tmp_path.iterdir()] == ["etcd"]


def test_a_program_comes_with_the_digest_of_githubs_record(site: Site, tmp_path: Path, quiet: Progress) -> None:
    record = {"assets": [{"name": "kwok-linux-amd64", "digest": f"sha256:{_digest(b'program')}"}]}
    site.files = {
        f"/kubernetes-sigs/kwok/releases/download/{KWOK}/kwok-linux-amd64": b"program",
        f"/repos/kubernetes-sigs/kwok/releases/tags/{KWOK}": json.dumps(record).encode(),
    }
    Downloads(site.open).fetch(_NAMED["kwok"], _LINUX, tmp_path / "kwok", quiet)
    assert (tmp_path / "kwok").read_bytes() == b"program"


def test_a_file_with_another_checksum_is_refused(site: Site, tmp_path: Path, quiet: Progress) -> None:
    site.files = {_APISERVER: b"other", f"{_APISERVER}.sha256": _digest(b"program").encode()}
    with pytest.raises(ClusterError, match="SHA-256"):
        Downloads(site.open).fetch(_NAMED["kube-apiserver"], _LINUX, tmp_path / "file", quiet)
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("record", [{"assets": []}, {"assets": [{"name": "kwok-linux-amd64", "digest": None}]}])
def test_without_a_published_digest_nothing_is_loaded(
    site: Site, tmp_path: Path, quiet: Progress, record: dict[str, object]
) -> None:
    site.files = {f"/repos/kubernetes-sigs/kwok/releases/tags/{KWOK}": json.dumps(record).encode()}
    with pytest.raises(UnavailableError, match="no digest"):
        Downloads(site.open).fetch(_NAMED["kwok"], _LINUX, tmp_path / "kwok", quiet)
    assert len(site.requested) == 1


def test_a_file_missing_at_the_site_is_unavailable(site: Site, tmp_path: Path, quiet: Progress) -> None:
    with pytest.raises(UnavailableError, match="404"):
        Downloads(site.open).fetch(_NAMED["kubectl"], _LINUX, tmp_path / "file", quiet)


def test_an_unreachable_host_is_requested_once(tmp_path: Path, quiet: Progress) -> None:
    requested = []

    def unreachable(url: str, *, timeout: float) -> http.client.HTTPResponse:
        requested.append(url)
        raise urllib.error.URLError("no route to host")

    downloading = Downloads(unreachable)
    for name in ("kube-apiserver", "kubectl", "etcd"):
        with pytest.raises(UnavailableError, match="no route to host"):
            downloading.fetch(_NAMED[name], _LINUX, tmp_path / name, quiet)
    assert [urlsplit(url).netloc for url in requested] == ["dl.k8s.io", "github.com"]


@pytest.mark.parametrize("name", ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"])
def test_a_platform_without_released_files_is_unavailable(name: str) -> None:
    with pytest.raises(UnavailableError, match="darwin"):
        downloads.release(_NAMED[name], _MAC)
