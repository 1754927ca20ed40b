"""`ansible-operator cluster build | up | load | down | status | kubeconfig`.

Owns arguments and output of these commands; each sets `func`, which takes the arguments and returns the exit code.
Errors pass through as ClusterError and ConfigError; the caller prints them.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path

from runner.base.config import commands
from runner.base.config.commands import Subparsers
from runner.sdk.devcluster import containerd, images, named
from runner.sdk.devcluster.cluster import get_programs
from runner.sdk.devcluster.nodes import VARIABLE, Nodes, choose
from runner.values.errors import ClusterError

_DESCRIPTION = """\
Run a real Kubernetes control plane on this machine, without Docker: etcd, kube-apiserver, kube-controller-manager,
kube-scheduler, and nodes. The fake node is kwok, which sets pods to Running and Ready without starting containers. The
real node is a kubelet with containerd, in namespaces of its own; it needs Linux, root and some packages. The programs
come from $KUBEBUILDER_ASSETS, the cache folder, the official releases, or a build with Go, in this order.
"""

_LOAD = """\
Load an image into the real node of a control plane, which has no registry. IMAGE is one of these:

  FILE       an archive of `docker save`, `podman save` or `buildah push`, in docker or OCI format
  DIRECTORY  an OCI layout, or a directory with a Dockerfile; a container tool builds it with the name --tag
  NAME       an image of a container tool, for example of `make docker-build`

The container tool is Docker if its engine runs, then podman, then buildah.
"""
_BUILD = """\
Download or build the programs of a control plane into the cache folder, once. `cluster up` and `dev` do this too. A
build takes some minutes."""
_UP = """\
Start a control plane in the background. It runs until `cluster down`. If one of this name runs already, the command
only prints its kubeconfig."""
_DOWN = "Stop a control plane and delete its data. Its logs are kept for a day, see `cluster status`."
_STATUS = """\
List the control planes that run, with API server, nodes, kubeconfig and logs, and those that stopped. Logs of control
planes that stopped more than a day ago are removed."""
_KUBECONFIG = "Print the path of the kubeconfig of a control plane that runs, or its content."
_EXAMPLES = ("up", "down")


def add_commands(subparsers: Subparsers) -> None:
    """Add `cluster` and its commands."""
    text = "run a real control plane on this machine, for development and tests"
    cluster = commands.group(subparsers, "cluster", text, _DESCRIPTION, _EXAMPLES)

    add = partial(commands.add, cluster)
    add_node_option(add("build", _build, "download or build the programs", _BUILD, ("", "--node=real")))
    text = "start a control plane that runs until `down`, unless it already runs"
    start = add("up", _up, text, _UP, ("", "--node=real --kubeconfig=kubeconfig"))
    _name(start)
    add_node_option(start)
    start.add_argument("--kubeconfig", type=Path, metavar="FILE", help="copy the kubeconfig to FILE")
    start.add_argument("--foreground", action="store_true", help="run in the foreground; Ctrl-C stops it")
    load = add("load", _load, "load an image into the real node", _LOAD, ("shop-operator:v0.0.1",), "IMAGE [flags]")
    load.add_argument("source", metavar="IMAGE", help="an archive, an OCI layout, a directory, or a name; see above")
    load.add_argument("--tag", metavar="NAME", help="name of the image in the cluster [its own name]")
    load.add_argument("--name", help="name of the control plane [that of KUBECONFIG, otherwise default]")
    text = "stop a control plane and delete its data; its logs are kept for a day"
    _name(add("down", _down, text, _DOWN, ("--name=dev-shop-operator",)))
    add("status", _status, "list control planes and their logs", _STATUS, ("",))
    show = add("kubeconfig", _kubeconfig, "print the path of the kubeconfig", _KUBECONFIG, ("", "--content"))
    _name(show)
    show.add_argument("--content", action="store_true", help="print the content of the kubeconfig")


def _name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--name", default="default", help="name of the control plane; several can run at once [default]"
    )


def add_node_option(parser: argparse.ArgumentParser) -> None:
    """Add `--node`."""
    parser.add_argument(
        "--node",
        choices=list(Nodes),
        metavar="real|fake|both",
        help=f"nodes: a real one runs pods, a fake one simulates them [${VARIABLE}, or fake]",
    )


def _build(arguments: argparse.Namespace) -> int:
    programs = get_programs(os.environ, sys.stderr, choose(arguments.node, os.environ))
    for folder in sorted({path.parent for path in programs.values()}):
        _print(f"{folder}: {', '.join(sorted(path.name for path in programs.values() if path.parent == folder))}")
    return 0


def _up(arguments: argparse.Namespace) -> int:
    if arguments.foreground:
        return _foreground(arguments)
    cluster, started = named.up(os.environ, arguments.name, sys.stderr, choose(arguments.node, os.environ))
    if arguments.node and cluster.facts and cluster.facts["nodes"] != arguments.node:
        raise ClusterError(
            f"the control plane {cluster.name!r} already runs with --node {cluster.facts['nodes']}; stop it first with "
            f"`ansible-operator cluster down{_option(cluster.name)}`"
        )
    _present(cluster, arguments.kubeconfig, "is ready" if started else "already runs")
    _print(f"Stop:        ansible-operator cluster down{_option(cluster.name)}")
    return 0


def _foreground(arguments: argparse.Namespace) -> int:
    # Signals are blocked here and received by sigwait below: none is lost in between, and none interrupts the start.
    ending = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    with named.foreground(os.environ, arguments.name, sys.stderr, choose(arguments.node, os.environ)) as cluster:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ending)
        try:
            _present(cluster, arguments.kubeconfig, "is ready")
            _print("Stop:        Ctrl-C")
            signal.sigwait(ending)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return 0


def _present(cluster: named.NamedCluster, copy: Path | None, how: str) -> None:
    if cluster.facts is None:  # it stopped between two checks
        _print(f"The control plane {cluster.name!r} was just stopped")
        return
    if copy is not None:
        named.export(cluster, copy)
    kubeconfig = copy.absolute() if copy is not None else cluster.layout.kubeconfig
    _print(
        f"The control plane {cluster.name!r} {how}: {cluster.facts['url']} (started in {cluster.facts['seconds']} s)"
    )
    _print(f"Nodes:       {cluster.facts['nodes']}")
    _print(f"Kubeconfig:  export KUBECONFIG={kubeconfig}")
    _print(f"kubectl:     {cluster.facts['kubectl']}")
    _print(f"Both:        . {shlex.quote(str(cluster.layout.env))}")
    _print(f"Logs:        {cluster.layout.logs}")


def _load(arguments: argparse.Namespace) -> int:
    cluster = named.look(os.environ, arguments.name) if arguments.name else named.selected(os.environ)
    if cluster.facts is None:
        return _not_running(cluster)
    if cluster.facts["namespaces"] is None:
        _print(f"The control plane {cluster.name!r} only simulates pods, which need no images: nothing was loaded")
        return 0
    with tempfile.TemporaryDirectory(prefix="ansible-operator-load-") as folder:
        archive = images.archive(arguments.source, arguments.tag, Path(folder), os.environ, sys.stderr)
        loaded = containerd.load_archive(archive, cluster.layout)
    _print(f"Loaded into the control plane {cluster.name!r}: {', '.join(loaded)}")
    return 0


def _down(arguments: argparse.Namespace) -> int:
    ran = named.down(os.environ, arguments.name)
    _print(f"The control plane {arguments.name!r} " + ("was stopped and its data deleted" if ran else "does not run"))
    return 0


def _status(_arguments: argparse.Namespace) -> int:
    clusters = named.every(os.environ)
    if not clusters:
        _print("No control plane runs. Start one with `ansible-operator cluster up`.")
    for cluster in clusters:
        if cluster.supervisor is None:
            _print(f"{cluster.name}: stopped; logs, for a day: {cluster.layout.logs}")
            continue
        _print(f"{cluster.name}: {cluster.state}")
        if cluster.facts:
            _print(f"  API server  {cluster.facts['url']}, since {cluster.facts['started']}")
            _print(f"  nodes       {cluster.facts['nodes']}")
            _print(f"  kubeconfig  {cluster.facts['kubeconfig']}")
            _print(f"  kubectl     {cluster.facts['kubectl']}")
        if cluster.layout.logs.exists():
            _print(f"  logs        {cluster.layout.logs}")
    return 0


def _kubeconfig(arguments: argparse.Namespace) -> int:
    cluster = named.look(os.environ, arguments.name)
    if cluster.facts is None:
        return _not_running(cluster)
    path = cluster.layout.kubeconfig
    _print(path.read_text(encoding="utf-8").rstrip("\n") if arguments.content else str(path))
    return 0


def _not_running(cluster: named.NamedCluster) -> int:
    sys.stderr.write(
        f"The control plane {cluster.name!r} is {cluster.state}: "
        f"start it with `ansible-operator cluster up{_option(cluster.name)}`\n",
    )
    return 1


def _option(name: str) -> str:
    return "" if name == "default" else f" --name {name}"


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
