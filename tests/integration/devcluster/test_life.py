"""How a control plane starts, suffers and ends."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.sdk import devcluster
from runner.sdk.devcluster import ClusterError, DevCluster
from runner.sdk.devcluster.cluster import outside
from runner.sdk.devcluster.layout import APISERVER, COMPONENTS, ETCD
from tests.kit.processes import captured
from tests.kit.wait import wait_until

pytestmark = pytest.mark.xdist_group("devcluster-life")

ProcessesIn = Callable[[Path], list[str]]

# Starts a cluster as a test or demo does, forks a child that outlives it (as a fork server would), waits for its end.
_OWNER = """
import os, sys, time
from runner.sdk import devcluster
with devcluster.start(name="owned") as cluster:
    if os.fork() == 0:
        time.sleep(20)
        os._exit(0)
    print(cluster.kubeconfig, cluster.control.process.pid, flush=True)
    time.sleep(1000)
"""


@pytest.fixture(scope="module")
def own(processes_in: ProcessesIn) -> Iterator[DevCluster]:
    """A cluster that these tests may break, if they mend it; it ends although all of it is paused."""
    with devcluster.start(name="own") as cluster:
        yield cluster
        for component in COMPONENTS:
            cluster.pause(component)
    folder = cluster.kubeconfig.parent.parent
    assert not folder.exists()
    assert processes_in(folder) == []


def _get(cluster: DevCluster, what: str, within: str = "30s") -> subprocess.CompletedProcess[str]:
    command = [str(cluster.kubectl), f"--kubeconfig={cluster.kubeconfig}", f"--request-timeout={within}", "get", what]
    return captured(*command)


def _create(cluster: DevCluster, what: str, name: str) -> None:
    command = [str(cluster.kubectl), f"--kubeconfig={cluster.kubeconfig}", "create", what, name]
    subprocess.run(command, capture_output=True, check=True)


@pytest.mark.full
def test_two_clusters_are_independent_and_one_that_is_stopped_leaves_nothing(
    own: DevCluster, processes_in: ProcessesIn
) -> None:
    with devcluster.start(name="first") as first:
        assert first.url != own.url
        _create(first, "namespace", "mine")
        assert _get(first, "namespace/mine").returncode == 0
        assert "NotFound" in _get(own, "namespace/mine").stderr
        refused = captured(first.kubectl, "--kubeconfig", first.kubeconfig, "--server", own.url, "get", "namespaces")
        assert "certificate" in refused.stderr
        first.stop()
        with pytest.raises(ClusterError, match="stopped"):
            first.pause(APISERVER)
    folder = first.kubeconfig.parent.parent
    assert not folder.exists()
    assert processes_in(folder) == []


def test_a_restarted_api_server_has_the_same_port_and_data(own: DevCluster) -> None:
    _create(own, "namespace", "kept")
    before = own.pid(APISERVER)
    own.stop_apiserver()
    assert own.pid(APISERVER) is None
    assert "refused" in _get(own, "namespace/kept").stderr
    own.start_apiserver()
    assert _get(own, "namespace/kept").returncode == 0
    assert own.pid(APISERVER) not in {None, before}
    own.restart_apiserver()
    assert _get(own, "namespace/kept").returncode == 0


def test_a_paused_component_does_not_respond_until_it_is_resumed(own: DevCluster) -> None:
    own.pause(APISERVER)
    assert _get(own, "namespaces", "2s").returncode != 0
    own.resume(APISERVER)
    assert _get(own, "namespaces").returncode == 0


def test_a_component_that_dies_by_itself_is_started_again(own: DevCluster) -> None:
    before = own.pid(ETCD)
    assert before is not None
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: own.pid(ETCD) not in {None, before})
    wait_until(lambda: _get(own, "namespaces", "2s").returncode == 0)


def test_an_unknown_component_is_named_with_those_there_are(own: DevCluster) -> None:
    with pytest.raises(ClusterError, match="kube-scheduler"):
        own.pause("kubelet")


def test_a_flag_that_the_api_server_refuses_is_an_error_with_its_log() -> None:
    with (
        pytest.raises(ClusterError, match=r"(?s)exited with code \d+ during .*--no-such-flag"),
        devcluster.start(apiserver_args=["--no-such-flag"]),
    ):
        pass


@pytest.mark.parametrize(
    "victims",
    [
        ["owner"],
        pytest.param(["supervisor", "owner"], marks=pytest.mark.nightly),
        pytest.param(["supervisor"], marks=pytest.mark.nightly),
        pytest.param(["owner", "supervisor"], marks=pytest.mark.nightly),
    ],
    ids=" then ".join,
)
def test_nothing_survives_kill_9(victims: list[str], processes_in: ProcessesIn) -> None:
    with subprocess.Popen([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        kubeconfig, supervisor = owner.stdout.readline().split()
        folder = Path(kubeconfig).parent.parent
        assert len(processes_in(folder)) >= len(COMPONENTS)
        for victim in victims:
            os.kill({"owner": owner.pid, "supervisor": int(supervisor)}[victim], signal.SIGKILL)
        wait_until(lambda: processes_in(folder) == [])
        wait_until(lambda: not folder.exists())
        owner.kill()


def test_the_cluster_of_a_kubeconfig_cannot_be_controlled(own: DevCluster, tmp_path: Path) -> None:
    given = outside(own.kubeconfig, tmp_path, io.StringIO())
    assert given.kubeconfig == own.kubeconfig
    assert given.url == own.url
    assert _get(given, "namespaces").returncode == 0
    with pytest.raises(ClusterError, match="controls only its own control planes"):
        given.stop_apiserver()
    given.stop()
    assert _get(own, "namespaces").returncode == 0
