"""The commands `cluster up | down | status | kubeconfig`, started as a user does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.wait import patience, wait_until

Cluster = Callable[..., "subprocess.CompletedProcess[str]"]
ProcessesIn = Callable[[Path], list[str]]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def cluster(environ: dict[str, str]) -> Iterator[Cluster]:
    def run(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            _command(*arguments), env=environ, capture_output=True, text=True, check=check, timeout=patience()
        )

    yield run
    run("down")


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "runner", "cluster", *arguments]


def _folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ansible-operator" / "clusters" / "default"


@pytest.mark.full
def test_two_that_start_one_cluster_at_once_get_the_same_which_survives_a_kill_and_leaves_its_logs(
    cluster: Cluster, environ: dict[str, str], tmp_path: Path, processes_in: ProcessesIn
) -> None:
    starting = [
        subprocess.Popen(_command("up"), env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=patience()) for process in starting]
    assert [process.returncode for process in starting] == [0, 0], said
    assert sorted("is ready" in out for out, _ in said) == [False, True]
    folder = _folder(tmp_path)
    assert (folder / "logs" / "supervisor.log").stat().st_size > 0
    os.kill(int((folder / "lock").read_text()), signal.SIGKILL)
    wait_until(lambda: processes_in(folder) == [])
    assert "default: stopped" in cluster("status").stdout

    copy = tmp_path / "copy.yaml"
    assert "is ready" in cluster("up", "--kubeconfig", str(copy)).stdout
    assert "already runs" in cluster("up").stdout
    path = cluster("kubeconfig").stdout.strip()
    assert cluster("kubeconfig", "--content").stdout == Path(path).read_text() == copy.read_text()
    status = cluster("status").stdout
    assert "default: running" in status
    (kubectl,) = (line.split()[1] for line in status.splitlines() if line.startswith("  kubectl"))
    subprocess.run([kubectl, "--kubeconfig", copy, "get", "nodes"], check=True, capture_output=True)
    assert "was stopped" in cluster("down").stdout
    assert processes_in(folder) == []
    assert not copy.exists()
    assert not (folder / "run").exists()
    assert (folder / "logs" / "kube-apiserver.log").exists()
    assert "default: stopped" in cluster("status").stdout


def test_a_kubeconfig_of_another_cluster_is_not_overwritten(cluster: Cluster, tmp_path: Path) -> None:
    theirs = tmp_path / "config"
    theirs.write_text("current-context: production\n")
    refused = cluster("up", "--kubeconfig", str(theirs), check=False)
    assert refused.returncode == 1
    assert str(theirs) in refused.stderr
    assert theirs.read_text() == "current-context: production\n"


@pytest.mark.parametrize(
    "ending",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.nightly),
        pytest.param(signal.SIGKILL, marks=pytest.mark.nightly),
    ],
)
def test_a_cluster_in_the_foreground_ends_with_its_command(
    environ: dict[str, str], tmp_path: Path, processes_in: ProcessesIn, ending: signal.Signals
) -> None:
    with subprocess.Popen(_command("up", "--foreground"), env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "is ready" in process.stdout.readline()
        process.send_signal(ending)
        assert process.wait(patience()) == (-ending if ending == signal.SIGKILL else 0)
    wait_until(lambda: processes_in(_folder(tmp_path)) == [])
    wait_until(lambda: not (_folder(tmp_path) / "run").exists())
