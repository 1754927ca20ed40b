from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from runner.sdk.devcluster import binaries, gobuild
from runner.sdk.devcluster.binaries import PROGRAMS, Target, UnavailableError
from runner.sdk.devcluster.gobuild import GoBuild
from runner.sdk.devcluster.progress import Progress
from runner.values.errors import ClusterError
from tests.kit import go_programs

_LINUX = Target("linux", "arm64")
_KWOK = next(program for program in PROGRAMS if program.name == "kwok")
# Writes what it was asked to the place where the program should be, as `go build -o FILE` does.
_FAKE_GO = """#!/bin/sh
[ "$1" = version ] && { echo go version go1.25.1 linux/amd64; exit; }
while [ "$1" != -o ]; do shift; done
{ pwd; ls; env | sort; } > "$2"
"""


@pytest.fixture
def quiet() -> Progress:
    return Progress(io.StringIO())


@pytest.fixture
def go(tmp_path: Path) -> Path:
    path = tmp_path / "bin" / "go"
    path.parent.mkdir()
    path.write_text(_FAKE_GO)
    path.chmod(0o755)
    return path


def _builder(go: Path, **more: str) -> GoBuild:
    return GoBuild({"PATH": f"{go.parent}:/usr/bin:/bin", **more}, go.parent)


def test_the_program_is_built_in_a_copy_of_its_module(go: Path, tmp_path: Path, quiet: Progress) -> None:
    _builder(go).fetch(_KWOK, _LINUX, tmp_path / "kwok", quiet)
    folder, *files = (tmp_path / "kwok").read_text().splitlines()
    assert not folder.startswith(str(binaries.MODULES))
    assert not Path(folder).exists()
    assert {"go.mod", "go.sum", "tools.go"} <= set(files)


def test_the_build_is_for_the_target_whatever_the_users_settings(go: Path, tmp_path: Path, quiet: Progress) -> None:
    builder = _builder(go, GOOS="windows", GOFLAGS="-mod=vendor", GOWORK="/somewhere/go.work", GOPROXY="https://mirror")
    builder.fetch(_KWOK, _LINUX, tmp_path / "kwok", quiet)
    seen = set((tmp_path / "kwok").read_text().splitlines())
    assert {"GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0", "GOWORK=off", "GOTOOLCHAIN=auto"} <= seen
    assert "GOPROXY=https://mirror" in seen
    assert not any(line.startswith("GOFLAGS=") for line in seen)


def test_the_users_choice_of_toolchain_stays() -> None:
    assert gobuild.environment({"GOTOOLCHAIN": "local"}, _LINUX)["GOTOOLCHAIN"] == "local"


def test_a_failed_build_contains_the_output_of_go_and_stores_it(go: Path, tmp_path: Path, quiet: Progress) -> None:
    go.write_text(_FAKE_GO.replace("while", "echo 'dial tcp: no route to host' >&2; exit 1\nwhile"))
    with pytest.raises(ClusterError, match="no route to host") as caught:
        _builder(go).fetch(_KWOK, _LINUX, tmp_path / "kwok", quiet)
    log = go.parent / "build-kwok.log"
    assert str(log) in str(caught.value)
    assert "no route" in log.read_text()


def test_without_go_builds_are_unavailable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quiet: Progress) -> None:
    monkeypatch.setattr(gobuild, "_USUAL_PLACES", (tmp_path / "usual",))
    with pytest.raises(UnavailableError, match=str(tmp_path / "usual")):
        GoBuild({"PATH": str(tmp_path)}, tmp_path).fetch(_KWOK, _LINUX, tmp_path / "kwok", quiet)


@pytest.mark.parametrize("old", ["go version go1.19.8 linux/amd64", "shim: no version is set"])
def test_a_go_that_is_too_old_or_does_not_start_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, go: Path, tmp_path: Path, old: str
) -> None:
    older = tmp_path / "older" / "go"
    older.parent.mkdir()
    older.write_text(f"#!/bin/sh\necho {old}\n")
    older.chmod(0o755)
    monkeypatch.setattr(gobuild, "_USUAL_PLACES", (go.parent,))
    assert gobuild.find_go({"PATH": str(older.parent)}) == str(go)
    monkeypatch.setattr(gobuild, "_USUAL_PLACES", ())
    with pytest.raises(UnavailableError, match=r"version 1\.21 or later"):
        gobuild.find_go({"PATH": str(older.parent)})


@pytest.mark.parametrize(
    ("module", "promised"),
    [
        ("kubernetes", f"k8s.io/kubernetes {binaries.KUBERNETES}"),
        ("kubernetes", f"go.etcd.io/etcd/server/v3 {binaries.ETCD}"),
        ("kwok", f"sigs.k8s.io/kwok {binaries.KWOK}"),
        ("helm", f"helm.sh/helm/v3 {go_programs.HELM}"),
        ("actionlint", f"github.com/rhysd/actionlint {go_programs.ACTIONLINT}"),
    ],
)
def test_the_modules_have_the_versions_that_are_promised(module: str, promised: str) -> None:
    assert promised in (_folder(module) / "go.mod").read_text()
    assert (_folder(module) / "go.sum").is_file()


def _folder(module: str) -> Path:
    return next(folder / module for folder in (binaries.MODULES, go_programs.MODULES) if (folder / module).is_dir())


def _versions(module: str) -> dict[str, str]:
    """Return the version of each module of a go.mod."""
    text = (_folder(module) / "go.mod").read_text()
    return dict(re.findall(r"^\t(\S+) (?:=> \S+ )?(v\S+)", text, re.MULTILINE))


def test_libraries_of_kubernetes_have_the_same_version_in_all_programs() -> None:
    ours, theirs = _versions("helm"), _versions("kubernetes")
    shared = {name for name in ours.keys() & theirs.keys() if name.startswith(("k8s.io/", "golang.org/x/"))}
    assert len(shared) > 15
    assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}
