"""A real node: pods that run, their network, and everything that must be gone when the cluster is."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TextIO

import pytest

from runner.sdk import devcluster
from runner.sdk.devcluster import DevCluster, binaries, containerd, kwok, node, pause
from runner.sdk.devcluster import cluster as launching
from runner.sdk.devcluster.layout import KUBELET, Layout
from runner.sdk.devcluster.nodes import Nodes
from tests.kit.cluster import Kubectl, kubectl_of
from tests.kit.images import node_hindrance
from tests.kit.wait import patience, wait_until

_IMAGE, _LATEST = "example.com/tools:1", "example.com/tools"
pytestmark = [
    pytest.mark.skipif(bool(why := node_hindrance()), reason=why),
    pytest.mark.xdist_group("real-node"),
]
_COMMANDS = ("sh", "cat", "dd", "echo", "env", "head", "httpd", "mkdir", "nslookup", "sleep", "tar", "touch", "wget")
_SERVE = "mkdir -p /www; echo hello > /www/index.html; echo serving; exec httpd -f -p 8080 -h /www"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image with a static busybox under the names of its commands."""
    busybox = Path("/usr/bin/busybox").read_bytes()
    script = '#!/bin/busybox sh\nexec /bin/busybox {} "$@"\n'
    files = {f"bin/{name}": (script.format(name).encode(), 0o755) for name in _COMMANDS if name != "sh"}
    files["bin/busybox"] = files["bin/sh"] = (busybox, 0o755)
    machine = binaries.this_machine().machine
    made = pause.docker_archive([_IMAGE, f"{_LATEST}:latest"], pause.tar(files), {"Env": ["PATH=/bin"]}, machine)
    path = tmp_path_factory.mktemp("images") / "tools.tar"
    path.write_bytes(made)
    return path


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A kubelet that exits at its first start. That of 1.35 can panic then on a busy machine."""
    folder, programs = tmp_path_factory.mktemp("kubelet"), launching.get_programs

    def with_fragile(environ: Mapping[str, str], progress: TextIO, nodes: Nodes = Nodes.FAKE) -> Mapping[str, Path]:
        found = programs(environ, progress, nodes)
        program, began = folder / KUBELET, folder / "began"
        program.write_text(f'#!/bin/sh\n[ -e {began} ] || {{ touch {began}; exit 2; }}\nexec {found[KUBELET]} "$@"\n')
        program.chmod(0o755)
        return {**found, KUBELET: program}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launching, "get_programs", with_fragile)
        yield


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, archive: Path, fragile: None) -> Iterator[DevCluster]:
    """A cluster with a real and a fake node, whose kubelet exited once while it started."""
    with devcluster.start(name="both", nodes="both", logs=tmp_path_factory.mktemp("logs")) as cluster:
        assert "restarting it" in (cluster.logs / "supervisor.log").read_text()
        assert sorted(cluster.load(archive)) == [_IMAGE, f"{_LATEST}:latest"]
        used = _namespaces(cluster.control.layout())
        yield cluster
    assert _traces(cluster.control.layout().folder, used) == []


@pytest.fixture(scope="module")
def kubectl(both: DevCluster) -> Kubectl:
    return kubectl_of(both)


def _pod(name: str, script: str = _SERVE, *, image: str = _IMAGE, **spec: object) -> str:
    """Return a pod as JSON; `container` in `spec` are more fields of its container."""
    container = {"name": "main", "image": image, "command": ["sh", "-c", script]}
    more = spec.pop("container", {})
    assert isinstance(more, dict)
    full = {"terminationGracePeriodSeconds": 0, "containers": [{**container, **more}], **spec}
    metadata = {"name": name, "labels": {"app": name}}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": full})


@pytest.fixture(scope="module")
def web(kubectl: Kubectl, both: DevCluster) -> str:
    """Return the name of a pod that serves a page, behind the Service `site`."""
    tools = {"name": "tools", "hostPath": {"path": str(both.kubectl.parent)}}
    mounted = {"volumeMounts": [{"name": "tools", "mountPath": "/tools"}]}
    kubectl("apply", "-f", "-", stdin=_pod("web", container=mounted, volumes=[tools]))
    kubectl("expose", "pod", "web", "--name=site", "--port=80", "--target-port=8080")
    kubectl.wait("pod/web", "--for=condition=Ready")
    return "web"


def _where(kubectl: Kubectl, pod: str) -> str:
    return kubectl("get", "pod", pod, "--output=jsonpath={.spec.nodeName}")


@pytest.mark.full
def test_a_pod_answers_other_pods_at_its_service(kubectl: Kubectl, web: str) -> None:
    assert _where(kubectl, web) == node.NODE

    def fetch(name: str) -> str:
        return kubectl.run("exec", web, "--", "wget", "-q", "-O-", f"http://{name}/", check=False).stdout

    wait_until(lambda: fetch("site") == "hello\n")  # a moment passes until kube-proxy has written its rules
    assert fetch("site.default.svc.cluster.local") == "hello\n"
    assert fetch("nothing.default.svc") == ""


def test_a_pod_reaches_the_api_server_with_its_service_account(kubectl: Kubectl, web: str) -> None:
    token = "/var/run/secrets/kubernetes.io/serviceaccount"
    script = (
        f"/tools/kubectl --server=https://kubernetes.default.svc --certificate-authority={token}/ca.crt "
        f"--token=$(cat {token}/token) auth whoami --output=jsonpath={{.status.userInfo.username}}"
    )
    assert kubectl("exec", web, "--", "sh", "-c", script) == "system:serviceaccount:default:default"
    refused = kubectl.run("exec", web, "--", "/tools/kubectl", "get", "pods", check=False)
    assert "Forbidden" in refused.stderr


def test_names_of_headless_services_are_those_of_their_pods(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=_pod("member", hostname="first", subdomain="team"))
    kubectl("create", "service", "clusterip", "team", "--clusterip=None", "--tcp=8080")
    kubectl("set", "selector", "service/team", "app=member")
    kubectl.wait("pod/member", "--for=condition=Ready")
    address = kubectl("get", "pod", "member", "--output=jsonpath={.status.podIP}")
    for name in ("team.default.svc.cluster.local", "first.team.default.svc.cluster.local"):
        wait_until(
            lambda name=name: (  # type: ignore[misc]
                address in kubectl.run("exec", "member", "--", "nslookup", name, check=False).stdout
            )
        )


def test_logs_of_a_pod_are_those_of_its_container(kubectl: Kubectl, web: str) -> None:
    assert kubectl("logs", web) == "serving\n"


def test_a_command_in_a_pod_gets_input_and_reports_its_exit_code(kubectl: Kubectl, web: str) -> None:
    assert kubectl("exec", "-i", web, "--", "cat", stdin="line\n") == "line\n"
    assert kubectl.run("exec", web, "--", "sh", "-c", "exit 7", check=False).returncode == 7


def test_a_port_of_a_service_is_forwarded_to_this_machine(kubectl: Kubectl, web: str) -> None:
    assert web
    with kubectl.start("port-forward", "service/site", ":80", "--address=127.0.0.1") as forwarding:
        assert forwarding.stdout is not None
        match = re.search(r"127\.0\.0\.1:(\d+)", forwarding.stdout.readline())
        assert match
        with urllib.request.urlopen(f"http://127.0.0.1:{match[1]}/", timeout=patience()) as answer:
            assert answer.read() == b"hello\n"


def test_a_restricted_pod_writes_to_a_volume_that_outlives_it(kubectl: Kubectl) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    made = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": claim}
    kubectl("apply", "-f", "-", stdin=json.dumps(made))
    restricted = {
        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    profile = {"type": "RuntimeDefault"}
    for name, script in (("writes", "echo kept > /data/file"), ("reads", "cat /data/file")):
        pod = _pod(
            name,
            script,
            container=restricted,
            restartPolicy="Never",
            securityContext={"runAsUser": 1000, "runAsNonRoot": True, "fsGroup": 1000, "seccompProfile": profile},
            volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        )
        kubectl("apply", "-f", "-", stdin=pod)
        kubectl.wait(f"pod/{name}", "--for=jsonpath={.status.phase}=Succeeded")
    assert kubectl("logs", "reads") == "kept\n"


def test_pods_of_unknown_images_are_simulated(kubectl: Kubectl) -> None:
    kubectl("run", "simulated", "--image=nginx")
    kubectl.wait("pod/simulated", "--for=condition=Ready")
    assert _where(kubectl, "simulated") == kwok.NODE
    assert kubectl("logs", "simulated") == f"{kwok.NO_LOG}\n"
    assert "no exec" in kubectl.run("exec", "simulated", "--", "true", check=False).stderr


def test_a_label_selects_the_node_whatever_the_image(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=_pod("to-fake", nodeSelector={"type": "kwok"}))
    kubectl("apply", "-f", "-", stdin=_pod("to-real", image="nginx", nodeSelector={"type": "real"}))
    kubectl.wait("pod/to-fake", "--for=condition=Ready")
    assert _where(kubectl, "to-fake") == kwok.NODE
    path = "--output=jsonpath={.status.containerStatuses[0].state.waiting.reason}"
    wait_until(lambda: kubectl("get", "pod", "to-real", path) in {"ErrImagePull", "ImagePullBackOff"})
    assert _where(kubectl, "to-real") == node.NODE


def test_a_loaded_image_with_the_tag_latest_is_not_pulled(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=_pod("latest", image=_LATEST, container={"imagePullPolicy": "Always"}))
    kubectl.wait("pod/latest", "--for=condition=Ready")
    assert _where(kubectl, "latest") == node.NODE


def test_the_kubelet_can_be_paused_and_restarted(both: DevCluster, kubectl: Kubectl, web: str) -> None:
    both.control.order("stop", KUBELET)
    assert both.pid(KUBELET) is None
    both.control.order("start", KUBELET)
    assert both.pid(KUBELET) is not None
    kubectl.wait(f"pod/{web}", "--for=condition=Ready")


def test_only_the_port_of_the_api_server_is_open_on_this_machine(both: DevCluster, web: str) -> None:
    assert web
    supervisor = int((both.logs.parent / "lock").read_text())
    port = int(both.url.rpartition(":")[2])
    assert _listening(_descendants(supervisor)) == {("0100007F", port)}


def _descendants(of: int) -> set[int]:
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, before = {of}, 0
    while len(found) > before:
        before = len(found)
        found |= {child for child, parent in parents.items() if parent in found}
    return found


def _arguments(process: int) -> list[bytes]:
    """Return the arguments of a process; none if it has ended, as many of a node do soon."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _listening(processes: set[int]) -> set[tuple[str, int]]:
    """Return addresses and ports in this network namespace on which these processes listen."""
    sockets = set()
    for process in processes:
        for descriptor in Path(f"/proc/{process}/fd").glob("*"):
            try:
                sockets.add(str(descriptor.readlink()))
            except OSError:
                continue
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if f"socket:[{rest[5]}]" in sockets and state in {"0A", "07"}:
                address, port = local.split(":")
                found.add((address, int(port, 16)))
    return found


def _traces(folder: Path, namespaces: set[str]) -> list[str]:
    """Return what a cluster has left on this machine."""
    cgroup = Layout(folder).cgroup
    found = [str(path) for path in (*Path("/sys/fs/cgroup").glob(cgroup), *Path("/sys/fs/cgroup").glob(f"*/{cgroup}"))]
    found += [line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            joined = {str((process / "ns" / name).readlink()) for name in ("net", "mnt", "pid")}
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            groups = (process / "cgroup").read_text()
        except OSError:
            continue
        # The kernel reuses the number of a namespace that is gone, for example for a build of an image.
        is_inside = len(joined & namespaces) > 1
        if is_inside or str(folder) in command or cgroup in groups:
            found.append(f"process {process.name}: {command}")
    return found


def _namespaces(layout: Layout) -> set[str]:
    folder = Path("/proc", str(json.loads(layout.facts.read_text())["namespaces"]), "ns")
    return {str((folder / name).readlink()) for name in ("net", "mnt", "pid_for_children")}


def _host() -> set[str]:
    commands = ("ip -brief link", "ip netns", "iptables-save")
    output = [subprocess.check_output(shlex.split(command), text=True) for command in commands]
    # Counters and comments with the time change by themselves, and the state of other interfaces may.
    # Interfaces of SSH hosts are those of other tests, which may run at the same time.
    return {
        line.split()[0] if index == 0 else line
        for index, text in enumerate(output)
        for line in text.splitlines()
        if not line.startswith(("#", ":")) and not re.match(r"ssh\d+-\d+\b", line)
    }


@pytest.mark.nightly
def test_nothing_remains_after_kill_9(tmp_path: Path, archive: Path) -> None:
    """CI shows that a regular end leaves nothing, and without a real node what is left after a kill."""
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    layout = Layout(tmp_path / "ansible-operator" / "clusters" / "default")
    before = _host()

    def command(*arguments: str) -> str:
        program = [sys.executable, "-m", "runner", "cluster", *arguments]
        return subprocess.run(
            program, env=environ, capture_output=True, text=True, check=True, timeout=patience()
        ).stdout

    def start() -> set[str]:
        assert "is ready" in command("up", "--node=real")
        kubectl = [json.loads(layout.facts.read_text())["kubectl"], "--kubeconfig", str(layout.kubeconfig)]
        containerd.load_archive(archive, layout)
        subprocess.run([*kubectl, "apply", "-f", "-"], input=_pod("web"), text=True, check=True)
        subprocess.run(
            [*kubectl, "wait", "pod/web", "--for=condition=Ready", f"--timeout={patience():.0f}s"], check=True
        )
        used = _namespaces(layout)
        assert any("httpd" in trace for trace in _traces(layout.folder, used))
        assert _host() == before
        return used

    used = start()
    os.kill(int(layout.lock.read_text()), signal.SIGKILL)
    wait_until(lambda: _traces(layout.folder, used) == [])
    wait_until(lambda: not layout.run.exists())

    used = start()
    supervisor = int(layout.lock.read_text())
    (guard,) = (each for each in _descendants(supervisor) if b"guard" in _arguments(each))
    for process in (guard, supervisor):  # without the guard, cgroups and files remain until the next command
        os.kill(process, signal.SIGKILL)
    wait_until(lambda: all(trace.startswith("/sys/fs/cgroup/") for trace in _traces(layout.folder, used)))
    command("down")
    assert _traces(layout.folder, used) == []
    assert not layout.run.exists()
    assert _host() == before
