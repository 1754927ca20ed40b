"""Supervisor process of a control plane: starts and restarts components, executes commands, cleans up.

Flow: read the start command from standard input (one JSON line), start all components, and respond with one JSON line.
Then execute further commands, one per line, until standard input ends or SIGTERM arrives; then kill all processes and
delete the files. The process has one thread, and checks its parent in every wait.

Guarantees: when the parent process exits, the cluster is stopped, unless the command `detach` was received. A component
that exits unexpectedly is restarted with backoff. A second supervisor in the same folder does not start.

Must not import the command line or the parts that build binaries. It runs as
`python -P -m runner.sdk.devcluster.supervisor`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from runner.base import log, pki
from runner.base.config import atomic_file, locks
from runner.sdk.devcluster import containerd, kubeconfig, kwok, node, pause, ports, templates
from runner.sdk.devcluster.api import Api
from runner.sdk.devcluster.binaries import this_machine
from runner.sdk.devcluster.components import SERVER_NAMES, Ports, arguments, node_arguments
from runner.sdk.devcluster.layout import (
    APISERVER,
    CONTAINERD,
    CONTROLLERS,
    DNS,
    ETCD,
    KUBELET,
    KWOK,
    NAMESPACES,
    PROXY,
    RELAY,
    SCHEDULER,
    Layout,
)
from runner.sdk.devcluster.leash import ENTER, JOIN
from runner.sdk.devcluster.nodes import Nodes
from runner.sdk.devcluster.orders import ParentGoneError, ParentProcess, StartOrder
from runner.sdk.devcluster.processes import Component, Guard, create_cgroups, leashed, remove_cgroups
from runner.values.errors import ClusterError

_READY_WITHIN = 120.0  # seconds, on a machine with a high load
_POLL = 0.02
_TICK = 0.25
_KWOK_TRIES = 5
_KUBELET_RESTARTS = 2
_FIRST_DELAY, _LAST_DELAY = 0.5, 10.0
_SCRIPTS = Path(__file__).parent
_PATIENCE = 1.0  # seconds; a process that checks whether a cluster runs briefly holds its lock

_log = log.get(__name__)


class _EndedError(ClusterError):
    """A component exited during the start of the cluster."""

    def __init__(self, component: Component) -> None:
        code = component.process.returncode if component.process else None
        super().__init__(
            f"{component.name} exited with code {code} during the cluster's start; "
            f"its log ends:\n{component.last_lines()}",
        )
        self.component = component.name


@dataclass(slots=True)
class RestartBackoff:
    """Backoff of restarts of a component."""

    delay: float = _FIRST_DELAY
    due: float = 0.0

    def is_due(self, now: float) -> bool:
        """Return whether the component can be restarted; the first call after an exit starts the delay."""
        if not self.due:
            self.due = now + self.delay
            self.delay = min(self.delay * 2, _LAST_DELAY)
            return False
        if now < self.due:
            return False
        self.due = 0.0
        return True


@dataclass(slots=True)
class Supervisor:
    """One control plane and its processes."""

    order: StartOrder
    owner: ParentProcess
    layout: Layout
    guard: Guard
    components: dict[str, Component] = field(default_factory=dict)
    revivals: dict[str, RestartBackoff] = field(default_factory=dict)
    kubelet_restarts: int = 0
    """Restarts of the kubelet during the start of the cluster."""
    reserved: ports.ReservedPort = field(default_factory=ports.reserve)

    def start(self) -> Mapping[str, Any]:
        """Start the control plane; return its facts for the parent process."""
        began = time.monotonic()
        chosen = Ports(self.reserved.number, ports.probe())
        write_files(self.layout, self.order.name, chosen.url)
        if self.nodes.has_real:
            write_node_files(self.layout)
            self._create_namespaces(chosen)
        self._compose(chosen)
        self._start(ETCD)
        self._start(APISERVER)
        api = Api.from_run_folder(self.layout.run, chosen.apiserver)
        self._wait_for("the API server to be ready", api.ready)
        self._start(CONTROLLERS)
        self._start(SCHEDULER)
        if self.nodes.has_real:
            self._start_node(api)
        if self.nodes.has_fake:
            self._start_kwok(api, chosen)
        self._wait_for("ready nodes and the default service account", lambda: usable(api, self.nodes))
        kubectl = self.order.binaries["kubectl"]
        facts = {
            "name": self.order.name,
            "pid": os.getpid(),
            "url": chosen.url,
            "port": chosen.apiserver,
            "kubeconfig": str(self.layout.kubeconfig),
            "logs": str(self.layout.logs),
            "run": str(self.layout.run),
            "kubectl": kubectl,
            "nodes": self.order.nodes,
            "namespaces": self.namespaces,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - began, 2),
        }
        atomic_file.write(self.layout.env, kubeconfig.leading_to(self.layout.kubeconfig, Path(kubectl)))
        atomic_file.write(self.layout.facts, json.dumps(facts))
        return facts

    def serve(self) -> None:
        """Execute commands and restart components until the parent process exits."""
        while True:
            for line in self.owner.lines(_TICK):
                answer(self._obey(json.loads(line)))
            self.owner.check()
            self._revive()

    def stop(self) -> None:
        """Kill all components: their data is deleted, so no graceful shutdown is necessary."""
        for component in self.components.values():
            component.kill()
        self.reserved.close()

    @property
    def nodes(self) -> Nodes:
        """The nodes of the cluster."""
        return Nodes(self.order.nodes)

    @property
    def namespaces(self) -> int | None:
        """The id of the process that holds the namespaces of a real node."""
        return self.components[NAMESPACES].pid if self.nodes.has_real else None

    def _compose(self, chosen: Ports) -> None:
        joins = (f"{JOIN}{self.namespaces}",) if self.nodes.has_real else ()
        for name, flags in arguments(chosen, self.order.apiserver_args, self.nodes).items():
            self._add(name, (self.order.binaries[name], *flags), joins)

    def _add(self, name: str, command: tuple[str, ...], options: tuple[str, ...] = (), path: str = "") -> None:
        if name not in self.components or not self.components[name].alive:
            log_file = self.layout.log(name)
            self.components[name] = Component(name, command, self.layout.run, log_file, options, path)

    def _create_namespaces(self, chosen: Ports) -> None:
        """Create the namespaces, and start in them what the control plane does not need."""
        folder, ready = str(self.layout.folder), str(self.layout.namespaces)
        self._add(NAMESPACES, (*_script("namespaces"), folder, ready, node.ADDRESS, *node.binds(self.layout)))
        self.components[NAMESPACES].path = node.SYSTEM_PATH
        self._start(NAMESPACES)
        self._wait_for("the namespaces of the node", self.layout.namespaces.exists)
        self._add(RELAY, (*_script("relay"), str(chosen.apiserver), str(self.namespaces)))
        self._start(RELAY)
        for name, flags in node_arguments(chosen).items():
            if name == DNS:
                command: tuple[str, ...] = (sys.executable, "-P", "-m", "runner.sdk.devcluster.dns")
                self._add(name, (*command, *flags), (f"{JOIN}{self.namespaces}",))
            else:
                command = (self.order.binaries[name],)
                self._add(name, (*command, *flags), (f"{ENTER}{self.namespaces}",), node.SYSTEM_PATH)
        self._start(CONTAINERD)

    def _start_node(self, api: Api) -> None:
        """Start the components of the real node that need the API server."""
        for name in (KUBELET, PROXY, DNS):
            self._start(name)
        namespaces = self.namespaces
        if namespaces is None:
            raise _EndedError(self.components[NAMESPACES])
        self._wait_for("containerd to respond", partial(containerd.is_ready, namespaces))
        containerd.import_archive(self.layout.run / "pause.tar", namespaces)
        containerd.announce(api, namespaces)
        for path, obj in node.objects(self.nodes):
            api.apply(path, obj)

    def _start(self, name: str) -> None:
        self.components[name].start()
        self.guard.send_groups(component.pid for component in self.components.values())
        _log.info("component started", component=name, pid=self.components[name].pid)

    def _start_kwok(self, api: Api, chosen: Ports) -> None:
        """Start kwok; try another port if the chosen one is in use."""
        for path, obj in kwok.definitions():
            api.apply(path, obj)
        for plural in kwok.KINDS.values():
            path = f"/apis/{kwok.GROUP_VERSION}/{plural}"
            self._wait_for(f"the API server to serve {plural}", partial(api.exists, path))
        for path, obj in templates.parsed("kwok-node.yaml", node=kwok.NODE, type=kwok.TYPE).items():
            api.apply(path, obj)
        for path, obj in () if self.nodes.has_real else kwok.volumes():
            api.apply(path, obj)
        if self.nodes.has_real:  # in the cluster's network namespace, only the API server reaches kwok
            self._start(KWOK)
            self._wait_for("kwok to listen", partial(listens, self.namespaces, chosen.kwok))
            return
        for _ in range(_KWOK_TRIES):
            self._start(KWOK)
            kubelet = Api(chosen.kwok, api.tls)
            try:
                # The certificate is issued by the cluster's CA, so that another server cannot be mistaken for kwok.
                self._wait_for("kwok to listen", partial(kubelet.ready, "/healthz"))
            except _EndedError as error:
                if error.component != KWOK or "address already in use" not in str(error):
                    raise
                chosen = Ports(chosen.apiserver, ports.probe())
                self._compose(chosen)
            else:
                return
        raise ClusterError(f"kwok found no free port in {_KWOK_TRIES} attempts; its log is {self.layout.log(KWOK)}")

    def _wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _READY_WITHIN
        while not condition():
            self.owner.check()
            for component in self.components.values():
                if component.wanted and not component.alive:
                    self._start_again(component)
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"timeout after {_READY_WITHIN:.0f} s waiting for {what}; the logs are in {self.layout.logs}",
                )
            time.sleep(_POLL)

    def _start_again(self, component: Component) -> None:
        """Start a kubelet again that exited while the cluster starts: that of Kubernetes 1.35 can panic then.

        Raises:
            _EndedError: another component exited, or the kubelet each time.
        """
        if component.name != KUBELET or self.kubelet_restarts == _KUBELET_RESTARTS:
            raise _EndedError(component)
        self.kubelet_restarts += 1
        _log.warning("component exited unexpectedly, restarting it", component=component.name)
        self._start(component.name)

    def _revive(self) -> None:
        if self.nodes.has_real and not self.components[NAMESPACES].alive:
            raise ParentGoneError("the process that holds the namespaces of the real node exited")
        for name, component in self.components.items():
            ended = component.wanted and not component.alive
            if ended and self.revivals.setdefault(name, RestartBackoff()).is_due(time.monotonic()):
                _log.warning("component exited unexpectedly, restarting it", component=name)
                self._start(name)

    def _obey(self, order: Mapping[str, Any]) -> Mapping[str, Any]:
        """Execute a command; see the methods of `DevCluster`."""
        if order["do"] == "detach":
            self.owner.detached = True
            return {}
        if order["component"] not in self.components:
            return {"error": f"this cluster has no {order['component']}; it has {', '.join(self.components)}"}
        component = self.components[order["component"]]
        try:
            match order["do"]:
                case "start" if not component.alive:
                    self._start(component.name)
                case "stop":
                    component.kill()
                case "pause":
                    component.signal(signal.SIGSTOP)
                case "resume":
                    component.signal(signal.SIGCONT)
                case _:
                    pass
            if component.name == APISERVER and order["do"] == "start":
                api = Api.from_run_folder(self.layout.run, self.reserved.number)
                self._wait_for("the API server to be ready", api.ready)
        except ClusterError as error:
            return {"error": str(error)}
        return {"pid": component.pid}


def listens(namespaces: int | None, port: int) -> bool:
    """Return whether a server listens on the loopback interface of a network namespace."""
    attempt = f"import socket; socket.create_connection(({ports.LOOPBACK!r}, {port}), 5)"
    command = leashed(f"{JOIN}{namespaces}", sys.executable, "-I", "-S", "-c", attempt)
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def _script(name: str) -> tuple[str, ...]:
    return sys.executable, "-I", "-S", str(_SCRIPTS / f"{name}.py")


def usable(api: Api, nodes: Nodes = Nodes.FAKE) -> bool:
    """Return whether pods can be created in the default namespace and scheduled on all nodes."""
    names = [*([kwok.NODE] if nodes.has_fake else []), *([node.NODE] if nodes.has_real else [])]
    needed = ("serviceaccounts/default", "configmaps/kube-root-ca.crt")
    return all(_is_ready(api.get(f"/api/v1/nodes/{name}")) for name in names) and all(
        api.exists(f"/api/v1/namespaces/default/{path}") for path in needed
    )


def _is_ready(obj: Any) -> bool:
    if obj is None or obj.get("spec", {}).get("taints"):
        return False
    conditions = {condition["type"]: condition["status"] for condition in obj.get("status", {}).get("conditions", [])}
    return conditions.get("Ready") == "True"


def write_files(layout: Layout, name: str, url: str) -> None:
    """Write the keys, certificates, kubeconfigs and configuration of the components."""
    authority = pki.Authority.create(f"ansible-operator {name}")
    admin = authority.issue("admin", organization="system:masters")
    pairs = {
        "ca": authority.pair,
        "apiserver": authority.issue("kube-apiserver", hosts=SERVER_NAMES),
        "kubelet": authority.issue("kubelet", hosts=(ports.LOOPBACK, "localhost", node.ADDRESS)),
        "kubelet-client": authority.issue("kube-apiserver-kubelet-client", organization="system:masters"),
        "admin": admin,
    }
    for file, pair in pairs.items():
        atomic_file.write(layout.run / f"{file}.crt", pair.certificate)
        atomic_file.write(layout.run / f"{file}.key", pair.key)
    private, public = pki.signing_key()
    atomic_file.write(layout.run / "sa.key", private)
    atomic_file.write(layout.run / "sa.pub", public)
    clients = {
        "kubeconfig": admin,
        "controllers.kubeconfig": authority.issue("system:kube-controller-manager", organization="system:masters"),
        "scheduler.kubeconfig": authority.issue("system:kube-scheduler"),
        "kubelet.kubeconfig": authority.issue(f"system:node:{node.NODE}", organization="system:nodes"),
        "proxy.kubeconfig": authority.issue("system:kube-proxy"),
        "kwok.kubeconfig": authority.issue("kwok", organization="system:masters"),
    }
    for file, pair in clients.items():
        content = kubeconfig.text(name, url, authority.pair.certificate, pair)
        atomic_file.write(layout.run / file, content)
    layout.exec_folder.mkdir()
    atomic_file.write(layout.pod_log, kwok.log_line(kwok.NO_LOG, datetime.now(UTC)))
    container = f"exec-{secrets.token_hex(16)}"  # it cannot be guessed
    atomic_file.write(layout.exec_container, container)
    atomic_file.write(layout.run / "kwok.yaml", templates.text("kwok.yaml", run=layout.run, exec_container=container))


def write_node_files(layout: Layout) -> None:
    """Create the cgroup of a real node and write its configuration."""
    try:
        create_cgroups(layout.cgroup)
    except OSError as error:
        raise ClusterError(f"the kernel does not permit a cgroup for pods: {error}") from error
    (layout.run / "cni").mkdir()
    for file, content in node.configuration(layout).items():
        atomic_file.write(layout.run / file, content)
    for name in node.VOLUMES:
        folder = layout.run / "volumes" / name
        folder.mkdir(parents=True)
        folder.chmod(0o777)  # as an empty disk: pods of any user write to their volumes
    pause.write(layout.run / "pause.tar", this_machine().machine)


def clear(layout: Layout) -> None:
    """Delete files of an earlier cluster in the folder; the supervisor's log is open and is truncated."""
    if layout.run.exists():  # left by a supervisor and a guard that were both killed
        shutil.rmtree(layout.run)
        remove_cgroups(layout.cgroup)
    layout.run.mkdir(mode=0o700)
    shutil.rmtree(layout.pod_logs, ignore_errors=True)
    for log_file in layout.logs.iterdir():
        if log_file != layout.log("supervisor"):
            log_file.unlink()
    os.ftruncate(sys.stderr.fileno(), 0)


def answer(values: Mapping[str, Any]) -> None:
    """Write one line to the parent process, if it still reads."""
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), json.dumps(values).encode() + b"\n")


def run(order: StartOrder, owner: ParentProcess) -> int:
    """Run one cluster; return the exit code."""
    layout = Layout(Path(order.folder))
    lock = locks.FileLock(layout.lock)
    if not lock.acquire(patience=_PATIENCE):
        answer({"error": f"a cluster already runs or starts in {layout.folder}"})
        return 1
    clear(layout)
    cgroup = layout.cgroup if Nodes(order.nodes).has_real else ""
    guard = Guard.start([layout.run] if order.keep_logs else [layout.folder], cgroup)
    supervisor = Supervisor(order, owner, layout, guard)
    try:
        answer(supervisor.start())
        supervisor.serve()
    except ParentGoneError as gone:
        _log.info("stopping cluster", reason=str(gone))
        answer({"error": f"the cluster was stopped: {gone}"})
    except ClusterError as error:
        answer({"error": str(error)})
        return 1
    finally:
        supervisor.stop()
        guard.finish()
        lock.release()
    return 0


def main() -> int:
    """Read the order and run its cluster."""
    log.configure(level=logging.INFO, encoder="console")
    owner = ParentProcess(sys.stdin.fileno(), os.getppid())
    signal.signal(signal.SIGTERM, lambda *_: owner.stop("SIGTERM"))
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    try:
        return run(StartOrder(**json.loads(owner.first_line())), owner)
    except ParentGoneError:
        return 0


if __name__ == "__main__":
    sys.exit(main())
