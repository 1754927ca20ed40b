"""`ansible-operator dev`.

Owns the arguments and the order of starts and ends: control plane (unless a flag names one), CRDs, operator. The
operator ends first, so that it still writes the status of the last runs.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from runner.config import paths
from runner.errors import ConfigError, OperatorError
from runner.sdk.devcluster import chosen, named, processes
from runner.sdk.devcluster.cli import add_node_option
from runner.sdk.devcluster.cluster import find_kubectl, run_kubectl
from runner.sdk.devcluster.nodes import choose

if TYPE_CHECKING:
    from runner.sdk.dev.board import Screen

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no public name for it

_CRDS = Path("config/crd/bases")
_FORMATS = ("--log-format=json", "--ansible-log-format=json")
"""The live view parses the operator's output."""
_GRACE = 60.0
"""Seconds that the operator has to end after SIGTERM; it gives its runs half of that."""
_DESCRIPTION = """\
Develop the project in this folder: starts a control plane on this machine (or uses the cluster of --kubeconfig),
installs the project's CRDs, and runs the operator, which reloads edited files. Shows kinds, queues, runs and the last
error; without a terminal, prints a line per event. Ctrl-C stops everything. Docker is not needed.

Flags after `--` are passed to `ansible-operator run`.
"""


def add_commands(subparsers: Subparsers) -> None:
    """Add `dev`."""
    parser = subparsers.add_parser(
        "dev",
        help="start a control plane, install the CRDs and run the operator, with a live view",
        usage="ansible-operator dev [flags] [-- FLAGS OF run]",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--name", default="dev", help="name of the control plane; each name is a separate one [dev]")
    add_node_option(parser)
    chosen.add_options(parser)
    parser.add_argument("flags", nargs="*", metavar="FLAGS", help="flags of `ansible-operator run`, after --")
    parser.set_defaults(func=_dev)


@dataclass(slots=True)
class _StopSignal:
    """Handler of Ctrl-C and SIGTERM. The first one interrupts the start, which can take minutes."""

    received: threading.Event = field(default_factory=threading.Event)
    interrupts: bool = True
    number: int = 0

    def receive(self, number: int, _frame: object) -> None:
        """Record the signal. Raises KeyboardInterrupt once, during the start."""
        again, self.number = self.received.is_set(), number
        self.received.set()
        if self.interrupts and not again:
            raise KeyboardInterrupt


def _dev(arguments: argparse.Namespace) -> int:
    if not Path("watches.yaml").exists() and not any("watches-file" in flag for flag in arguments.flags):
        raise ConfigError(
            "no watches.yaml in this folder; run the command in a project's folder, or create a project with "
            "`ansible-operator init`"
        )
    if any(flag.startswith(("--kubeconfig", "--context")) for flag in arguments.flags):
        raise ConfigError(
            "set --kubeconfig and --context before `--`, so that the CRDs are applied to the same cluster"
        )
    stop = _StopSignal()
    before = {each: signal.signal(each, stop.receive) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        with _control_plane(arguments) as (cluster, kubectl, environ):
            _install(kubectl, environ)
            stop.interrupts = False
            return _operate(arguments.flags, cluster, environ, stop.received)
    except KeyboardInterrupt:
        return 128 + stop.number  # as shells count
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def _control_plane(arguments: argparse.Namespace) -> Iterator[tuple[tuple[str, ...], str, Mapping[str, str]]]:
    """Yield a cluster: instructions for the user, its kubectl, and the environment that selects it."""
    if arguments.kubeconfig or arguments.context:
        kubectl = find_kubectl(os.environ)
        if kubectl is None:
            raise ConfigError("kubectl is not in PATH: install it, or start a control plane without --kubeconfig")
        with tempfile.TemporaryDirectory(prefix="ansible-operator-dev-") as folder:
            found = chosen.choose(arguments.kubeconfig, arguments.context, Path(folder), kubectl, os.environ)
            chosen.confirm(found, f"Apply the CRDs of {_CRDS} and run the operator", yes=arguments.yes)
            cluster = f"Cluster: context {found.context}, {found.server}"
            yield (cluster,), str(kubectl), {**os.environ, "KUBECONFIG": str(found.path)}
        return
    if ignored := chosen.ignored(os.environ, "--kubeconfig"):
        _print(ignored)
    nodes = choose(arguments.node, os.environ)
    with named.foreground(os.environ, arguments.name, sys.stderr, nodes) as started:
        if started.facts is None:
            raise OperatorError(
                f"the control plane {started.name!r} stopped right after its start; see {started.layout.logs}"
            )
        _print(f"Kubeconfig:  export KUBECONFIG={started.layout.kubeconfig}")
        _print(f"kubectl:     {started.facts['kubectl']}")
        both = f". {shlex.quote(str(started.layout.env))}"
        _print(f"Both:        {both}")
        yield (
            ("For kubectl, in another terminal:", both),
            str(started.facts["kubectl"]),
            {**os.environ, "KUBECONFIG": str(started.layout.kubeconfig)},
        )


def _install(kubectl: str, environ: Mapping[str, str]) -> None:
    files = sum(1 for _ in _CRDS.glob("*.yaml"))
    if not files:
        _print(f"CRDs:        none in {_CRDS}; the operator waits until its kinds are installed")
        return
    crds = ("--filename", str(_CRDS))
    run_kubectl(kubectl, environ, "apply", "--server-side", "--force-conflicts", *crds)
    run_kubectl(kubectl, environ, "wait", "--for=condition=Established", "--timeout=30s", *crds)
    # For a second, an established kind returns errors. kubectl retries; the operator would report a problem.
    names = run_kubectl(kubectl, environ, "get", "--output=name", *crds).split()
    kinds = ",".join(name.rpartition("/")[2] for name in names)
    run_kubectl(kubectl, environ, "get", kinds, "--all-namespaces", "--output=name")
    _print(f"CRDs:        {files} from {_CRDS}")


def _operate(flags: list[str], cluster: tuple[str, ...], environ: Mapping[str, str], ended: threading.Event) -> int:
    """Run the operator until it ends or `ended` is set; return the exit code."""
    from runner.sdk.dev.board import LiveView, Screen  # noqa: PLC0415 - every command would wait for what it imports

    ports = ["--proxy-port=0", "--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0"]
    command = [sys.executable, "-P", "-m", "runner", "run", "--reload", *ports, *flags, *_FORMATS]
    with tempfile.NamedTemporaryFile("w", prefix="ansible-operator-dev-", suffix=".log", delete=False) as log:
        _print(f"Log:         {log.name}")
        _print("Stop:        Ctrl-C")
        process = subprocess.Popen(
            # Its own session: only this process receives Ctrl-C, and ends the operator once.
            command, env={**paths.AS_DEPLOYED, **environ}, start_new_session=True, text=True, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        with process:
            screen = Screen(LiveView(), sys.stdout, (*cluster, "Press Ctrl-C to stop.", f"Log: {log.name}"))
            reading = threading.Thread(target=_read, args=(process.stdout, log, screen, ended))
            reading.start()
            while not ended.wait(1.0):
                screen.refresh()
            by_itself = process.poll() is not None
            processes.end(process, _GRACE)
            reading.join()
        screen.close()
    if by_itself or process.returncode:
        raise OperatorError(f"the operator exited with code {process.returncode}: {screen.last or 'no error message'}")
    return 0


def _read(lines: IO[str], log: IO[str], screen: Screen, ended: threading.Event) -> None:
    for line in lines:
        log.write(line)
        log.flush()
        screen.take(line)
    ended.set()


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
