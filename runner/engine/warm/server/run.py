"""A forked run: the supervisor, and the playbook's process below it.

Both are what `child` starts, without the interpreters: the supervisor is the same class, and the playbook's process
goes the way of `ansible-playbook`'s own main function in the same folder, with the same arguments, environment,
terminal and signals. Where the model does not cover a run, ansible-playbook is executed instead.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import ptyprocess.ptyprocess
from ptyprocess import PtyProcess

from runner.engine import processes
from runner.engine.child import Spawn, Supervisor
from runner.engine.warm import messages, procfs
from runner.engine.warm.patches import event_socket
from runner.engine.warm.patches.shortcuts import InstallError, Made
from runner.engine.warm.server import playbook
from runner.engine.warm.server.model import WINDOW
from runner.engine.warm.server.refresh import Refresh
from runner.engine.wire import Order

_COMMAND = ("-P", "-m", "runner.engine.child")


@dataclass(frozen=True, slots=True)
class Base:
    """What every run of a server starts from."""

    refresh: Refresh
    made: Made
    """What was made ready for shortcuts."""
    disabled: frozenset[str]
    """Shortcuts that failed the self-test."""
    shown: procfs.Shown
    added: Mapping[str, str]
    """What the interpreter itself added to the environment that it was started with."""


def supervise(base: Base, control: int, events: int, complaints: int) -> NoReturn:
    """Be a run's supervisor, from a fork of the server to the end of the process."""
    code = 1
    try:
        os.setsid()
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a constant
            os.dup2(nothing.fileno(), 0)
        os.dup2(complaints, 1)
        os.dup2(complaints, 2)
        os.close(complaints)
        reading, writing = os.fdopen(control, "rb"), os.fdopen(events, "wb")
        first = reading.readline()
        if first:  # else the operator gave this run to another server
            # Not before: until the operator has spoken, our parent is the process between.
            processes.signal_on_parent_death(signal.SIGTERM)
            processes.adopt_orphans()
            said = json.loads(first)
            _enter(base, {**base.added, **said["environment"]}, [sys.executable, *_COMMAND])
            order = Order(**json.loads(reading.readline()))
            Supervisor(order, reading, writing, _spawn(base, frozenset(said["without"]))).run()
            code = 0
    except BaseException:  # noqa: BLE001 - nothing is above us; the operator reads it
        traceback.print_exc()
    os._exit(code)


def _enter(base: Base, environment: Mapping[str, str], arguments: list[str]) -> None:
    """Take on an environment, also where others look at it."""
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    procfs.show(base.shown, arguments, environment)


def _spawn(base: Base, without: frozenset[str]) -> type[Spawn]:
    """Make a `Spawn` that forks."""

    class Forked(Spawn):
        """ansible-playbook's process, without a new interpreter."""

        def _spawnpty(self, args: list[bytes], **options: Any) -> PtyProcess:
            receiver, sender = event_socket.pair()
            Forked.said = event_socket.Heard(receiver).take
            with sender:
                return _fork(base, without, [os.fsdecode(each) for each in args], options, event_socket.keep(sender))

    return Forked


def _fork(
    base: Base, without: frozenset[str], arguments: list[str], options: Mapping[str, Any], telling: int
) -> PtyProcess:
    """Do what `PtyProcess.spawn` does, up to executing a program."""
    pid, descriptor = pty.fork()
    if pid == 0:
        _be_playbook(base, without, arguments, options, telling)
    os.close(telling)
    process = PtyProcess(pid, descriptor)
    process.argv, process.env, process.launch_dir = arguments, options["env"], options["cwd"]
    return process


def _be_playbook(
    base: Base, without: frozenset[str], arguments: list[str], options: Mapping[str, Any], telling: int
) -> NoReturn:
    code = 1
    try:
        ptyprocess.ptyprocess._setwinsize(0, *WINDOW)  # noqa: SLF001 - of the same version as the class
        if not options["echo"]:
            ptyprocess.ptyprocess._setecho(0, False)  # noqa: FBT003,SLF001 - as above
        os.closerange(3, telling)
        os.closerange(telling + 1, os.sysconf("SC_OPEN_MAX"))
        os.chdir(options["cwd"])
        options["preexec_fn"]()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        environment = dict(options["env"])
        _enter(base, environment, [sys.executable, *arguments])
        if unlike := base.refresh.unlike(environment):
            messages.note(environment, {"unlike": unlike})
            os.execve(arguments[0], arguments, environment)  # noqa: S606 - the command that ansible-runner asks for
        procfs.name("ansible-playbook")
        try:
            playbook.begin(base.refresh, arguments)
            code = playbook.run(base.made, without | base.disabled, telling)
        except InstallError as error:  # nothing of the playbook has run yet
            messages.note(environment, {"unlike": str(error)})
            os.execve(arguments[0], arguments, environment)  # noqa: S606 - as above
    except BaseException:  # noqa: BLE001 - nothing is above us
        traceback.print_exc()
    os._exit(code)
