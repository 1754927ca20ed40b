"""What a real node costs: `python -m bench.devcluster`. It needs root, and the packages that `cluster up` names.

1. `cluster up --node NODES` for `fake` and `real`, each `BENCH_SAMPLES` times (3): seconds until the nodes are Ready,
   and with the real one until a pod runs that was created then, in an image that was loaded before.
2. CPU time and proportional memory of the real node while nothing happens, for `BENCH_IDLE_SECONDS` (30): of its own
   processes, without the control plane and the pods.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.process_stats import cpu_seconds, proportional, tree
from bench.results import Result, show, tell
from runner.sdk import devcluster
from runner.sdk.devcluster import DevCluster, node, pause
from runner.sdk.devcluster.binaries import this_machine
from runner.sdk.devcluster.layout import NODE_COMPONENTS

_CASE = "devcluster"
_POD_WITHIN = 60
_READY_GOAL = 20.0
_SETTLE = 15.0
"""Seconds after which the node's start no longer shows."""


def main() -> None:
    """Print each figure."""
    samples = int(os.environ.get("BENCH_SAMPLES", "3"))
    fakes = [_start("fake") for _ in range(samples)]
    show(Result(_CASE, "seconds until the fake node is ready", statistics.median(fakes), "s"))
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "pause.tar"
        pause.write(archive, this_machine().machine)
        ready, first = zip(*(_start_real(archive, idle=number == 0) for number in range(samples)), strict=True)
    show(Result(_CASE, "seconds until the real node is ready", statistics.median(ready), "s", _READY_GOAL))
    show(Result(_CASE, "seconds until the first pod runs", statistics.median(first), "s"))


def _start(nodes: str) -> float:
    begun = time.monotonic()
    with devcluster.start(name="bench", nodes=nodes, progress=sys.stderr):
        return time.monotonic() - begun


def _start_real(archive: Path, *, idle: bool) -> tuple[float, float]:
    begun = time.monotonic()
    with devcluster.start(name="bench", nodes="real", progress=sys.stderr) as cluster:
        ready = time.monotonic() - begun
        cluster.load(archive)
        _run_pod(cluster)
        first = time.monotonic() - begun
        if idle:
            _measure_idle(cluster)
    return ready, first


def _run_pod(cluster: DevCluster) -> None:
    spec = {"containers": [{"name": "pause", "image": pause.IMAGE}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "first"}, "spec": spec}
    kubectl = [str(cluster.kubectl), f"--kubeconfig={cluster.kubeconfig}"]
    subprocess.run(
        [*kubectl, "apply", "-f", "-"], input=json.dumps(pod), text=True, check=True, stdout=subprocess.DEVNULL
    )
    subprocess.run(
        [*kubectl, "wait", "pod/first", "--for=condition=Ready", f"--timeout={_POD_WITHIN}s"],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _measure_idle(cluster: DevCluster) -> None:
    seconds = float(os.environ.get("BENCH_IDLE_SECONDS", "30"))
    tell(f"the node idles for {seconds:g} s on {node.NODE}")
    time.sleep(min(_SETTLE, seconds))
    pids = [pid for name in NODE_COMPONENTS if (own := cluster.pid(name)) for pid in tree(own)]
    pids = [pid for pid in pids if not _is_pod(pid)]
    before = sum(map(cpu_seconds, pids))
    time.sleep(seconds)
    share = (sum(map(cpu_seconds, pids)) - before) / seconds
    show(Result(_CASE, "CPU of the idle node, of one core", share * 100, "%"))
    show(Result(_CASE, "proportional memory of the node", sum(map(proportional, pids)), "MiB"))


def _is_pod(pid: int) -> bool:
    return "/kubepods" in Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii")


if __name__ == "__main__":
    main()
