"""Start a control plane from Python, and what can be done with it.

Owns the owner's side of a supervisor: starting it, giving orders, ending it. Threads may share a `DevCluster`.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol, TextIO

from runner.config import atomic_file
from runner.devcluster import binaries, kubeconfig, kwok
from runner.devcluster.api import Api
from runner.devcluster.binaries import Toolset
from runner.devcluster.downloads import Downloads, open_url
from runner.devcluster.gobuild import GoBuild
from runner.devcluster.layout import APISERVER, COMPONENTS, Layout
from runner.devcluster.orders import StartOrder
from runner.devcluster.progress import Progress
from runner.errors import ClusterError

_ENDS_WITHIN = 20.0
_LAST_LINES = 15


class ClusterControl(Protocol):
    """Who carries out orders on a cluster's components."""

    def order(self, do: str, component: str) -> int | None:
        """Do it; return the component's process id afterwards."""

    def api(self) -> Api:
        """Return a way to ask the API server as the administrator."""

    def stop(self) -> None:
        """End the cluster. A second time does nothing."""


@dataclass(frozen=True, slots=True)
class DevCluster:
    """A running control plane.

    `kubeconfig` is an administrator's; `kubectl` a kubectl that fits; `logs` the folder of the components' logs.
    Components are named as in `layout.COMPONENTS`: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok.
    """

    kubeconfig: Path
    url: str
    kubectl: Path
    logs: Path
    control: ClusterControl = field(repr=False)

    def stop(self) -> None:
        """End all processes and remove all data."""
        self.control.stop()

    def pid(self, component: str) -> int | None:
        """Return the component's process id, None while it is down."""
        return self.control.order("look", component)

    def stop_apiserver(self) -> None:
        """Take the API server away at once, as a crash does: clients see their connections end."""
        self.control.order("stop", APISERVER)

    def start_apiserver(self) -> None:
        """Bring the API server back, on the same port and data; returns when it is ready."""
        self.control.order("start", APISERVER)

    def restart_apiserver(self) -> None:
        """Stop and start it."""
        self.stop_apiserver()
        self.start_apiserver()

    def pause(self, component: str) -> None:
        """Freeze a component: connections stay open and nothing is answered."""
        self.control.order("pause", component)

    def resume(self, component: str) -> None:
        """Let it go on."""
        self.control.order("resume", component)

    def set_pod_logs(self, namespace: str, pod: str, file: Path) -> None:
        """Name the file that is a pod's log; its lines must have the form of `kwok.log_line`.

        `kubectl attach` shows the lines that are added to it. kwok learns of it some milliseconds later; the pod need
        not exist yet.
        """
        for made in (kwok.pod_logs(namespace, pod, file), kwok.pod_attach(namespace, pod, file)):
            self._speak(namespace, pod, made)

    def set_pod_port(self, namespace: str, pod: str, port: int, target: int) -> None:
        """Lead a pod's port (for `kubectl port-forward`) to a port on this machine's loopback interface."""
        self._speak(namespace, pod, kwok.pod_port(namespace, pod, port, target))

    def _speak(self, namespace: str, pod: str, made: Mapping[str, Any]) -> None:
        plural = kwok.KINDS[made["kind"]]
        self.control.api().apply(f"/apis/{kwok.GROUP_VERSION}/namespaces/{namespace}/{plural}/{pod}", made)


@dataclass(slots=True)
class Supervised:
    """Control over a cluster whose supervisor is our child."""

    process: subprocess.Popen[str]
    stdin: IO[str]
    stdout: IO[str]
    log: IO[str]
    facts: Mapping[str, Any] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def order(self, do: str, component: str) -> int | None:
        """Send an order and wait until it is carried out."""
        if component not in COMPONENTS:
            raise ClusterError(f"unknown component {component!r}; the components are {', '.join(COMPONENTS)}")
        pid: int | None = self.ask({"do": do, "component": component})["pid"]
        return pid

    def ask(self, order: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send one line, return the answer. Raises ClusterError if there is none."""
        with self._turn:
            try:
                self.stdin.write(json.dumps(order) + "\n")
                self.stdin.flush()
            except (BrokenPipeError, ValueError) as error:
                raise ClusterError("the cluster was stopped; start a new one") from error
            return self.answer()

    def answer(self) -> Mapping[str, Any]:
        """Read the next answer."""
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
        """Use the administrator's certificate."""
        return Api.from_run_folder(Path(self.facts["run"]), self.facts["port"])

    def stop(self) -> None:
        """Close the pipe: that is the supervisor's signal to end."""
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        try:
            self.process.wait(_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()  # its guard does the rest
            self.process.wait()
        self.stdout.close()
        self.log.close()


@dataclass(frozen=True, slots=True)
class ExternalCluster:
    """Control over a cluster that somebody else runs: none."""

    kubeconfig: Path

    def order(self, do: str, component: str) -> int | None:
        """Refuse."""
        raise self._refusal(f"{do} {component}")

    def api(self) -> Api:
        """Refuse."""
        raise self._refusal("answer for a pod")

    def stop(self) -> None:
        """Leave it as it is: who started it ends it."""

    def _refusal(self, what: str) -> ClusterError:
        return ClusterError(
            f"cannot {what}: the cluster of {self.kubeconfig} was not started by this program; "
            "unset KUBECONFIG to start a control plane with components that can be controlled",
        )


@contextlib.contextmanager
def start(
    *,
    name: str = "dev",
    apiserver_args: Sequence[str] = (),
    logs: Path | None = None,
    progress: TextIO = sys.stderr,
) -> Iterator[DevCluster]:
    """Run a control plane as long as the context lasts, at most as long as this process lives.

    `apiserver_args` are added to kube-apiserver's flags. `logs` is a folder that gets a copy of the logs at the end;
    else they go with the cluster. Raises ClusterError if a program cannot be had or a component does not start.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"ansible-operator-{name}-"))
    try:
        supervised = launch(folder, name=name, apiserver_args=apiserver_args, keep_logs=False, progress=progress)
        try:
            yield running(supervised)
        finally:
            if logs is not None:
                shutil.copytree(Layout(folder).logs, logs, dirs_exist_ok=True)
            supervised.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # there only if the supervisor never started


def launch(
    folder: Path,
    *,
    name: str,
    apiserver_args: Sequence[str],
    keep_logs: bool,
    progress: TextIO,
) -> Supervised:
    """Start a supervisor for this folder and wait until its control plane is ready."""
    programs = get_programs(os.environ, progress)
    layout = Layout(folder)
    layout.logs.mkdir(parents=True, exist_ok=True)
    log = layout.log("supervisor").open("a+", encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "runner.devcluster.supervisor"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        start_new_session=True,  # Ctrl-C in a terminal is for the owner, who ends the cluster in order
    )
    if process.stdin is None or process.stdout is None:  # pragma: no cover - for the type checker; PIPE was asked for
        raise AssertionError
    supervised = Supervised(process, process.stdin, process.stdout, log)
    order = StartOrder(name, str(folder), {k: str(v) for k, v in programs.items()}, tuple(apiserver_args), keep_logs)
    try:
        supervised.stdin.write(order.to_json())
        supervised.stdin.flush()
        supervised.facts = supervised.answer()
    except BaseException:
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


def outside(given: str, folder: Path, progress: TextIO) -> DevCluster:
    """Return the cluster that KUBECONFIG names; `folder` is where several files are merged into one."""
    kubectl = Path(shutil.which("kubectl") or get_programs(os.environ, progress)["kubectl"])
    path = Path(given)
    if os.pathsep in given:
        command = [str(kubectl), "config", "view", "--raw", "--flatten"]
        merged = subprocess.run(command, env={**os.environ, "KUBECONFIG": given}, capture_output=True, check=True)
        path = folder / "kubeconfig"
        atomic_file.write(path, merged.stdout)
    return DevCluster(
        kubeconfig=path,
        url=kubeconfig.current_server(path),
        kubectl=kubectl,
        logs=folder,
        control=ExternalCluster(path),
    )


def get_programs(environ: Mapping[str, str], progress: TextIO) -> Mapping[str, Path]:
    """Return the control plane's programs, got in one of the known ways."""
    return _provide(environ, progress, binaries.CONTROL_PLANE)


def find_kubectl(environ: Mapping[str, str]) -> Path | None:
    """Return the kubectl in PATH, else the control plane's where that is on this machine; nothing is got for it."""
    found = shutil.which("kubectl", path=environ.get("PATH"))
    return (
        Path(found) if found else binaries.find(environ, binaries.this_machine(), binaries.CONTROL_PLANE).get("kubectl")
    )


def get_helm(environ: Mapping[str, str], progress: TextIO) -> Path:
    """Return a helm client: the one in PATH, else one that is got like the control plane's programs."""
    found = shutil.which("helm", path=environ.get("PATH"))
    return Path(found) if found else _provide(environ, progress, binaries.HELM_KIT)["helm"]


def get_actionlint(environ: Mapping[str, str], progress: TextIO) -> Path:
    """Return the linter of GitHub's workflows: the one in PATH, else one that is built."""
    found = shutil.which("actionlint", path=environ.get("PATH"))
    return Path(found) if found else _provide(environ, progress, binaries.ACTIONLINT_KIT)["actionlint"]


def _provide(environ: Mapping[str, str], progress: TextIO, kit: Toolset) -> Mapping[str, Path]:
    logs = binaries.cache_folder(environ, binaries.this_machine(), kit)
    sources = (Downloads(open_url), GoBuild(environ, logs))
    return binaries.provide(environ, sources, Progress(progress), kit)
