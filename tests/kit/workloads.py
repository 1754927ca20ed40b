"""Small images of what operators run: a web server, memcached, Redis and MariaDB, out of Debian's packages.

Each has one layer: programs, the libraries that they need, and busybox for the rest. An image of the same packages has
the same digest wherever it is built. Archives are in the cache; `python -m tests.kit.workloads` builds them and prints
their paths. They offer what the published images of these names do, as far as roles in this repository rely on it.
"""

from __future__ import annotations

import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from runner.base.config import locks
from runner.sdk.devcluster import folders, pause
from runner.sdk.devcluster.binaries import this_machine
from tests.kit import debian

_LOADERS = {"x86_64": "lib64/ld-linux-x86-64.so.2", "aarch64": "lib/ld-linux-aarch64.so.1"}
_BUSYBOX = "bin/busybox"
_WEEK = 7 * 24 * 3600.0
"""Seconds after which images that were not used leave the cache."""
_SOURCES = (Path(__file__), Path(debian.__file__), Path(pause.__file__))
"""What determines the images, beside Debian's packages."""

_SERVE = """\
#!/bin/sh
# Process 1 that ends on SIGTERM, which busybox's httpd as process 1 ignores.
"$@" &
trap "kill $!" TERM INT
wait $!
"""

_FLAGS_ALONE = """\
#!/bin/sh
case "${1-}" in -*) set -- memcached "$@" ;; esac
exec "$@"
"""

_ENTRYPOINT = """\
#!/bin/sh
# The part of the published image's entrypoint that roles rely on: a root password, a user for replication, and a
# server to follow. All of it happens once, when the data is new.
set -eu
data=/var/lib/mysql
if [ "${1#-}" != "$1" ]; then set -- mariadbd "$@"; fi
if [ ! -e "$data/.complete" ]; then
    rm -rf "${data:?}"/*
    mariadb-install-db --no-defaults --datadir="$data" --auth-root-authentication-method=normal --skip-test-db \\
        --skip-name-resolve --rpm > /dev/null
    health=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \\n')
    printf '[client]\\nuser=healthcheck\\npassword=%s\\nhost=127.0.0.1\\nprotocol=tcp\\n' "$health" \\
        > "$data/.health.cnf"
    {
        echo "FLUSH PRIVILEGES;"
        echo "DELETE FROM mysql.global_priv WHERE user IN ('root', '');"
        echo "FLUSH PRIVILEGES;"
        for host in localhost %; do
            echo "CREATE USER root@'$host' IDENTIFIED BY '$MARIADB_ROOT_PASSWORD';"
            echo "GRANT ALL ON *.* TO root@'$host' WITH GRANT OPTION;"
        done
        echo "CREATE USER healthcheck@'127.0.0.1' IDENTIFIED BY '$health';"
        if [ -n "${MARIADB_DATABASE:-}" ]; then echo "CREATE DATABASE \\`$MARIADB_DATABASE\\`;"; fi
        if [ -n "${MARIADB_REPLICATION_USER:-}" ]; then
            echo "CREATE USER '$MARIADB_REPLICATION_USER'@'%' IDENTIFIED BY '$MARIADB_REPLICATION_PASSWORD';"
            echo "GRANT REPLICATION SLAVE ON *.* TO '$MARIADB_REPLICATION_USER'@'%';"
        fi
    } | mariadbd --no-defaults --datadir="$data" --bootstrap
    touch "$data/.complete"
fi
if [ -n "${MARIADB_MASTER_HOST:-}" ] && [ ! -e "$data/master.info" ]; then
    printf '%s\\n' "CHANGE MASTER TO MASTER_HOST='$MARIADB_MASTER_HOST', MASTER_USER='$MARIADB_REPLICATION_USER', \
MASTER_PASSWORD='$MARIADB_REPLICATION_PASSWORD', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=5;" \\
        "START SLAVE;" > /tmp/follow.sql
    set -- "$@" --init-file=/tmp/follow.sql
fi
exec "$@"
"""

_HEALTHCHECK = """\
#!/bin/sh
# Succeeds when the server answers and InnoDB is initialized, whichever of the published script's flags it gets.
exec mariadb --defaults-file=/var/lib/mysql/.health.cnf --batch --skip-column-names --execute \\
    "SELECT 1 FROM information_schema.engines WHERE engine = 'InnoDB' AND support IN ('YES', 'DEFAULT')" > /dev/null
"""

_MARIADB_SETTINGS = """\
[mariadbd]
datadir = /var/lib/mysql
socket = /tmp/mysqld.sock
lc-messages-dir = /usr/share/mysql
character-sets-dir = /usr/share/mysql/charsets
skip-name-resolve
host-cache-size = 0
[client]
socket = /tmp/mysqld.sock
"""


@dataclass(frozen=True)
class Workload:
    """An image: what it is made of, and what its configuration says."""

    packages: tuple[str, ...]
    programs: tuple[str, ...]
    """Paths in the packages; the libraries that they need come along."""
    config: Mapping[str, Any]
    data: tuple[str, ...] = ()
    """Files and folders of the packages that are no programs."""
    scripts: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    user: int = 65534
    home: str = "data"
    """A folder that the user may write to."""


WORKLOADS: Mapping[str, Workload] = {
    "web": Workload(
        packages=(),
        programs=(),
        texts={"www/index.html": "<!doctype html><title>Test</title><p>It works\n"},
        scripts={"usr/local/bin/docker-entrypoint.sh": _SERVE},
        config={"Entrypoint": ["docker-entrypoint.sh"], "Cmd": ["httpd", "-f", "-v", "-p", "8080", "-h", "/www"]},
    ),
    "memcached": Workload(
        packages=("memcached",),
        programs=("usr/bin/memcached",),
        scripts={"usr/local/bin/docker-entrypoint.sh": _FLAGS_ALONE},
        config={"Entrypoint": ["docker-entrypoint.sh"], "Cmd": ["memcached"]},
        user=11211,
    ),
    "mariadb": Workload(
        packages=("mariadb-server-core", "mariadb-client-core", "bash"),
        programs=(
            *("usr/sbin/mariadbd", "usr/bin/mariadb", "usr/bin/my_print_defaults", "usr/bin/resolveip"),
            "bin/bash",
        ),
        data=("usr/bin/mariadb-install-db", "usr/share/mysql"),
        scripts={"usr/local/bin/docker-entrypoint.sh": _ENTRYPOINT, "usr/local/bin/healthcheck.sh": _HEALTHCHECK},
        texts={"etc/mysql/my.cnf": _MARIADB_SETTINGS},
        config={"Entrypoint": ["docker-entrypoint.sh"], "Cmd": ["mariadbd"]},
        user=999,
        home="var/lib/mysql",
    ),
}


def image_name(name: str) -> str:
    """Return the name of the image in its archive."""
    return f"localhost/{name}:test"


def archives(progress: TextIO, *names: str) -> dict[str, Path]:
    """Return the archives of the images (default: all), built where they are not in the cache."""
    wanted = names or tuple(WORKLOADS)
    key = hashlib.sha256(b"".join((*map(Path.read_bytes, _SOURCES), _release()))).hexdigest()[:16]
    folder = folders.binaries(os.environ).parent / "images" / f"workloads-{key}_{this_machine()}"
    found = {name: folder / f"{name}.tar" for name in wanted}
    with locks.locked(folder / "lock", lambda: None):
        if missing := [name for name in wanted if not found[name].exists()]:
            print(f"Making images of Debian's packages: {', '.join(missing)}", file=progress)
            build(folder, missing)
        folder.touch()
    for other in folder.parent.glob("workloads-*"):
        if time.time() - other.stat().st_mtime > _WEEK:
            shutil.rmtree(other)
    return found


def build(folder: Path, names: Sequence[str]) -> None:
    """Write the archives of these images."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as new:
        tree = Path(new, "tree")
        tree.mkdir()
        packages = {package for name in names for package in WORKLOADS[name].packages}
        debian.unpack(["busybox-static", *sorted(packages)], tree, dependencies=True)
        for name in names:
            archive = Path(new, "archive.tar")
            write_archive(archive, image_name(name), WORKLOADS[name], tree)
            archive.replace(folder / f"{name}.tar")


def write_archive(target: Path, tag: str, workload: Workload, tree: Path) -> None:
    """Write a docker archive. It contains no time and nothing of this machine."""
    environ = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    config = {"Env": environ, "User": str(workload.user), "WorkingDir": "/", **workload.config}
    target.write_bytes(pause.docker_archive([tag], _layer(workload, tree), config, this_machine().machine))


def _layer(workload: Workload, tree: Path) -> bytes:
    """Return the tar of all files, in the order of their names."""
    files: dict[str, tuple[bytes, int]] = {}
    for program in (_BUSYBOX, *workload.programs):
        files[program] = ((tree / program).read_bytes(), 0o755)
    for path, library in _libraries(workload.programs, tree).items():
        files[path] = (library.read_bytes(), 0o755)
    for name in workload.data:
        for found in (tree / name, *(tree / name).rglob("*")):
            if found.is_file():
                files[str(found.relative_to(tree))] = (found.read_bytes(), found.stat().st_mode & 0o777)
    files |= {name: (text.encode(), 0o755) for name, text in workload.scripts.items()}
    user = workload.user
    texts = {
        "etc/passwd": f"root:x:0:0:root:/:/bin/sh\nuser:x:{user}:{user}:user:/{workload.home}:/bin/sh\n",
        "etc/group": f"root:x:0:\nuser:x:{user}:\n",
        **workload.texts,
    }
    files |= {name: (text.encode(), 0o644) for name, text in texts.items()}
    applets = _applets(tree / _BUSYBOX)
    links = {name for name in applets if name not in files}
    folders_ = {str(parent) for name in (*files, *links, "proc/x", "dev/x", "sys/x") for parent in Path(name).parents}
    own = {workload.home: 0o700, "tmp": 0o1777}

    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as layer:
        for name in sorted((folders_ - {"."}) | set(own) | _parents(workload.home) | links | files.keys()):
            if name in files:
                _add(layer, name, *files[name])
            elif name in links:
                _add(layer, name, None, 0o777, link=f"/{_BUSYBOX}")
            else:
                owner = user if name == workload.home else 0
                _add(layer, name, None, own.get(name, 0o755), owner=owner)
    return written.getvalue()


def _parents(path: str) -> set[str]:
    return {str(parent) for parent in Path(path).parents} - {"."}


def _add(
    archived: tarfile.TarFile, name: str, content: bytes | None, mode: int, *, owner: int = 0, link: str = ""
) -> None:
    info = tarfile.TarInfo(name)
    info.mode, info.uid, info.gid = mode, owner, owner
    if link:
        info.type, info.linkname = tarfile.SYMTYPE, link
    elif content is None:
        info.type = tarfile.DIRTYPE
    else:
        info.size = len(content)
    archived.addfile(info, None if content is None else io.BytesIO(content))


def _applets(busybox: Path) -> list[str]:
    done = subprocess.run([str(busybox), "--list-full"], check=True, capture_output=True, text=True)
    return done.stdout.split()


def _libraries(programs: Sequence[str], tree: Path) -> dict[str, Path]:
    """Return the libraries of programs by their paths in the image, and the loader, which finds them."""
    if not programs:
        return {}
    (loader,) = (path for path in tree.glob("lib/*/ld-linux-*.so.*") if path.is_file() and not path.is_symlink())
    triplet = loader.parent.name
    places = [tree / "lib" / triplet, tree / "usr/lib" / triplet]
    listing = [str(loader), "--inhibit-cache", "--library-path", os.pathsep.join(map(str, places)), "--list"]
    found = {_LOADERS[platform.machine()]: loader}
    for program in programs:
        done = subprocess.run([*listing, str(tree / program)], check=True, capture_output=True, text=True)
        assert "not found" not in done.stdout, f"{program}: {done.stdout}"
        for line in done.stdout.splitlines():
            _, arrow, rest = line.partition(" => ")
            path = Path(rest.rpartition(" (")[0])
            if arrow and path.is_relative_to(tree) and path.parent in places:
                found[str(path.relative_to(tree))] = path.resolve()
    return found


def _release() -> bytes:
    """Return which Debian this machine is: its packages are those of the images."""
    return platform.freedesktop_os_release().get("VERSION_CODENAME", "").encode()


if __name__ == "__main__":
    for each in archives(sys.stderr, *sys.argv[1:]).values():
        print(each)  # noqa: T201 - the result
