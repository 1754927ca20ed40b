"""Container images without a container engine: buildah builds them in chroots, and containers are chroots too.

The network is this machine's, and so are the settings by which it reaches Debian's and Python's packages: they are
mounted while an image is built, and are in none. Needs root, as chroot(2) and mount(2) do.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import pytest

from runner.base.config import locks
from runner.sdk.devcluster import folders
from runner.sdk.devcluster.nodes import missing
from tests.kit.places import ROOT
from tests.kit.processes import captured

BASE = "localhost/ansible-operator-runner:2.21"
DEBIAN = "localhost/debian:trixie-slim"
SUITE = "trixie"
_WEEK = 7 * 24 * 3600.0
_KEPT = 4
"""Archives of BASE in the cache."""
_MOST = 8 << 30
"""Bytes of layers, after which a build starts anew."""

AUTHORITIES = "/run/authorities.crt"
"""Where builds find the certificate authorities that this machine trusts."""

_LEFT_OUT = ("doc", "info", "locale", "man")
"""Of /usr/share: what the published slim images of Debian leave out too."""


@functools.cache
def node_hindrance() -> str:
    """Return why this machine cannot run a real node; empty if it can. Kept, because it tries namespaces."""
    reason = missing(os.environ)
    return reason and f"no real node can run here: {reason}"


@functools.cache
def hindrance() -> str:
    """Return why this machine cannot build or start images; empty if it can."""
    if os.geteuid() != 0:
        return "chroot and mount are for root"
    mount = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "sh",
        "-c",
        "mount -t tmpfs tmpfs /proc && mount -t proc proc /proc",
    ]
    try:
        tried = captured(*mount, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        return ""  # util-linux comes with the other programs
    return f"root may not mount here: {tried.stderr.strip()}" if tried.returncode else ""


def needs_images_on_a_node() -> pytest.MarkDecorator:
    """Skip a test where no image can be built, or no real node can run."""
    why = hindrance() or node_hindrance()
    return pytest.mark.skipif(bool(why), reason=why)


@dataclass(frozen=True)
class Image:
    """What a built image says of itself, and its unpacked files."""

    root: Path
    config: Mapping[str, Any]
    size: int
    """Bytes of all of its files, unpacked."""

    def command(
        self, *arguments: str, user: str = "", environ: Mapping[str, str] | None = None, volumes: Sequence[str] = ()
    ) -> list[str]:
        """Return what starts `arguments` in a container, as `user` (`uid:gid`; else the image's own).

        The command has namespaces of its own for processes and mounts, so whatever it leaves ends with it. It may
        write to /tmp and `volumes` only, as in a pod whose root file system is read-only.
        """
        values = [*self.config["Env"], *(f"{name}={value}" for name, value in (environ or {}).items())]
        inside = [
            *("chroot", f"--userspec={user or self._user()}", "--groups=0", str(self.root)),
            *("/usr/bin/env", "-i", *values, "/bin/sh", "-c", 'cd "$0" && exec "$@"', self.config["WorkingDir"]),
            *arguments,
        ]
        root = shlex.quote(str(self.root))
        writable = (f" && mount -t tmpfs -o mode=1777 tmpfs {root}{path}" for path in ("/tmp", *volumes))
        mounts = (
            f"mount --bind {root} {root} && cd / && mount --rbind /dev {root}/dev && mount -t proc proc {root}/proc"
            f"{''.join(writable)} && mount -o remount,bind,ro {root}"
        )
        namespaces = ("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL")
        return [*namespaces, "sh", "-c", f'{mounts} && exec "$@"', "sh", *inside]

    def run(self, *arguments: str, user: str = "") -> str:
        """Return what the command prints; fail with it where the command fails."""
        return _run(self.command(*arguments, user=user))

    def _user(self) -> str:
        """Return `uid:gid` of the image's user, as a container engine finds them."""
        name = self.config["User"]
        for line in (self.root / "etc/passwd").read_text(encoding="utf-8").splitlines():
            found, _, uid, gid, *_ = line.split(":")
            if name in {found, uid}:
                return f"{uid}:{gid}"
        return f"{name}:0"


def first_process(started: subprocess.Popen[bytes]) -> int:
    """Return the id of what is process 1 in the container that `started` made."""
    (child,) = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text(encoding="ascii").split()
    return int(child)


def stop(started: subprocess.Popen[bytes], patience: float) -> int:
    """End a container as a kubelet does, by telling its process 1; return the exit code."""
    if started.poll() is None:
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.kill(first_process(started), signal.SIGTERM)
    return started.wait(patience)


class Store:
    """Images in a folder of their own; `remove` takes all of it away."""

    def __init__(self, folder: Path, *, layers: bool = False) -> None:
        """`layers`: keep the result of each instruction, so that a later build repeats only those after a change."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._layers = layers
        self._apt = _apt_settings(folder / "apt.conf")
        self._settings = {
            "/etc/apt/apt.conf.d/99machine": self._apt,
            "/etc/xdg/pip/pip.conf": _pip_settings(folder / "pip.conf"),
            AUTHORITIES: _authorities(),
        }
        storage = {"driver": _driver(folder), "graphroot": f"{folder}/storage", "runroot": f"{folder}/run"}
        lines = (f'{name} = "{value}"\n' for name, value in storage.items())
        (folder / "storage.conf").write_text(f"[storage]\n{''.join(lines)}", encoding="utf-8")
        self._unpacked = 0

    def environ(self, mounts: Mapping[str, Path] | None = None) -> dict[str, str]:
        """Return variables by which every buildah uses this store, with files mounted at absolute paths in builds."""
        volumes = [f"{file}:{target}:ro" for target, file in {**self._settings, **(mounts or {})}.items()]
        text = f"[containers]\nvolumes = {json.dumps(volumes)}\n"
        settings = self.folder / f"containers-{hashlib.sha256(text.encode()).hexdigest()[:8]}.conf"
        settings.write_text(text, encoding="utf-8")
        return {
            "CONTAINERS_CONF": str(settings),
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
            "BUILDAH_ISOLATION": "chroot",
            "BUILDAH_FORMAT": "docker",
        }

    def make_debian(self) -> None:
        """Make DEBIAN of the packages that the published image is made of."""
        tar = self.folder / "debian.tar"
        options = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _LEFT_OUT]
        apt = f"--aptopt={self._apt}"
        _run(["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", apt, *options, SUITE, str(tar), *_mirror()])
        # How this machine fetches is not to be in the image; what is left out stays so, as in the published one.
        scratch = self._buildah("from", "scratch")
        self._buildah("add", "--quiet", scratch, str(tar), "/")
        tar.unlink()
        self._buildah("run", scratch, "rm", "-f", "/etc/apt/apt.conf.d/99mmdebstrap")
        self._buildah("commit", "--quiet", "--rm", scratch, DEBIAN)

    def has(self, tag: str) -> bool:
        """Whether there is such an image."""
        return bool(self._buildah("images", "--quiet", "--filter", f"reference={tag}"))

    def build(self, context: Path, tag: str, *arguments: str, mounts: Mapping[str, Path] | None = None) -> str:
        """Build, with files mounted at absolute paths in the image; return all that was said."""
        layers = f"--layers={str(self._layers).lower()}"
        return self._buildah("build", layers, "--tag", tag, *arguments, str(context), mounts=mounts)

    def save(self, tag: str, archive: Path) -> None:
        """Write the image into a docker archive, all of it in one layer."""
        container = self._buildah("from", "--pull-never", tag)
        self._buildah("commit", "--quiet", "--squash", "--rm", container, f"docker-archive:{archive}:{tag}")

    def load(self, archive: Path) -> None:
        """Read the image of a docker archive, under the name that it has there."""
        self._buildah("pull", "--quiet", f"docker-archive:{archive}")

    def unpack(self, tag: str) -> Image:
        """Return the image `tag` with its files unpacked."""
        told = json.loads(self._buildah("inspect", "--type=image", tag))
        container = self._buildah("from", "--pull-never", tag)
        self._unpacked += 1
        root = self.folder / f"unpacked-{self._unpacked}"
        _run(["cp", "--archive", self._buildah("mount", container), str(root)])
        self._buildah("rm", container)
        return Image(root, told["Docker"]["config"], _size(root))

    def remove(self) -> None:
        """Take everything away."""
        shutil.rmtree(self.folder)

    def _buildah(self, *arguments: str, mounts: Mapping[str, Path] | None = None) -> str:
        return _run(["buildah", *arguments], self.environ(mounts)).strip()


def base_archive(progress: TextIO) -> Path:
    """Return a docker archive of BASE, the image that operators are built from; built unless it is in the cache.

    A build starts at the first instruction whose files have changed since the last one.
    """
    with _locked() as folder, tempfile.TemporaryDirectory() as context:
        # A copy: files that are edited during the build would make an archive of other content than its name says.
        archive = folder / f"base-{_copy_sources(Path(context))}.tar"
        if archive.exists():
            archive.touch()
            return archive
        print("Building the image that operators are built from", file=progress)
        store = _layers(folder / "build")
        store.build(Path(context), BASE, "--target=base", f"--build-arg=DEBIAN={DEBIAN}")
        store.save(BASE, store.folder / "new.tar")
        (store.folder / "new.tar").replace(archive)
        for old in sorted(folder.glob("base-*.tar"), key=lambda path: path.stat().st_mtime)[:-_KEPT]:
            old.unlink()
    return archive


@contextlib.contextmanager
def build_store() -> Iterator[Store]:
    """Open the store of the cache, which has DEBIAN and keeps layers, as `base_archive` does."""
    with _locked() as folder:
        yield _layers(folder / "build")


@contextlib.contextmanager
def _locked() -> Iterator[Path]:
    """Lock the folder of images in the cache."""
    folder = folders.binaries(os.environ).parent / "images"
    with locks.locked(folder / "lock", lambda: None):
        yield folder


def _layers(build: Path) -> Store:
    made = build / "made"
    # Packages grow old, and layers that no build uses any more stay.
    if made.exists() and (time.time() - made.stat().st_mtime > _WEEK or _size(build / "storage") > _MOST):
        shutil.rmtree(build)
    store = Store(build, layers=True)
    if not store.has(DEBIAN):
        store.make_debian()
        made.touch()
    return store


def _copy_sources(into: Path) -> str:
    """Copy the files of which BASE is built, and return their digest."""
    digest = hashlib.sha256()
    for path in _sources():
        content, mode = path.read_bytes(), path.stat().st_mode & 0o777
        copy = into / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
        copy.chmod(mode)
        digest.update(f"{path.relative_to(ROOT)} {mode:o} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def _sources() -> list[Path]:
    """Return the files that the Dockerfile copies until its last stage, and those that say how."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").partition("\nFROM base AS sample\n")[0]
    text = re.sub(r"\$\{\w+\}", "*", text)
    copied = [line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY ") and "--from=" not in line]
    found = {path for names in copied for name in names for path in ROOT.glob(name.rstrip("/"))}
    inside = {path for each in found if each.is_dir() for path in each.rglob("*")}
    files = {path for path in found | inside if path.is_file() and "__pycache__" not in path.parts}
    return sorted(files | {ROOT / "Dockerfile", ROOT / ".dockerignore"})


def _driver(folder: Path) -> str:
    """Return the storage driver that works in this folder; `vfs` always does, and copies all files for each layer."""
    with tempfile.TemporaryDirectory(dir=folder) as tried:
        for name in ("lower", "upper", "work", "merged"):
            Path(tried, name).mkdir()
        options = f"lowerdir={tried}/lower,upperdir={tried}/upper,workdir={tried}/work"
        mount = ["unshare", "--mount", "mount", "-t", "overlay", "-o", options, "overlay", f"{tried}/merged"]
        return "vfs" if subprocess.run(mount, check=False, capture_output=True).returncode else "overlay"


def _size(root: Path) -> int:
    """Return the bytes of all files, hard links once."""
    seen = {}
    for folder, _, names in os.walk(root):
        for name in names:
            found = os.lstat(os.path.join(folder, name))  # noqa: PTH118 - ten thousands of files
            seen[found.st_ino] = found.st_size
    return sum(seen.values())


def _run(command: Sequence[str], environ: Mapping[str, str] | None = None) -> str:
    done = captured(*command, env={**os.environ, **(environ or {})}, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, (
        f"{shlex.join(command)}: {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    )
    return done.stdout


def _apt_settings(file: Path) -> Path:
    """Write how this machine's apt fetches: proxies, certificates, how often it tries."""
    file.write_text(_run(["apt-config", "dump", "Acquire"]) + 'Acquire::Retries "5";\n', encoding="utf-8")
    return file


def _mirror() -> list[str]:
    """Return where this machine gets Debian's packages."""
    wanted = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(SITE)", "Created-By: Packages", "Component: main"]
    sites = [line.split() for line in _run(wanted).splitlines() if line.startswith("Debian ")]
    return [sites[0][1] if sites else "http://deb.debian.org/debian"]


_REACHING = {"default-timeout", "extra-index-url", "index-url", "proxy", "retries", "timeout", "trusted-host"}


def _pip_settings(file: Path) -> Path:
    """Write how this machine's pip reaches its index; certificates are at AUTHORITIES."""
    lines = ["[global]", f"cert = {AUTHORITIES}"]
    for line in _run([sys.executable, "-m", "pip", "config", "list"]).splitlines():
        name, _, value = line.partition("=")
        if (key := name.rpartition(".")[2]) in _REACHING:
            lines.append(f"{key} = {ast.literal_eval(value)}")
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def _authorities() -> Path:
    """Return the file of certificate authorities that this machine trusts."""
    given = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
    return Path(given or "/etc/ssl/certs/ca-certificates.crt")
