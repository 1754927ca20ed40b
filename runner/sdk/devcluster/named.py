"""Named clusters of `cluster up`, which keep running.

A cluster runs exactly as long as its supervisor holds the lock. `cluster.json` exists when the cluster is ready.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from runner.base.config import atomic_file
from runner.base.config.locks import FileLock
from runner.sdk.devcluster import folders, kubeconfig
from runner.sdk.devcluster.cluster import Supervised, launch
from runner.sdk.devcluster.layout import Layout
from runner.sdk.devcluster.nodes import Nodes
from runner.sdk.devcluster.processes import remove_cgroups
from runner.values.errors import ClusterError

_STARTS_WITHIN = 150.0
_ENDS_WITHIN = 20.0
_POLL = 0.05
_LOGS_KEPT = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class NamedCluster:
    """State of a named cluster; `facts` is None unless it is ready."""

    name: str
    layout: Layout
    supervisor: int | None
    facts: Mapping[str, Any] | None

    @property
    def state(self) -> str:
        """Return running, starting or stopped."""
        if self.supervisor is None:
            return "stopped"
        return "running" if self.facts else "starting"


def look(environ: Mapping[str, str], name: str) -> NamedCluster:
    """Return the state of a cluster."""
    return _look(name, Layout(folders.cluster(environ, name)))


def selected(environ: Mapping[str, str]) -> NamedCluster:
    """Return the cluster of the current kubeconfig; `default` if it is not one of this program.

    A cluster that a test started is not in the folder of clusters, but its kubeconfig is in its own folder.
    """
    default = Path(environ.get("HOME") or Path.home()) / ".kube" / "config"
    for file in filter(None, (environ.get("KUBECONFIG") or str(default)).split(os.pathsep)):
        path = Path(file).absolute()
        name = kubeconfig.cluster_name(path)
        if name is not None:
            layout = Layout(path.parent.parent)
            return _look(name, layout) if path == layout.kubeconfig else look(environ, name)
    return look(environ, "default")


def _look(name: str, layout: Layout) -> NamedCluster:
    supervisor = FileLock(layout.lock).holder()
    facts = None
    if supervisor is not None:
        with suppress(FileNotFoundError):  # still starting, or stopping
            facts = json.loads(layout.facts.read_text(encoding="utf-8"))
    return NamedCluster(name, layout, supervisor, facts)


def every(environ: Mapping[str, str]) -> list[NamedCluster]:
    """Return all clusters that run or have logs. Remove the logs of those that stopped more than a day ago."""
    folder = folders.clusters(environ)
    names = sorted(path.name for path in folder.glob("*/") if folders.is_name(path.name))
    clusters = [look(environ, name) for name in names]
    for cluster in clusters:
        _remove_old_logs(cluster.layout)
    return [cluster for cluster in clusters if cluster.supervisor is not None or cluster.layout.logs.exists()]


def _remove_old_logs(layout: Layout) -> None:
    written = [path.stat().st_mtime for path in (layout.logs, *layout.logs.rglob("*")) if path.exists()]
    lock = FileLock(layout.lock)
    if written and time.time() - max(written) > _LOGS_KEPT and lock.acquire():  # a cluster that runs holds the lock
        try:
            shutil.rmtree(layout.logs)
        finally:
            lock.release()


def up(environ: Mapping[str, str], name: str, progress: TextIO, nodes: Nodes) -> tuple[NamedCluster, bool]:
    """Start a cluster that keeps running, unless it runs; return it and whether it was started."""
    cluster = look(environ, name)
    if cluster.supervisor is not None:
        return _wait_until_ready(environ, name), False
    try:
        _launch(cluster, progress, nodes).send({"do": "detach"})
    except ClusterError:
        if look(environ, name).supervisor is None:
            raise
        return _wait_until_ready(environ, name), False  # another process started it at the same time
    return look(environ, name), True


@contextmanager
def foreground(environ: Mapping[str, str], name: str, progress: TextIO, nodes: Nodes) -> Iterator[NamedCluster]:
    """Run a named cluster until the context ends. Raises ClusterError if it already runs."""
    cluster = look(environ, name)
    if cluster.supervisor is not None:
        raise ClusterError(
            f"cluster {name!r} already runs (process {cluster.supervisor}); choose another name with --name, or stop "
            f"it with `ansible-operator cluster down --name {name}`"
        )
    supervised = _launch(cluster, progress, nodes)
    try:
        yield look(environ, name)
    finally:
        supervised.stop()


def _launch(cluster: NamedCluster, progress: TextIO, nodes: Nodes) -> Supervised:
    return launch(
        cluster.layout.folder, name=cluster.name, apiserver_args=(), keep_logs=True, nodes=nodes, progress=progress
    )


def down(environ: Mapping[str, str], name: str) -> bool:
    """Stop a cluster and delete its data, but not its logs; return whether it ran."""
    cluster = look(environ, name)
    exported = _exported(cluster.layout)
    # If the supervisor is killed, its guard kills the components.
    if not (_ended(cluster.layout, signal.SIGTERM) or _ended(cluster.layout, signal.SIGKILL)):
        holder = look(environ, name).supervisor
        raise ClusterError(
            f"cluster {name!r} does not stop: the process that holds {cluster.layout.lock} does not exit, or is not "
            f"its supervisor (process id in the file: {holder}); see {cluster.layout.logs}"
        )
    if cluster.layout.run.exists():
        shutil.rmtree(cluster.layout.run)
        remove_cgroups(cluster.layout.cgroup)
    if exported:
        exported.unlink()
    return cluster.supervisor is not None


def _ended(layout: Layout, number: signal.Signals) -> bool:
    """Send a signal to the supervisor as soon as its process id is certain; return whether it ended in time."""
    deadline, is_sent = time.monotonic() + _ENDS_WITHIN, False
    while (holder := FileLock(layout.lock).holder()) is not None:
        if time.monotonic() > deadline:
            return False
        if not is_sent and _has_open(holder, layout.lock):
            with suppress(ProcessLookupError):  # it has ended
                os.kill(holder, number)
            is_sent = True
        time.sleep(_POLL)
    return True


def _has_open(pid: int, file: Path) -> bool:
    """Return whether a process has a file open. Only Linux lists open files; elsewhere every positive id counts."""
    if pid <= 0 or sys.platform != "linux":
        return pid > 0
    try:
        return any(link.samefile(file) for link in Path(f"/proc/{pid}/fd").iterdir() if link.exists())
    except FileNotFoundError:  # the process, or the descriptor, is gone
        return False


def _wait_until_ready(environ: Mapping[str, str], name: str) -> NamedCluster:
    deadline = time.monotonic() + _STARTS_WITHIN
    while True:
        cluster = look(environ, name)
        if cluster.facts:
            return cluster
        if cluster.supervisor is None:
            raise ClusterError(f"cluster {name!r} stopped during its start; its logs are in {cluster.layout.logs}")
        if time.monotonic() > deadline:
            raise ClusterError(f"cluster {name!r} did not become ready; its logs are in {cluster.layout.logs}")
        time.sleep(_POLL)


def export(cluster: NamedCluster, target: Path) -> None:
    """Copy the kubeconfig to a file; `down` deletes the copy.

    Raises ClusterError if the file exists and was not written by this command.
    """
    target = target.absolute()
    if target.exists() and not kubeconfig.is_ours(target):
        raise ClusterError(
            f"{target} exists and was not written by this command; choose another file, or use "
            f"{cluster.layout.kubeconfig}",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.write(target, cluster.layout.kubeconfig.read_bytes())
    atomic_file.write(cluster.layout.exported, str(target))


def _exported(layout: Layout) -> Path | None:
    """Return the path of the kubeconfig's copy, if its content is unchanged."""
    try:
        target = Path(layout.exported.read_text(encoding="utf-8"))
        return target if target.read_bytes() == layout.kubeconfig.read_bytes() else None
    except FileNotFoundError:
        return None
