"""`ansible-operator dev`.

Owns the arguments and the order of starts and ends: control plane (unless a flag names one), CRDs, operator. The
operator ends first, so that it still writes the status of the last runs.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from runner.base.config import commands, sources
from runner.base.config.commands import Subparsers
from runner.base.config.options import Option
from runner.base.config.settings import OPTIONS, Settings
from runner.sdk.devcluster import chosen, named
from runner.sdk.devcluster.cli import add_node_option
from runner.sdk.devcluster.cluster import find_kubectl, run_kubectl
from runner.sdk.devcluster.nodes import choose
from runner.values.errors import ConfigError, OperatorError

if TYPE_CHECKING:
    from runner.sdk.dev.project import Project
    from runner.sdk.dev.screen import Screen

_CRDS = Path("config/crd/bases")
_SAMPLES = Path("config/samples")
_REFRESH = 1.0
"""Seconds between two readings of the operator's status page."""
_DESCRIPTION = """\
Develop the project in this folder: starts a control plane on this machine (or uses the cluster of --kubeconfig),
installs the project's CRDs, and runs the operator. After an edit of the watches file, a role, a playbook or a plugin,
the operator starts again. While the project is invalid, no run starts. Shows the objects with the causes of failures,
and the latest events; without a terminal, prints a line per event. Ctrl-C stops everything, after 2 seconds for runs
that are active. The end is a summary, with the permissions that config/rbac lacks. Docker is not needed.

Flags after `--` are passed to `ansible-operator run`."""
_EXAMPLES = ("", "--node=real -- --log-level=debug")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LONGEST_NAME = 40
_CANCEL = 0.5
"""Seconds after the grace period that the operator has to cancel runs and to write their status."""


def add_commands(subparsers: Subparsers, add: Callable[[Any, Option], None]) -> None:
    """Add `dev`. `add` adds a flag of the operator to a parser."""
    text = "start a control plane, install the CRDs and run the operator, with a live view"
    form = "[flags] [-- FLAGS OF run]"
    parser = commands.add(subparsers, "dev", partial(_dev, add), text, _DESCRIPTION, _EXAMPLES, form)
    parser.add_argument(
        "--name", help="name of the control plane; each name is a separate one [dev-PROJECT, with the project's name]"
    )
    add_node_option(parser)
    chosen.add_options(parser)
    parser.add_argument("flags", nargs="*", metavar="FLAGS", help="flags of `ansible-operator run`, after --")


class News(Enum):
    """Events that the main thread examines."""

    STOPPED = auto()
    ENDED = auto()
    CHANGED = auto()


@dataclass(slots=True)
class _StopSignal:
    """Handler of Ctrl-C, SIGTERM and a closed terminal. The first one interrupts the start, which can take minutes."""

    news: SimpleQueue[News] = field(default_factory=SimpleQueue)
    """Wakes the main thread. A signal handler may put an item, as it may not set an event."""
    is_received: bool = False
    interrupts: bool = True
    number: int = 0
    again: Callable[[], None] = field(default=lambda: None)
    """Called for each signal after the first."""

    def receive(self, number: int, _frame: object) -> None:
        """Record the signal. Raises KeyboardInterrupt once, during the start."""
        again, self.is_received, self.number = self.is_received, True, number
        self.news.put(News.STOPPED)
        if again:
            self.again()
        elif self.interrupts:
            raise KeyboardInterrupt


def _dev(add: Callable[[Any, Option], None], arguments: argparse.Namespace) -> int:
    if any(flag.startswith(("--kubeconfig", "--context")) for flag in arguments.flags):
        raise ConfigError(
            "set --kubeconfig and --context before `--`, so that the CRDs are applied to the same cluster"
        )
    from runner.sdk.dev.operator import GRACE  # noqa: PLC0415 - every command would wait for what it imports

    settings = _settings(add, (GRACE, *arguments.flags), os.environ)
    _project(settings, os.environ, lambda: None)  # before the control plane starts, which takes seconds
    stop = _StopSignal()
    handlers = {number: signal.signal(number, stop.receive) for number in _SIGNALS}
    try:
        with _control_plane(arguments) as (cluster, kubectl, environ):
            _install(kubectl, environ)
            stop.interrupts = False
            summary = _operate(arguments.flags, cluster, settings, environ, stop)
    except KeyboardInterrupt:
        return 128 + stop.number  # as shells count
    else:
        is_own = not (arguments.kubeconfig or arguments.context)
        _print("\n".join((f"Stopped{'; the control plane is deleted' if is_own else ''}. {summary[0]}", *summary[1:])))
        return 0
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _default_name(folder: Path) -> str:
    """Return the name of the control plane of the project in a folder. Without PROJECT, the folder's name is used."""
    from runner.sdk.scaffold import project  # noqa: PLC0415 - every command would wait for what it imports
    from runner.sdk.scaffold.changeset import ChangeSet  # noqa: PLC0415 - as above

    name = folder.name
    with suppress(ConfigError):
        name = project.read(ChangeSet(folder)).name
    return re.sub("[^a-z0-9]+", "-", f"dev-{name.lower()}")[:_LONGEST_NAME].strip("-")


@contextmanager
def _control_plane(arguments: argparse.Namespace) -> Iterator[tuple[tuple[str, ...], str, Mapping[str, str]]]:
    """Yield a cluster: instructions for the user, its kubectl, and the environment that selects it."""
    if arguments.kubeconfig or arguments.context:
        kubectl = find_kubectl(os.environ)
        if kubectl is None:
            raise ConfigError("kubectl is not in PATH: install it, or start a control plane without --kubeconfig")
        with tempfile.TemporaryDirectory(prefix="ansible-operator-dev-") as folder:
            selected = chosen.choose(arguments.kubeconfig, arguments.context, Path(folder), kubectl, os.environ)
            chosen.confirm(selected, f"Apply the CRDs of {_CRDS} and run the operator", yes=arguments.yes)
            cluster = f"Cluster: context {selected.context}, {selected.server}"
            yield (cluster,), str(kubectl), {**os.environ, "KUBECONFIG": str(selected.path)}
        return
    if ignored := chosen.ignored(os.environ, "--kubeconfig"):
        _print(ignored)
    nodes = choose(arguments.node, os.environ)
    name = arguments.name or _default_name(Path.cwd())
    _print(f"Starting the control plane {name} …")
    with named.foreground(os.environ, name, sys.stderr, nodes) as started:
        if started.facts is None:
            raise OperatorError(
                f"the control plane {started.name!r} stopped right after its start; see {started.layout.logs}"
            )
        both = f". {shlex.quote(str(started.layout.env))}"
        _describe(f"Kubeconfig:  export KUBECONFIG={started.layout.kubeconfig}")
        _describe(f"kubectl:     {started.facts['kubectl']}")
        _describe(f"Both:        {both}")
        yield (
            (f"For kubectl, in another terminal: {both}",),
            str(started.facts["kubectl"]),
            {**os.environ, "KUBECONFIG": str(started.layout.kubeconfig)},
        )


def _install(kubectl: str, environ: Mapping[str, str]) -> None:
    files = sum(1 for _ in _CRDS.glob("*.yaml"))
    if not files:
        _print(f"CRDs:        none in {_CRDS}; the operator waits until its kinds are installed")
        return
    _print(f"CRDs:        {files} from {_CRDS}")
    crds = ("--filename", str(_CRDS))
    run_kubectl(kubectl, environ, "apply", "--server-side", "--force-conflicts", *crds)
    run_kubectl(kubectl, environ, "wait", "--for=condition=Established", "--timeout=30s", *crds)
    # For a second, an established kind returns errors. kubectl retries; the operator would report a problem.
    names = run_kubectl(kubectl, environ, "get", "--output=name", *crds).split()
    kinds = ",".join(name.rpartition("/")[2] for name in names)
    run_kubectl(kubectl, environ, "get", kinds, "--all-namespaces", "--output=name")


def _operate(
    flags: Sequence[str], cluster: Sequence[str], settings: Settings, environ: Mapping[str, str], stop: _StopSignal
) -> list[str]:
    """Run the operator until a signal arrives; return lines of a summary. Raises OperatorError if it ends by itself."""
    from runner.sdk.dev.board import LiveView  # noqa: PLC0415 - every command would wait for what it imports
    from runner.sdk.dev.operator import OperatorProcess, Restarts  # noqa: PLC0415 - as above
    from runner.sdk.dev.screen import Screen  # noqa: PLC0415 - as above

    ended = threading.Event()
    with tempfile.NamedTemporaryFile("w", prefix="ansible-operator-dev-", suffix=".log", delete=False) as log:
        record = settings.record_rbac or Path(log.name).with_suffix(".rights.yaml")
        view = LiveView((*cluster, f"Log: {log.name}"), _first_steps(cluster))
        _describe(f"Log:         {log.name}")
        _describe("Stop:        Ctrl-C")
        screen = Screen(view, sys.stdout)
        refreshing = threading.Thread(target=_refresh, args=(screen, ended))
        flags = (f"--record-rbac={record}", *flags)
        operator = OperatorProcess(flags, environ, log, screen, lambda: stop.news.put(News.ENDED))
        refreshing.start()
        try:
            with _project(settings, environ, lambda: stop.news.put(News.CHANGED)) as project:
                restarts = Restarts(project, operator, lambda: "" if settings.ui_bind_address else view.page)
                operator.start()
                while not stop.is_received and not operator.failure():
                    if News.CHANGED in _next(stop.news, restarts.pause()):
                        restarts.changed()
                    restarts.apply()
            stop.again = operator.hurry
        finally:
            failure = operator.failure()
            if not failure:
                screen.stop(settings.graceful_shutdown_timeout)
            operator.close(settings.graceful_shutdown_timeout + _CANCEL)
            ended.set()
            refreshing.join()
            screen.close()
    if failure:
        raise OperatorError(f"{failure}; see {log.name}")
    last = [f"Last error: {view.last_error}"] if view.last_error else []
    return [
        f"Runs: {view.succeeded} ok, {view.failed} failed.",
        *last,
        f"Log: {log.name}",
        *_lacking(record, is_temporary=settings.record_rbac is None),
    ]


def _first_steps(cluster: Sequence[str]) -> list[str]:
    """Return what a user types while there is no object."""
    samples = sorted(path for path in _SAMPLES.glob("*.yaml") if path.name != "kustomization.yaml")
    if not samples:
        return ["There is no object. Create one with kubectl, in another terminal."]
    environment = [f"  {cluster[0].rpartition(': ')[2]}"] if cluster[0].startswith("For kubectl") else []
    return ["There is no object. Create one in another terminal:", *environment, f"  kubectl apply -f {samples[0]}"]


def _lacking(record: Path, *, is_temporary: bool) -> list[str]:
    """Return lines about the rights in a record that config/rbac does not grant. Remove a record that is of no use."""
    from runner.features.rights import cli as rights  # noqa: PLC0415 - every command would wait for what it imports

    lines: list[str] = []
    try:
        lines = rights.lacking(record)
    except ConfigError as error:
        return [f"The permissions that runs used are not compared with those of config/rbac: {error}"]
    if lines:
        command = f"Add them: ansible-operator generate rbac {shlex.quote(str(record))}"
        return ["Runs used permissions that config/rbac does not grant to the operator:", *lines, command]
    if is_temporary:
        record.unlink(missing_ok=True)
    return []


def _next(news: SimpleQueue[News], seconds: float | None) -> set[News]:
    """Wait for news, at most for this time; return all that have arrived."""
    arrived: set[News] = set()
    with suppress(Empty):
        arrived.add(news.get(timeout=seconds))
        while True:
            arrived.add(news.get_nowait())
    return arrived


def _refresh(screen: Screen, ended: threading.Event) -> None:
    """Show the operator's objects until the end."""
    while not ended.wait(_REFRESH):
        screen.refresh()


def _settings(add: Callable[[Any, Option], None], flags: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """Return the settings of the operator. The operator itself reports unknown flags."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for option in OPTIONS:
        add(parser, option)
    return sources.load(parser.parse_known_args(flags)[0], environ).settings


def _project(settings: Settings, environ: Mapping[str, str], notify: Callable[[], None]) -> Project:
    """Return the project. Raises ConfigError if it is invalid."""
    from runner.sdk.dev.project import Project  # noqa: PLC0415 - every command would wait for what it imports

    project = Project(settings, environ, Path.cwd(), notify)
    project.load()
    return project


def _describe(text: str) -> None:
    """Print a line about addresses and keys, which the view on a terminal has itself."""
    if not sys.stdout.isatty():
        _print(text)


def _print(text: str) -> None:
    with suppress(OSError):  # the terminal was closed, or the reader of the pipe has ended
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
