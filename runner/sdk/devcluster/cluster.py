"""Control planes started from Python: start, control of components, stop.

The supervisor process runs the components; this module starts it and sends it commands. A `DevCluster` is thread-safe.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, TextIO

from runner.sdk.devcluster import binaries, containerd, kubeconfig, kwok
from runner.sdk.devcluster.api import Api
from runner.sdk.devcluster.binaries import Toolset
from runner.sdk.devcluster.downloads import Downloads, open_url
from runner.sdk.devcluster.gobuild import GoBuild
from runner.sdk.devcluster.layout import APISERVER, COMPONENTS, CONTAINERD, NODE_COMPONENTS, Layout
from runner.sdk.devcluster.nodes import Nodes, choose, find
from runner.sdk.devcluster.orders import StartOrder
from runner.sdk.devcluster.progress import Progress
from runner.values.errors import ClusterError, OperatorError

_ENDS_WITHIN = 20.0
_LAST_LINES = 15


@dataclass(slots=True)
class Supervised:
    """Control of a cluster whose supervisor is a child process."""

    process: subprocess.Popen[str]
    stdin: IO[str]
    stdout: IO[str]
    log: IO[str]
    facts: Mapping[str, Any] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def order(self, do: str, component: str) -> int | None:
        """Send a command and wait until it is executed."""
        components = (*COMPONENTS, *NODE_COMPONENTS)
        if component not in components:
            raise ClusterError(f"unknown component {component!r}; the components are {', '.join(components)}")
        pid: int | None = self.send({"do": do, "component": component})["pid"]
        return pid

    def send(self, order: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send one line and return the response. Raises ClusterError."""
        with self._turn:
            try:
                self.stdin.write(json.dumps(order) + "\n")
                self.stdin.flush()
            except (BrokenPipeError, ValueError) as error:
                raise ClusterError("the cluster was stopped; start a new one") from error
            return self.answer()

    def answer(self) -> Mapping[str, Any]:
        """Read the next response."""
        line = self.stdout.readline()
        if not line:
            code = self.process.wait()
            self.log.seek(0)
            said = "".join(f"  {said}" for said in self.log.readlines()[-_LAST_LINES:])
            raise ClusterError(f"the cluster's supervisor exited unexpectedly with code {code}; its log ends:\n{said}")
        values: Mapping[str, Any] = json.loads(line)
        if "error" in values:
            raise ClusterError(values["error"])
        return values

    def api(self) -> Api:
        """Return a client with the administrator's certificate."""
        return Api.from_run_folder(Path(self.facts["run"]), self.facts["port"])

    def layout(self) -> Layout:
        """Return the paths of the cluster."""
        return Layout(Path(self.facts["run"]).parent)

    def stop(self) -> None:
        """Close the pipe, which stops the supervisor."""
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        try:
            self.process.wait(_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()  # its guard kills the components
            self.process.wait()
        self.stdout.close()
        self.log.close()


@dataclass(frozen=True, slots=True)
class ExternalCluster:
    """A cluster that this program did not start; every command raises ClusterError."""

    kubeconfig: Path

    def order(self, do: str, component: str) -> int | None:
        """Raise ClusterError."""
        raise self._refusal(f"{do} {component}")

    def api(self) -> Api:
        """Raise ClusterError."""
        raise self._refusal("answer for a pod")

    def layout(self) -> Layout:
        """Return the paths of a cluster of `cluster up`. Raises ClusterError if the cluster has another origin."""
        layout = Layout(self.kubeconfig.parent.parent)
        if not layout.facts.exists():
            raise self._refusal("use its files")
        return layout

    def stop(self) -> None:
        """Do nothing."""

    def _refusal(self, what: str) -> ClusterError:
        return ClusterError(
            f"cannot {what}: this program did not start the cluster of {self.kubeconfig}, "
            "and controls only its own control planes",
        )


@dataclass(frozen=True, slots=True)
class DevCluster:
    """A running control plane.

    `kubeconfig` is the administrator's. `kubectl` is a compatible kubectl. `logs` is the folder of the components'
    logs. Components are named as in `layout.COMPONENTS`: etcd, kube-apiserver, kube-controller-manager, kube-scheduler,
    kwok.
    """

    kubeconfig: Path
    url: str
    kubectl: Path
    logs: Path
    control: Supervised | ExternalCluster = field(repr=False)

    @property
    def exec_container(self) -> str:
        """Name of containers on the fake node in which `kubectl exec` runs commands, on this machine as this user.

        It is a secret, because kwok's port requires no other authentication. No command runs in other containers.
        """
        return self.control.layout().exec_container.read_text(encoding="utf-8")

    def stop(self) -> None:
        """Stop all processes and delete all data."""
        self.control.stop()

    def pid(self, component: str) -> int | None:
        """Return the component's process id, None if it is stopped."""
        return self.control.order("look", component)

    def stop_apiserver(self) -> None:
        """Kill the API server, as in a crash: clients lose their connections."""
        self.control.order("stop", APISERVER)

    def start_apiserver(self) -> None:
        """Start the API server with the same port and data, and wait until it is ready."""
        self.control.order("start", APISERVER)

    def restart_apiserver(self) -> None:
        """Stop and start the API server."""
        self.stop_apiserver()
        self.start_apiserver()

    def pause(self, component: str) -> None:
        """Pause a component: connections stay open without responses."""
        self.control.order("pause", component)

    def resume(self, component: str) -> None:
        """Resume a paused component."""
        self.control.order("resume", component)

    def set_pod_logs(self, namespace: str, pod: str, file: Path) -> None:
        """Set the log file of a pod; its lines must have the format of `kwok.log_line`.

        `kubectl attach` shows lines that are appended. kwok uses the file after some milliseconds; the pod need not
        exist yet.
        """
        for obj in (kwok.pod_logs(namespace, pod, file), kwok.pod_attach(namespace, pod, file)):
            self._apply_kwok(namespace, pod, obj)

    def set_pod_port(self, namespace: str, pod: str, port: int, target: int) -> None:
        """Forward a pod's port (for `kubectl port-forward`) to a port on this machine's loopback interface.

        This has no effect in a cluster with a real node: its network namespace has a separate loopback interface.
        """
        self._apply_kwok(namespace, pod, kwok.pod_port(namespace, pod, port, target))

    def load(self, archive: Path) -> list[str]:
        """Import a Docker or OCI archive into the real node; return the names of its images."""
        return containerd.load_archive(archive, self.control.layout())

    def _apply_kwok(self, namespace: str, pod: str, obj: Mapping[str, Any]) -> None:
        plural = kwok.KINDS[obj["kind"]]
        self.control.api().apply(f"/apis/{kwok.GROUP_VERSION}/namespaces/{namespace}/{plural}/{pod}", obj)


@contextlib.contextmanager
def start(
    *,
    name: str = "dev",
    apiserver_args: Sequence[str] = (),
    logs: Path | None = None,
    nodes: str = Nodes.FAKE,
    progress: TextIO = sys.stderr,
) -> Iterator[DevCluster]:
    """Run a control plane until the context or this process ends.

    `apiserver_args` are added to kube-apiserver's flags. `logs` is a folder to which the logs are copied at the end;
    without it they are deleted. `nodes` is `fake`, `real` or `both`, as in `ansible-operator cluster up --node`. Raises
    ClusterError if a program is missing, this machine cannot run a real node, or a component does not start.
    """
    chosen = choose(nodes, os.environ)
    folder = Path(tempfile.mkdtemp(prefix=f"ansible-operator-{name}-"))
    try:
        supervised = launch(
            folder, name=name, apiserver_args=apiserver_args, keep_logs=False, nodes=chosen, progress=progress
        )
        try:
            yield running(supervised)
        finally:
            if logs is not None:
                shutil.copytree(Layout(folder).logs, logs, dirs_exist_ok=True)
            supervised.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # exists only if the supervisor did not start


def launch(
    folder: Path,
    *,
    name: str,
    apiserver_args: Sequence[str],
    keep_logs: bool,
    nodes: Nodes = Nodes.FAKE,
    progress: TextIO,
) -> Supervised:
    """Start a supervisor for a folder and wait until its control plane is ready."""
    programs = get_programs(os.environ, progress, nodes)
    layout = Layout(folder)
    layout.logs.mkdir(parents=True, exist_ok=True)
    log = layout.log("supervisor").open("a+", encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "runner.sdk.devcluster.supervisor"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        start_new_session=True,  # Ctrl-C goes only to this process, which stops the cluster
    )
    if process.stdin is None or process.stdout is None:  # pragma: no cover - for the type checker; PIPE is set
        raise AssertionError
    supervised = Supervised(process, process.stdin, process.stdout, log)
    paths = {program: str(path) for program, path in programs.items()}
    order = StartOrder(name, str(folder), paths, apiserver_args, keep_logs, nodes)
    try:
        supervised.facts = supervised.send(asdict(order))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            progress.write("Stopping the control plane, which was starting, and deleting its data …\n")
            progress.flush()
        supervised.stop()
        raise
    return supervised


def running(supervised: Supervised) -> DevCluster:
    """Return the cluster of a supervisor that has reported it ready."""
    facts = supervised.facts
    return DevCluster(
        kubeconfig=Path(facts["kubeconfig"]),
        url=facts["url"],
        kubectl=Path(facts["kubectl"]),
        logs=Path(facts["logs"]),
        control=supervised,
    )


def outside(path: Path, logs: Path, progress: TextIO) -> DevCluster:
    """Return the cluster of a kubeconfig, which this program did not start."""
    kubectl = Path(shutil.which("kubectl") or get_programs(os.environ, progress)["kubectl"])
    _, url = kubeconfig.current(path)
    return DevCluster(kubeconfig=path, url=url, kubectl=kubectl, logs=logs, control=ExternalCluster(path))


def get_programs(environ: Mapping[str, str], progress: TextIO, nodes: Nodes = Nodes.FAKE) -> Mapping[str, Path]:
    """Return the programs of the control plane and the nodes; download or build missing ones."""
    programs = dict(_provide(environ, progress, binaries.CONTROL_PLANE))
    if nodes.has_real:
        programs |= _provide(environ, progress, binaries.NODE_KIT)
        programs[CONTAINERD] = Path(find(CONTAINERD, environ) or CONTAINERD)
    return programs


def find_kubectl(environ: Mapping[str, str]) -> Path | None:
    """Return the kubectl in PATH or of an installed control plane; None if there is none."""
    kubectl = shutil.which("kubectl", path=environ.get("PATH"))
    return (
        Path(kubectl)
        if kubectl
        else binaries.find(environ, binaries.this_machine(), binaries.CONTROL_PLANE).get("kubectl")
    )


def run_kubectl(kubectl: str | Path, environ: Mapping[str, str], *arguments: str, given: str | None = None) -> str:
    """Run kubectl with `given` as its input, and return its output. Raises OperatorError if it fails."""
    command = [str(kubectl), *arguments]
    done = subprocess.run(command, input=given, env=environ, check=False, text=True, capture_output=True)
    if done.returncode:
        raise OperatorError(f"`kubectl {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return done.stdout


def _provide(environ: Mapping[str, str], progress: TextIO, kit: Toolset) -> Mapping[str, Path]:
    logs = binaries.cache_folder(environ, binaries.this_machine(), kit)
    sources = (Downloads(open_url), GoBuild(environ, logs))
    return binaries.provide(environ, sources, Progress(progress), kit)
