"""Flags, files and objects of a control plane and its nodes, and what a real node needs."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from runner.sdk.devcluster import containerd, kwok, node, nodes, pause, processes
from runner.sdk.devcluster.binaries import this_machine
from runner.sdk.devcluster.components import Ports, arguments, node_arguments
from runner.sdk.devcluster.layout import APISERVER, COMPONENTS, KWOK, Layout
from runner.sdk.devcluster.nodes import Nodes, choose
from runner.sdk.devcluster.supervisor import write_files
from runner.values.errors import ClusterError

_PORTS = Ports(apiserver=20001, kwok=20002)
_LAYOUT = Layout(Path('/clusters/"mine"'))


def test_containerd_reads_its_configuration() -> None:
    made = tomllib.loads(node.configuration(_LAYOUT)["containerd.toml"])
    cri = made["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["sandbox_image"] == pause.IMAGE
    assert cri["cni"]["conf_dir"] == '/clusters/"mine"/run/cni'


def test_each_cluster_has_a_cgroup() -> None:
    other = Layout(Path("/clusters/other"))
    assert re.fullmatch(r"ansible-operator-[0-9a-f]{12}", _LAYOUT.cgroup)
    assert _LAYOUT.cgroup != other.cgroup
    kubelet = yaml.safe_load(node.configuration(other)["kubelet.yaml"])
    assert kubelet["cgroupRoot"] == f"/{other.cgroup}"
    assert kubelet["tlsCertFile"] == "/clusters/other/run/kubelet.crt"


@pytest.mark.parametrize("chosen", list(Nodes))
def test_kwok_runs_only_with_a_fake_node(chosen: Nodes) -> None:
    made = arguments(_PORTS, (), chosen)
    assert set(made) == set(COMPONENTS) - (set() if chosen.has_fake else {KWOK})


def test_pods_reach_the_api_server_of_a_real_node() -> None:
    flags = arguments(_PORTS, (), Nodes.REAL)[APISERVER]
    assert f"--advertise-address={node.ADDRESS}" in flags
    assert "--endpoint-reconciler-type=none" not in flags
    assert [node.ADDRESS, "20001"] in node_arguments(_PORTS).values()


@pytest.fixture
def impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "missing", lambda _environ: "it needs root")


@pytest.mark.parametrize("user", [0, 1000])
def test_the_fake_node_is_the_default_of_each_user(user: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert choose(None, {}) is Nodes.FAKE


@pytest.mark.usefixtures("impossible")
def test_a_requested_node_that_cannot_run_is_an_error() -> None:
    with pytest.raises(ClusterError, match=r"it needs root.*--node fake"):
        choose("both", {})
    assert choose("fake", {}) is Nodes.FAKE


def _machine(monkeypatch: pytest.MonkeyPatch, installed: tuple[str, ...]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(nodes, "cgroup_problem", lambda: "")
    monkeypatch.setattr(nodes, "refusal", lambda _environ: "")
    monkeypatch.setattr(nodes, "find", lambda name, _environ: name if name in installed else None)
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path).name in installed)


@pytest.mark.skipif(sys.platform != "linux", reason="a real node needs Linux")
@pytest.mark.skipif(this_machine().machine not in pause.MACHINES, reason="not an architecture of real nodes")
def test_missing_packages_are_named_with_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = ("containerd", "ctr", "runc", "iptables", "ip", "ptp", "host-local", "portmap", "loopback")
    _machine(monkeypatch, everything)
    assert nodes.missing({}) == ""
    _machine(monkeypatch, everything[:3])
    assert nodes.missing({}).endswith("apt-get install containernetworking-plugins iproute2 iptables")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert nodes.missing({}) == "it needs root"


def _cgroup(root: Path, **files: str) -> Path:
    for name, text in files.items():
        (root / f"cgroup.{name}").write_text(text)
    return root


def test_cgroups_of_version_2_get_the_controllers_that_the_kubelet_requires(tmp_path: Path) -> None:
    _cgroup(tmp_path, controllers="cpuset cpu io memory pids\n", subtree_control="cpu memory\n", procs="1\n")
    assert nodes.cgroup_problem(tmp_path) == ""
    processes.create_cgroups("pods", tmp_path)
    assert (tmp_path / "pods").is_dir()
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpuset +pids"
    _cgroup(tmp_path, subtree_control="cpuset cpu io memory pids\n")
    processes.create_cgroups("more", tmp_path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "cpuset cpu io memory pids\n"


def test_a_container_whose_cgroup_has_processes_cannot_have_pods(tmp_path: Path) -> None:
    _cgroup(tmp_path, controllers="cpu memory\n", subtree_control="\n", procs="1\n", type="domain\n")
    assert nodes.cgroup_problem(tmp_path).startswith(f"processes in {tmp_path} prevent its cgroups")
    _cgroup(tmp_path, subtree_control="cpu memory\n")
    assert nodes.cgroup_problem(tmp_path) == ""
    _cgroup(tmp_path, subtree_control="\n", procs="")
    assert nodes.cgroup_problem(tmp_path) == ""


def test_cgroups_of_version_1_are_created_in_each_hierarchy(tmp_path: Path) -> None:
    for name in ("memory", "cpu"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").touch()
    assert nodes.cgroup_problem(tmp_path) == ""
    processes.create_cgroups("pods", tmp_path)
    assert sorted(path.parent.name for path in tmp_path.glob("*/pods")) == ["cpu", "memory"]
    (tmp_path / "memory/cgroup.procs").unlink()
    assert nodes.cgroup_problem(tmp_path).startswith("it needs cgroups with the memory controller")


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are those of Linux")
def test_a_machine_that_permits_no_namespaces_is_recognized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    denied = tmp_path / "namespaces.py"
    denied.write_text("import sys; sys.exit('unshare: Operation not permitted')")
    monkeypatch.setattr(nodes, "NAMESPACES", denied)
    assert nodes.refusal({}) == "unshare: Operation not permitted"


@pytest.mark.parametrize(
    ("name", "spellings"),
    [
        ("example.com/web:v1", {"example.com/web:v1"}),
        ("example.com/web:latest", {"example.com/web:latest", "example.com/web"}),
        ("docker.io/team/web:v1", {"docker.io/team/web:v1", "team/web:v1"}),
        (
            "docker.io/library/web:latest",
            {
                "docker.io/library/web:latest",
                "docker.io/library/web",
                "library/web:latest",
                "library/web",
                "web:latest",
                "web",
            },
        ),
    ],
)
def test_an_image_is_found_however_a_pod_writes_its_name(name: str, spellings: set[str]) -> None:
    assert set(node.image_spellings(name)) == spellings
    assert set(node.loaded_images([name])["data"]["images"].split("\n")) == spellings


def test_only_with_both_nodes_the_policy_selects_one() -> None:
    def mutations(chosen: Nodes) -> str:
        (policy,) = (obj for _, obj in node.objects(chosen) if obj["kind"] == "MutatingAdmissionPolicy")
        assert all(f"'{name}'" in policy["spec"]["variables"][1]["expression"] for name in (node.TYPE, kwok.TYPE))
        return json.dumps(policy["spec"]["mutations"])

    assert "nodeSelector" in mutations(Nodes.BOTH)
    assert "nodeSelector" not in mutations(Nodes.REAL)


def test_the_objects_of_a_real_node_have_the_paths_of_their_names() -> None:
    objects = dict(node.objects(Nodes.BOTH))
    assert all(path.endswith(f"/{obj['metadata']['name']}") for path, obj in objects.items())
    assert objects["/api/v1/persistentvolumes/volume-49"]["spec"]["local"] == {"path": "/var/lib/volumes/volume-49"}


def test_a_cluster_without_a_real_node_loads_no_images(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with pytest.raises(ClusterError, match="no cluster runs"):
        containerd.load_archive(tmp_path / "image.tar", layout)
    layout.run.mkdir()
    layout.facts.write_text(json.dumps({"name": "mine", "namespaces": None}))
    with pytest.raises(ClusterError, match=r"'mine' has no real node.*--node real"):
        containerd.load_archive(tmp_path / "image.tar", layout)


@pytest.fixture
def pause_files(tmp_path: Path) -> Mapping[str, bytes]:
    """Return the files of the image of pods' first containers."""
    pause.write(tmp_path / "pause.tar", next(iter(pause.MACHINES)))
    with tarfile.open(tmp_path / "pause.tar") as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


@pytest.mark.lengthy
@pytest.mark.skipif(sys.platform != "linux", reason="the program is one of Linux")
@pytest.mark.skipif(this_machine().machine not in pause.MACHINES, reason="the program is of another architecture")
def test_the_pause_program_waits_until_it_is_killed(pause_files: Mapping[str, bytes], tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(pause_files["layer.tar"])) as layer:
        layer.extractall(tmp_path, filter="data")
    with subprocess.Popen([tmp_path / "pause"]) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        status = Path(f"/proc/{process.pid}/status").read_text()
        ignored = re.search(r"^SigIgn:\s+([0-9a-f]+)$", status, re.MULTILINE)
        assert ignored is not None
        assert int(ignored[1], 16) & 1 << 16  # SIGCHLD, so that the kernel reaps orphans
        process.kill()


def test_nothing_listens_but_on_the_loopback_interface() -> None:
    for flags in arguments(_PORTS, ()).values():
        for flag in flags:
            name, _, value = flag.partition("=")
            if re.search(r"bind|listen|server-address|advertise-address", name):
                assert value.startswith(("127.0.0.1", "unix://")), flag
            if name == "--secure-port":
                assert value in {"0", "20001"}


def test_added_flags_of_the_api_server_come_last_so_that_they_win() -> None:
    flags = arguments(_PORTS, ("--min-request-timeout=5",))
    assert flags[APISERVER][-1] == "--min-request-timeout=5"
    assert not any("--min-request-timeout=5" in flags[name] for name in COMPONENTS if name != APISERVER)


def test_the_node_is_waited_for_longer_than_kwok_lets_it_be_silent() -> None:
    # kwok 0.7's stage `node-heartbeat-with-lease`: 600 s, up to 610 s with its jitter. It is used where no lease is.
    silent = 610
    (grace,) = [flag for flag in arguments(_PORTS, ())["kube-controller-manager"] if "node-monitor-grace" in flag]
    hours = re.fullmatch(r"--node-monitor-grace-period=(\d+)h", grace)
    assert hours is not None
    assert int(hours[1]) * 3600 > 10 * silent


def test_the_name_of_containers_for_commands_cannot_be_guessed_and_is_valid(tmp_path: Path) -> None:
    names = set()
    for number in range(3):
        layout = Layout(tmp_path / str(number))
        layout.run.mkdir(parents=True)
        write_files(layout, "mine", "https://127.0.0.1:20001")
        names.add(layout.exec_container.read_text())
    assert len(names) == 3
    assert all(re.fullmatch(r"exec-[0-9a-f]{32}", name) for name in names)
