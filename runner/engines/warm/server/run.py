"""A forked run: the supervisor and its child, the playbook's process.

Both correspond to the processes of `child`, without new interpreters. The supervisor is the same class. The playbook's
process calls `ansible-playbook`'s own main function with the same folder, arguments, environment, terminal and signals.
If the model does not fit a run, ansible-playbook is executed instead. Owns standard streams, `sys.argv`, names and keys
that must differ between processes, and the exit. `refresh` renews the state of Ansible. Import this module only where
`model` has loaded Ansible.
"""

from __future__ import annotations

import json
import multiprocessing.process
import os
import pty
import signal
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import ptyprocess.ptyprocess
from ansible.cli.playbook import main
from ptyprocess import PtyProcess

from runner.agent import interpreter, process_tree
from runner.core.engine.child import Spawn, Supervisor
from runner.core.engine.wire import Order
from runner.engines.warm import messages, procfs
from runner.engines.warm.patches import event_socket, shortcuts
from runner.engines.warm.patches.shortcuts import InstallError, PreparedShortcuts
from runner.engines.warm.server import preload
from runner.engines.warm.server.model import WINDOW
from runner.engines.warm.server.refresh import Refresh

_COMMAND = ("-P", "-m", "runner.core.engine.child")


@dataclass(frozen=True, slots=True)
class Base:
    """State of the server that each run starts with."""

    refresh: Refresh
    made: PreparedShortcuts
    """Data that was prepared for shortcuts."""
    disabled: frozenset[str]
    """Shortcuts that failed the self-test."""
    shown: procfs.Shown
    added: Mapping[str, str]
    """Environment variables that the interpreter added at its start."""


def supervise(base: Base, control: int, events: int, stderr: int) -> NoReturn:
    """Run a supervisor in a fork of the server until its end. Does not return."""
    code = 1
    try:
        os.setsid()
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a constant
            os.dup2(nothing.fileno(), 0)
        os.dup2(stderr, 1)
        os.dup2(stderr, 2)
        os.close(stderr)
        reading, writing = os.fdopen(control, "rb"), os.fdopen(events, "wb")
        first = reading.readline()
        if first:  # otherwise the operator sent this order to another server
            # Not earlier: until the operator has sent the order, the parent can be the intermediate process.
            process_tree.signal_on_parent_death(signal.SIGTERM)
            process_tree.adopt_orphans()
            setup = json.loads(first)
            _enter(base, {**base.added, **setup["environment"]}, [sys.executable, *_COMMAND])
            order = Order(**json.loads(reading.readline()))
            Supervisor(order, reading, writing, _spawn(base, frozenset(setup["without"]))).run()
            code = 0
    except BaseException:  # noqa: BLE001 - the operator reads the traceback
        traceback.print_exc()
    os._exit(code)


def _enter(base: Base, environment: Mapping[str, str], arguments: list[str]) -> None:
    """Replace the environment, also the copy that other processes read in /proc."""
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    procfs.show(base.shown, arguments, environment)


def _spawn(base: Base, without: frozenset[str]) -> type[Spawn]:
    """Return a subclass of `Spawn` that forks."""

    class Forked(Spawn):
        """Process of ansible-playbook without a new interpreter."""

        def _spawnpty(self, args: list[bytes], **options: Any) -> PtyProcess:
            receiver, sender = event_socket.pair()
            events = event_socket.EventReceiver(receiver)
            Forked.take_event, Forked.has_event = events.take, events.has
            with sender:
                return _fork(base, without, [os.fsdecode(arg) for arg in args], options, event_socket.keep(sender))

    return Forked


def _fork(
    base: Base, without: frozenset[str], arguments: list[str], options: Mapping[str, Any], event_descriptor: int
) -> PtyProcess:
    """Fork with a terminal as `PtyProcess.spawn` does, without executing a program."""
    pid, descriptor = pty.fork()
    if pid == 0:
        _be_playbook(base, without, arguments, options, event_descriptor)
    os.close(event_descriptor)
    process = PtyProcess(pid, descriptor)
    process.argv, process.env, process.launch_dir = arguments, options["env"], options["cwd"]
    return process


def _be_playbook(
    base: Base, without: frozenset[str], arguments: list[str], options: Mapping[str, Any], event_descriptor: int
) -> NoReturn:
    code = 1
    try:
        ptyprocess.ptyprocess._setwinsize(0, *WINDOW)  # noqa: SLF001 - there is no public name
        if not options["echo"]:
            ptyprocess.ptyprocess._setecho(0, False)  # noqa: FBT003,SLF001 - as above
        os.closerange(3, event_descriptor)
        os.closerange(event_descriptor + 1, os.sysconf("SC_OPEN_MAX"))
        os.chdir(options["cwd"])
        options["preexec_fn"]()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        environment = dict(options["env"])
        _enter(base, environment, [sys.executable, *arguments])
        if mismatch := base.refresh.mismatch(environment):
            messages.note(environment, {"mismatch": mismatch})
            os.execve(arguments[0], arguments, environment)  # noqa: S606 - the command of ansible-runner
        procfs.name("ansible-playbook")
        try:
            begin(base.refresh, arguments)
            code = play(base.made, without | base.disabled, event_descriptor)
        except InstallError as error:  # no task has run yet
            messages.note(environment, {"mismatch": str(error)})
            os.execve(arguments[0], arguments, environment)  # noqa: S606 - as above
    except BaseException:  # noqa: BLE001 - the traceback is the run's output
        traceback.print_exc()
    os._exit(code)


def begin(refresh: Refresh, arguments: list[str]) -> None:
    """Give this process the state of a new `ansible-playbook` with these arguments."""
    sys.argv = list(arguments)
    sys.orig_argv = [sys.executable, *arguments]
    sys.modules["__main__"].__file__ = arguments[0]
    current: Any = multiprocessing.process.current_process()
    current.authkey = os.urandom(32)
    interpreter.open_streams(refresh.model.streams)
    os.write(1, refresh.model.import_output)
    refresh.apply()


def play(made: PreparedShortcuts, without: frozenset[str], event_descriptor: int) -> int:
    """Run `ansible-playbook` without some shortcuts, after `begin`. Return its exit code.

    `event_descriptor` is the number of the socket for the data of events.
    """
    os.environ[shortcuts.LEARNED] = messages.noted_in(os.environ)
    templates = shortcuts.install(without, made, event_descriptor)
    del os.environ[shortcuts.LEARNED]
    before = frozenset(sys.modules)
    code = interpreter.exit_code(main)
    if plugins := preload.worth_loading(before):
        messages.note(os.environ, {"plugins": plugins})
    if templates:
        messages.note(os.environ, {"templates": list(templates.values())})
    return interpreter.finish(code)
