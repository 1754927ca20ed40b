"""Container images without a container engine: buildah builds them in chroots, and containers are chroots too.

The network is this machine's, and so are the settings by which it reaches Debian's and Python's packages: they are
mounted while an image is built, and are in none. Needs root, as chroot(2) and mount(2) do.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEBIAN = "localhost/debian:trixie-slim"
SUITE = "trixie"

AUTHORITIES = "/run/authorities.crt"
"""Where builds find the certificate authorities that this machine trusts."""

_LEFT_OUT = ("doc", "info", "locale", "man")
"""Of /usr/share: what the published slim images of Debian leave out too."""


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
        tried = subprocess.run(mount, check=False, text=True, stdin=subprocess.DEVNULL, capture_output=True)
    except FileNotFoundError:
        return ""  # util-linux comes with the other programs
    return f"root may not mount here: {tried.stderr.strip()}" if tried.returncode else ""


@dataclass(frozen=True)
class Image:
    """What a built image says of itself, and its unpacked files."""

    root: Path
    config: Mapping[str, Any]
    size: int
    """Bytes of all of its files, unpacked."""

    def command(self, *arguments: str, user: str = "", environ: Mapping[str, str] | None = None) -> list[str]:
        """Return what starts `arguments` in a container, as `user` (`uid:gid`; else the image's own).

        The command has namespaces of its own for processes and mounts, so whatever it leaves ends with it. It may
        write to /tmp only, as in a pod whose root file system is read-only.
        """
        values = [*self.config["Env"], *(f"{name}={value}" for name, value in (environ or {}).items())]
        inside = [
            *("chroot", f"--userspec={user or self._user()}", "--groups=0", str(self.root)),
            *("/usr/bin/env", "--ignore-environment", f"--chdir={self.config['WorkingDir']}", *values),
            *arguments,
        ]
        root = shlex.quote(str(self.root))
        mounts = (
            f"mount --bind {root} {root} && cd / && mount --rbind /dev {root}/dev && mount -t proc proc {root}/proc"
            f" && mount -t tmpfs -o mode=1777 tmpfs {root}/tmp && mount -o remount,bind,ro {root}"
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

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._buildah = [
            *("buildah", "--root", str(folder / "storage"), "--runroot", str(folder / "run")),
            *("--storage-driver", "vfs"),
        ]
        self._apt = _apt_settings(folder / "apt.conf")
        self._settings = {
            "/etc/apt/apt.conf.d/99machine": self._apt,
            "/etc/xdg/pip/pip.conf": _pip_settings(folder / "pip.conf"),
            AUTHORITIES: _authorities(),
        }

    def make_debian(self) -> None:
        """Make DEBIAN of the packages that the published image is made of."""
        tar = self.folder / "debian.tar"
        options = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _LEFT_OUT]
        apt = f"--aptopt={self._apt}"
        _run(["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", apt, *options, SUITE, str(tar), *_mirror()])
        # How this machine fetches is not to be in the image; what is left out stays so, as in the published one.
        scratch = _run([*self._buildah, "from", "scratch"]).strip()
        _run([*self._buildah, "add", "--quiet", scratch, str(tar), "/"])
        tar.unlink()
        forget = ("rm", "-f", "/etc/apt/apt.conf.d/99mmdebstrap")
        _run([*self._buildah, "run", "--isolation=chroot", scratch, *forget])
        _run([*self._buildah, "commit", "--quiet", "--rm", scratch, DEBIAN])

    def tool(self, mounts: Mapping[str, Path]) -> Path:
        """Write a program that builds as `docker build` does, with these files mounted; return it."""
        volumes = [f"--volume={file}:{target}:ro" for target, file in {**self._settings, **mounts}.items()]
        program = self.folder / "container-tool"
        build = shlex.join([*self._buildah, "build", "--isolation=chroot", "--format=docker", *volumes])
        program.write_text(f'#!/bin/sh\ntest "$1" = build || exit 2\nshift\nexec {build} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
        return program

    def build(self, context: Path, tag: str, *arguments: str, mounts: Mapping[str, Path] | None = None) -> str:
        """Build, with files mounted at absolute paths in the image; return all that was said."""
        return _run([str(self.tool(mounts or {})), "build", "--tag", tag, *arguments, str(context)])

    def unpack(self, tag: str) -> Image:
        """Return the image `tag` with its files mounted."""
        told = json.loads(_run([*self._buildah, "inspect", "--type=image", tag]))
        container = _run([*self._buildah, "from", "--pull-never", tag]).strip()
        root = Path(_run([*self._buildah, "mount", container]).strip())
        return Image(root, told["Docker"]["config"], _size(root))

    def remove(self) -> None:
        """Take everything away."""
        shutil.rmtree(self.folder)


def _size(root: Path) -> int:
    """Return the bytes of all files, hard links once."""
    seen = {}
    for folder, _, names in os.walk(root):
        for name in names:
            found = os.lstat(os.path.join(folder, name))  # noqa: PTH118 - ten thousands of files
            seen[found.st_ino] = found.st_size
    return sum(seen.values())


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, check=False, text=True, stdin=subprocess.DEVNULL, capture_output=True)
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
