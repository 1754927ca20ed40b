from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from runner.sdk.devcluster import binaries
from runner.sdk.devcluster.binaries import CONTROL_PLANE, Program, Target, Toolset, UnavailableError
from runner.sdk.devcluster.progress import Progress
from runner.values.errors import ClusterError
from tests.kit.wait import patience

_TWO = Toolset("test", "etcd-1_kwok-1", (Program("etcd", Path("m"), "p"), Program("kwok", Path("m"), "p")))
# Gets one program slowly, by a source that notes each time it is asked.
_SLOW = """
import sys, time
from pathlib import Path
from runner.sdk.devcluster import binaries
from runner.sdk.devcluster.progress import Progress
folder = Path(sys.argv[1])

class Slow:
    def fetch(self, program, target, file, progress):
        with (folder / "asked").open("a") as asked:
            asked.write(f"{program.name}\\n")
        file.write_text("#!/bin/sh\\n")
        time.sleep(0.5)
        file.write_text("#!/bin/sh\\necho whole\\n")

environ = {"XDG_CACHE_HOME": str(folder / "cache")}
programs = (binaries.Program("etcd", folder, "p"), binaries.Program("kwok", folder, "p"))
kit = binaries.Toolset("test", "etcd-1_kwok-1", programs)
found = binaries.provide(environ, (Slow(),), Progress(sys.stderr), kit)
assert all("whole" in path.read_text() for path in found.values()), found
print("ready", flush=True)
"""


class Builds:
    """Makes every program, and remembers which."""

    def __init__(self) -> None:
        self.built: list[str] = []

    def fetch(self, program: Program, _target: Target, file: Path, _progress: Progress, /) -> None:
        self.built.append(program.name)
        file.write_text(f"built {program.name}")


class Closed:
    """A way that is closed."""

    def fetch(self, program: Program, _target: Target, _file: Path, _progress: Progress, /) -> None:
        raise UnavailableError(f"nothing.example: no {program.name} here")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture
def quiet() -> Progress:
    return Progress(io.StringIO())


def _install(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)


def _provide_slowly(folder: Path) -> subprocess.Popen[str]:
    """Start a process that gets the programs by a slow source."""
    return subprocess.Popen(
        [sys.executable, "-c", _SLOW, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _cache(environ: Mapping[str, str]) -> Path:
    return binaries.cache_folder(environ, binaries.this_machine(), _TWO)


def test_programs_missing_in_the_users_folder_come_from_the_cache(
    environ: dict[str, str], tmp_path: Path, quiet: Progress
) -> None:
    environ["KUBEBUILDER_ASSETS"] = str(tmp_path / "assets")
    _install(tmp_path / "assets", "etcd")
    _install(_cache(environ), "etcd", "kwok")
    found = binaries.provide(environ, (), quiet, _TWO)
    assert found == {"etcd": tmp_path / "assets" / "etcd", "kwok": _cache(environ) / "kwok"}


def test_a_file_that_cannot_be_run_does_not_count(environ: dict[str, str], quiet: Progress) -> None:
    _install(_cache(environ), "etcd", "kwok")
    (_cache(environ) / "kwok").chmod(0o644)
    builds = Builds()
    binaries.provide(environ, (builds,), quiet, _TWO)
    assert builds.built == ["kwok"]


def _program(size: int = 200, end: int = 200) -> bytes:
    """Return a program of some size, whose header says that its last segment ends there (elf(5))."""
    segment = bytes(8) + (64).to_bytes(8, "little") + bytes(16) + (end - 64).to_bytes(8, "little") + bytes(16)
    head = b"\x7fELF" + bytes(28) + (64).to_bytes(8, "little") + bytes(14) + (56).to_bytes(2, "little") + b"\1\0"
    return (head.ljust(64, b"\0") + segment).ljust(max(size, end), b"\0")[:size]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (_program(), []),
        (_program(300, 200), []),  # its table of sections follows, which nothing needs
        (_program(199), ["kwok"]),
        (_program(100), ["kwok"]),
        (_program(40), ["kwok"]),
        (b"\x7fELF", ["kwok"]),
        (b"", ["kwok"]),
        (bytes(200), ["kwok"]),
        (b"#!/bin/sh\n", []),
        (Path(sys.executable).read_bytes(), []),
    ],
    ids=range(10),
)
def test_a_truncated_program_in_the_cache_is_got_again(
    environ: dict[str, str], quiet: Progress, content: bytes, expected: list[str]
) -> None:
    _install(_cache(environ), "etcd", "kwok")
    (_cache(environ) / "kwok").write_bytes(content)
    builds = Builds()
    binaries.provide(environ, (builds,), quiet, _TWO)
    assert builds.built == expected


def test_the_first_available_source_is_used(environ: dict[str, str], quiet: Progress) -> None:
    first, second = Builds(), Builds()
    found = binaries.provide(environ, (Closed(), first, second), quiet, _TWO)
    assert (first.built, second.built) == (["etcd", "kwok"], [])
    assert found["etcd"].read_text() == "built etcd"
    assert found["etcd"].stat().st_mode & 0o111


def test_if_every_source_fails_the_error_names_each_with_advice(environ: dict[str, str], quiet: Progress) -> None:
    with pytest.raises(ClusterError) as caught:
        binaries.provide(environ, (Closed(),), quiet, _TWO)
    message = str(caught.value)
    for part in ("etcd", "KUBEBUILDER_ASSETS", str(_cache(environ)), "nothing.example", "https://go.dev/dl/"):
        assert part in message


def test_other_versions_and_other_machines_have_a_cache_of_their_own(environ: dict[str, str]) -> None:
    linux = binaries.cache_folder(environ, Target("linux", "amd64"), CONTROL_PLANE)
    mac = binaries.cache_folder(environ, Target("darwin", "arm64"), CONTROL_PLANE)
    assert linux != mac
    assert all(version in linux.name for version in (binaries.KUBERNETES, binaries.ETCD, binaries.KWOK))


@pytest.mark.lengthy
def test_two_that_need_the_same_programs_at_once_get_them_once(tmp_path: Path) -> None:
    starting = [_provide_slowly(tmp_path) for _ in range(2)]
    said = [process.communicate(timeout=patience()) for process in starting]
    assert [out for out, _ in said] == ["ready\n", "ready\n"]
    assert (tmp_path / "asked").read_text().split() == ["etcd", "kwok"]
    waited = [
        re.search(r"Waiting for process (\d+), which .* of the test: [012] of 2 are there", err) for _, err in said
    ]
    assert next(int(match[1]) for match in waited if match) in {process.pid for process in starting}


def test_a_killed_builder_does_not_block_the_next_one(tmp_path: Path, environ: dict[str, str], quiet: Progress) -> None:
    with _provide_slowly(tmp_path) as builder:
        assert builder.stderr is not None
        assert any("etcd (1 of 2)" in line for line in builder.stderr)
        builder.kill()
        builder.communicate()
    builds = Builds()
    binaries.provide(environ, (builds,), quiet, _TWO)
    assert builds.built == ["etcd", "kwok"]
