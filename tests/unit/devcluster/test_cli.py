from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.base import pki
from runner.base.config.locks import FileLock
from runner.sdk.devcluster import cli, containerd, images, kubeconfig, nodes
from runner.sdk.devcluster.binaries import PROGRAMS
from runner.sdk.devcluster.layout import Layout
from runner.values.errors import ClusterError, ConfigError


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "ansible-operator" / "clusters"


@pytest.fixture
def held(state: Path) -> Iterator[None]:
    """Hold the lock of the default cluster, as its supervisor does."""
    lock = FileLock(state / "default" / "lock")
    assert lock.acquire()
    yield
    lock.release()


def _run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    cli.add_commands(parser.add_subparsers())
    parsed = parser.parse_args(["cluster", *arguments])
    code: int = parsed.func(parsed)
    return code


def test_without_a_cluster_status_prints_the_command_that_starts_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("status") == 0
    assert "cluster up" in capsys.readouterr().out


@pytest.mark.parametrize("command", [("kubeconfig",), ("load", "shop.tar")], ids=" ".join)
def test_a_command_that_needs_a_running_cluster_prints_the_one_that_starts_it(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(*command, "--name", "team") == 1
    assert "ansible-operator cluster up --name team" in capsys.readouterr().err


def test_down_removes_what_a_killed_supervisor_left(state: Path) -> None:
    (state / "default" / "run" / "etcd").mkdir(parents=True)
    (state / "default" / "logs").mkdir()
    assert _run("down") == 0
    assert not (state / "default" / "run").exists()
    assert (state / "default" / "logs").exists()


def test_status_prints_the_folder_with_the_logs_of_a_stopped_cluster(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (state / "team" / "logs").mkdir(parents=True)
    assert _run("status") == 0
    assert capsys.readouterr().out == f"team: stopped; logs, for a day: {state / 'team' / 'logs'}\n"


@pytest.mark.parametrize(("hours", "is_running", "remain"), [(23, False, True), (25, False, False), (25, True, True)])
def test_status_removes_the_logs_of_a_cluster_that_stopped_more_than_a_day_ago(
    state: Path, capsys: pytest.CaptureFixture[str], hours: float, *, is_running: bool, remain: bool
) -> None:
    log, lock = state / "team/logs/etcd.log", FileLock(state / "team/lock")
    log.parent.mkdir(parents=True)
    log.touch()
    assert not is_running or lock.acquire()
    for path in (log, log.parent):
        os.utime(path, (0.0, time.time() - hours * 3600))
    assert _run("status") == 0
    lock.release()
    assert log.exists() == remain
    printed = capsys.readouterr().out
    assert ("team: " in printed, "No control plane runs" in printed) == (remain, not remain)


@pytest.mark.usefixtures("held")
def test_a_cluster_that_is_not_ready_yet_is_starting(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("status") == 0
    assert "default: starting" in capsys.readouterr().out


@pytest.mark.usefixtures("held")
def test_two_cannot_have_one_name_in_the_foreground() -> None:
    message = rf"\(process {os.getpid()}\); choose another name with --name, or .*cluster down"
    with pytest.raises(ClusterError, match=message):
        _run("up", "--foreground")


def test_a_name_that_cannot_be_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="invalid cluster name"):
        _run("up", "--name", "../mine")


def test_build_lists_the_programs_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for program in PROGRAMS:
        (tmp_path / program.name).write_text("#!/bin/sh\n")
        (tmp_path / program.name).chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert _run("build") == 0
    assert capsys.readouterr().out == f"{tmp_path}: {', '.join(sorted(program.name for program in PROGRAMS))}\n"


@pytest.mark.usefixtures("held")
def test_a_running_cluster_does_not_change_its_nodes(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "missing", lambda _environ: "")
    (state / "default" / "run").mkdir()
    (state / "default" / "run" / "cluster.json").write_text('{"nodes": "fake"}')
    with pytest.raises(ClusterError, match=r"already runs with --node fake.*cluster down`"):
        _run("up", "--node=real")


def _run_cluster(folder: Path, **facts: object) -> FileLock:
    """Make the files of a running cluster whose supervisor is this process."""
    layout = Layout(folder)
    layout.run.mkdir(parents=True)
    layout.facts.write_text(json.dumps({"name": folder.name, "namespaces": None, **facts}))
    lock = FileLock(layout.lock)
    assert lock.acquire()
    return lock


def test_a_cluster_that_simulates_pods_needs_no_images(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = _run_cluster(state / "default")
    assert _run("load", "shop.tar") == 0
    assert "only simulates pods" in capsys.readouterr().out
    lock.release()


def test_an_image_is_loaded_into_the_cluster_of_the_kubeconfig(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own kubeconfig, a copy of it, that of a cluster that a test started, and one of another program."""
    authority = pki.Authority.create("test")
    text = kubeconfig.text("team", "https://127.0.0.1:1", b"", authority.issue("admin"))
    elsewhere = tmp_path / "elsewhere"
    files = [state / "team/run/kubeconfig", tmp_path / "copy", elsewhere / "run/kubeconfig", tmp_path / "foreign"]
    for file, content in zip(files, (text, text, text, "current-context: kind"), strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    locks = []
    for folder in (state / "team", elsewhere):
        (folder / "run/kubeconfig").rename(tmp_path / "kept")
        (folder / "run").rmdir()
        locks.append(_run_cluster(folder, namespaces=1))
        (tmp_path / "kept").rename(folder / "run/kubeconfig")
    loaded: list[Path] = []

    def load(_archive: Path, layout: Layout) -> list[str]:
        loaded.append(layout.folder)
        return ["example.com/shop:v1"]

    monkeypatch.setattr(containerd, "load_archive", load)
    monkeypatch.setattr(images, "archive", lambda *_: tmp_path)
    for file in files[:3]:
        monkeypatch.setenv("KUBECONFIG", str(file))
        assert _run("load", "shop.tar") == 0
        assert "Loaded into the control plane 'team': example.com/shop:v1" in capsys.readouterr().out
    assert loaded == [state / "team", state / "team", elsewhere]
    monkeypatch.setenv("KUBECONFIG", str(files[3]))
    assert _run("load", "shop.tar") == 1
    assert "The control plane 'default' is stopped" in capsys.readouterr().err
    for lock in locks:
        lock.release()
