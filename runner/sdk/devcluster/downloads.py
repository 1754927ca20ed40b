"""Programs from official releases, verified by the published SHA-256.

dl.k8s.io publishes a digest for each file, etcd a list for each release; the digests of kwok are in
GitHub's release API. All URLs are HTTPS URLs of the projects.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import shutil
import tarfile
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from runner.sdk.devcluster.binaries import ETCD, KUBERNETES, KWOK, Program, Target, UnavailableError
from runner.sdk.devcluster.progress import Progress
from runner.values.errors import ClusterError

_GITHUB = "https://github.com"
_KWOK_RELEASE = f"https://api.github.com/repos/kubernetes-sigs/kwok/releases/tags/{KWOK}"
_CHUNK = 1 << 20
_SMALL = 1 << 20
_TIMEOUT = 5.0  # seconds to connect, and between two pieces of data


class Opener(Protocol):
    """Opener of URLs for reading; raises OSError or http.client.HTTPException."""

    def __call__(self, url: str, *, timeout: float) -> http.client.HTTPResponse:
        """Return the response with status 200."""


@dataclass(frozen=True, slots=True)
class Release:
    """URL of a program's release, URL of its digest, and its path in the archive, if it is one."""

    url: str
    digest_url: str
    member: str = ""


def open_url(url: str, *, timeout: float) -> http.client.HTTPResponse:
    """Open an HTTPS URL, through the proxies of the environment."""
    answer: http.client.HTTPResponse = urllib.request.urlopen(url, timeout=timeout)  # noqa: S310 - the URLs are those of this file, all https
    return answer


def release(program: Program, target: Target) -> Release:
    """Return the official release. Raises UnavailableError."""
    if program.name == "etcd":
        if target.system != "linux":
            raise UnavailableError(f"releases: the archive format of etcd for {target.system} is not supported")
        base = f"{_GITHUB}/etcd-io/etcd/releases/download/{ETCD}"
        archive = f"etcd-{ETCD}-{target}"
        return Release(f"{base}/{archive}.tar.gz", f"{base}/SHA256SUMS", f"{archive}/etcd")
    if program.name == "kwok":
        return Release(f"{_GITHUB}/kubernetes-sigs/kwok/releases/download/{KWOK}/kwok-{target}", _KWOK_RELEASE)
    if target.system != "linux" and program.name != "kubectl":
        raise UnavailableError(f"releases: no {program.name} for {target.system}")
    url = f"https://dl.k8s.io/release/{KUBERNETES}/bin/{target.system}/{target.machine}/{program.name}"
    return Release(url, f"{url}.sha256")


@dataclass(slots=True)
class Downloads:
    """Source that downloads releases. An unreachable host is tried only once."""

    open: Opener
    _unreachable: dict[str, str] = field(default_factory=dict)

    def fetch(self, program: Program, target: Target, file: Path, progress: Progress, /) -> None:
        """Download and verify the program. Raises ClusterError if the digest differs."""
        where = release(program, target)
        published = published_digest(self._small(where.digest_url), where.url)
        loaded = file.with_suffix(".download")
        digest = self._load(where.url, loaded, progress)
        if digest != published:
            raise ClusterError(
                f"{where.url}: the SHA-256 is {digest}, but the published one is {published}; the file was deleted. "
                "Check whether a proxy modifies downloads, or use another network",
            )
        if where.member:
            _unpack(loaded, where.member, file)
        else:
            loaded.replace(file)

    def _small(self, url: str) -> str:
        with self._opened(url) as answer:
            return answer.read(_SMALL).decode()

    def _load(self, url: str, file: Path, progress: Progress) -> str:
        digest = hashlib.sha256()
        done = 0
        with self._opened(url) as answer, file.open("wb") as output:
            try:
                while chunk := answer.read(_CHUNK):
                    digest.update(chunk)
                    output.write(chunk)
                    done += len(chunk)
                    progress.tick(f"downloading, {done >> 20} MiB")
            except (OSError, http.client.HTTPException) as error:
                raise UnavailableError(f"{url}: download failed after {done >> 20} MiB: {error!r}") from error
        return digest.hexdigest()

    def _opened(self, url: str) -> http.client.HTTPResponse:
        host = urlsplit(url).netloc
        if host in self._unreachable:
            raise UnavailableError(self._unreachable[host])
        try:
            return self.open(url, timeout=_TIMEOUT)
        except urllib.error.HTTPError as error:
            error.close()
            raise UnavailableError(f"{url}: HTTP status {error.code} {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:
            reason = f"{host}: cannot connect ({getattr(error, 'reason', error)})"
            self._unreachable[host] = reason
            raise UnavailableError(reason) from error


def published_digest(text: str, url: str) -> str:
    """Return the digest of the file at `url`. `text` is the digest, output of sha256sum, or a GitHub release."""
    name = url.rsplit("/", 1)[1]
    if text.lstrip().startswith("{"):
        for asset in json.loads(text).get("assets", []):
            kind, _, digest = (asset.get("digest") or "").partition(":")
            if asset.get("name") == name and kind == "sha256":
                return str(digest)
        raise UnavailableError(f"{url}: no digest published")
    for line in text.splitlines():
        digest, _, file = line.partition(" ")
        if not file or file.strip().lstrip("*") == name:
            return digest
    raise UnavailableError(f"{url}: no digest published")


def _unpack(archive: Path, member: str, file: Path) -> None:
    with tarfile.open(archive) as tar:
        content = tar.extractfile(member) if member in tar.getnames() else None
        if content is None:
            raise ClusterError(f"the release's archive does not contain {member}; please report this as a bug")
        with content, file.open("wb") as output:
            shutil.copyfileobj(content, output)
    archive.unlink()
