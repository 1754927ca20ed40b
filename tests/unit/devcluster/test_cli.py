from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from runner.config.locks import FileLock
from runner.devcluster import cli
from runner.devcluster.binaries import PROGRAMS
from runner.errors import ClusterError, ConfigError


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "ansible-operator" / "clusters"


def _run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    cli.add_commands(parser.add_subparsers())
    parsed = parser.parse_args(["cluster", *arguments])
    code: int = parsed.func(parsed)
    return code


def test_without_a_cluster_status_prints_the_command_that_starts_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("status") == 0
    assert "cluster up" in capsys.readouterr().out


def test_the_kubeconfig_of_a_stopped_cluster_is_an_error_with_the_command_that_starts_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _run("kubeconfig", "--name", "team") == 1
    assert "ansible-operator cluster up --name team" in capsys.readouterr().err


def test_ending_a_cluster_that_does_not_run_is_not_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("down") == 0
    assert "does not run" in capsys.readouterr().out


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
    out = capsys.readouterr().out
    assert "team: stopped" in out
    assert str(state / "team" / "logs") in out


def test_a_cluster_that_is_not_ready_yet_is_starting(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = FileLock(state / "default" / "lock")
    assert lock.acquire()
    assert _run("status") == 0
    lock.release()
    assert "default: starting" in capsys.readouterr().out


def test_two_cannot_have_one_name_in_the_foreground(state: Path) -> None:
    lock = FileLock(state / "default" / "lock")
    assert lock.acquire()
    with pytest.raises(ClusterError, match="cluster down"):
        _run("up", "--foreground")
    lock.release()


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
    assert f"kube-apiserver: {tmp_path / 'kube-apiserver'}" in capsys.readouterr().out.splitlines()
