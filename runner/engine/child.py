"""The supervisor: one run in a process of its own, `python -m runner.engine.child`.

Speaks `wire` over its standard streams. When stdin closes, the operator is gone: the run ends, and its kubeconfig is
removed. Writing blocks while the operator does not read, and so does Ansible. Must not import anything of this package
that is not needed to run, as each run pays for it.
"""

from __future__ import annotations

import contextlib
import json
import locale
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import ansible_runner
from ansible_runner.config.runner import RunnerConfig
from ansible_runner.runner import Runner, pexpect

from runner.engine import executions, processes
from runner.engine.memory_watch import MemoryWatch
from runner.engine.wire import GRACE, HEADER, LEARNED, STOP, Ending, Kind, Order

_ENDING = 0.02
"""Seconds in which what served Ansible alone ends by itself: to look for what is left costs more than to wait."""


class Supervisor:
    """Runs one order to its end."""

    def __init__(self, order: Order, control: BinaryIO, events: BinaryIO, spawn: type[Spawn]) -> None:
        self._order = order
        self._control = control
        self._events = events
        self._spawn = spawn
        self._process: Spawn | None = None
        self._stopping = threading.Event()
        self._memory = 0

    def run(self) -> None:
        """Run Ansible; send every event, then the ending."""
        try:
            ending = self._ansible()
        except Exception as error:  # noqa: BLE001 - whatever ansible-runner raises, the operator must be told
            ending = Ending(code=None, signal=None, error=f"{type(error).__name__}: {error}", alone=False, learned="")
        try:
            self._send(Kind.ENDING, asdict(ending))
        except BrokenPipeError:
            self._abandon()

    def _ansible(self) -> Ending:
        order = self._order
        config = RunnerConfig(
            private_data_dir=order.run_dir,
            ident=order.ident,
            playbook=order.playbook,
            inventory=order.inventory,
            verbosity=order.verbosity,
            cmdline=order.ansible_args or None,
            quiet=True,
        )
        config.prepare()
        config.command[0] = ansible_playbook()
        config.env |= utf8_locale()
        self._spawn.started = self._started
        pexpect.spawn = self._spawn
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=self._stop, daemon=True).start())
        run = _Run(config, event_handler=self._event, cancel_callback=self._stopping.is_set)
        run.said = self._said
        run.run()
        killed_by = self._process.signalstatus if self._process else None
        return Ending(
            code=None if killed_by else run.rc,
            signal=killed_by,
            error="",
            alone=not processes.has_children(),
            learned=self._learned(),
            memory=self._memory,
            executions=self._executions(),
        )

    def _executions(self) -> dict[str, Any]:
        try:
            with Path(self._order.temporary, executions.EXECUTIONS).open(encoding="utf-8", errors="replace") as file:
                return executions.add_up(file)
        except OSError:
            return {}  # none were noted: only forked runs do

    def _learned(self) -> str:
        try:
            return Path(self._order.temporary, LEARNED).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return ""  # nothing was, or it was cut short

    def _started(self, process: Spawn) -> None:
        """Listen to the operator from now on: before the fork, a second thread could make it hang."""
        self._process = process
        threading.Thread(target=self._listen, daemon=True).start()
        MemoryWatch(self._order.memory, self._over_memory).start()

    def _over_memory(self, used: int) -> None:
        self._memory = used
        self._stop()

    def _said(self, uuid: str) -> dict[str, Any] | None:
        return self._spawn.said(uuid)

    def _event(self, event: dict[str, Any]) -> bool:
        if "uuid" in event:  # the marker of the end of output has none
            self._send(Kind.EVENT, event)
        return True

    def _send(self, kind: Kind, value: Any) -> None:
        body = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        self._events.write(HEADER.pack(kind, len(body)))
        self._events.write(body)
        self._events.flush()

    def _listen(self) -> None:
        while self._control.readline() == STOP:
            self._stop()
        self._stop()
        self._abandon()

    def _stop(self) -> None:
        self._stopping.set()
        processes.end_descendants(GRACE)

    def _abandon(self) -> None:
        """End without an operator: what it would have removed is removed here."""
        Path(self._order.kubeconfig).unlink(missing_ok=True)
        shutil.rmtree(self._order.temporary, ignore_errors=True)
        processes.reap_children()
        os._exit(1)


def _nothing(_: str) -> dict[str, Any] | None:
    return None


class _Run(Runner):  # type: ignore[misc]  # ansible-runner has no types
    """Takes what an event holds from where it was said, if that is no file."""

    said: Callable[[str], dict[str, Any] | None] = staticmethod(_nothing)

    def event_callback(self, event_data: dict[str, Any]) -> None:
        """Complete an event, pass it on, and write it down, with fewer system calls where there is no file to read."""
        said = self.said(event_data.get("uuid", ""))
        if not said or "created" not in said:
            super().event_callback(event_data)
            return
        self.last_stdout_update = time.time()
        event_data.update({"runner_ident": str(self.config.ident), **said})
        is_kept = self.event_handler(event_data)
        for plugin in ansible_runner.plugins.values():
            plugin.event_handler(self.config, event_data)
        if is_kept:
            name = f"{event_data['counter']}-{event_data['uuid']}.json"
            with contextlib.suppress(OSError):  # as ansible-runner: it goes on without
                _write(f"{self.config.artifact_dir}/job_events/{name}", json.dumps(event_data).encode())


def _write(path: str, data: bytes) -> None:
    """Write a file that is there whole or not at all once this returns or fails.

    Under its own name from the beginning: to rename it would cost as much as to make it, and who reads events while a
    run goes on takes them from the operator.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            written = file.write(data)
    except OSError:
        written = 0
    if written != len(data):
        os.unlink(path)  # noqa: PTH108 - strings


class Spawn(pexpect.spawn):  # type: ignore[misc]  # pexpect has no types
    """ansible-playbook's process, of which ansible-runner tells too little.

    Dies with its supervisor. Once it has ended, so has what a role left in the background: it would hold the terminal
    that ansible-runner reads to its end, and go on with a kubeconfig that is no more.
    """

    started: Callable[[Spawn], None]
    said: Callable[[str], dict[str, Any] | None] = staticmethod(_nothing)
    """What an event holds, where its data goes another way than through a file."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, preexec_fn=_die_with_supervisor, **kwargs)
        self._swept = False
        type(self).started(self)

    def isalive(self) -> bool:
        """Whether the process lives; sweeps up behind it when it does no more."""
        alive: bool = super().isalive()
        if not alive and not self._swept:
            self._swept = True
            processes.await_children(_ENDING)
            processes.end_descendants(GRACE)
            processes.reap_children()
            self.ptyproc.delayafterclose = 0  # the time that a process gets to end; this one has ended
        return alive


def _die_with_supervisor() -> None:
    processes.signal_on_parent_death(signal.SIGKILL)


def ansible_playbook() -> str:
    """Return the ansible-playbook beside our own Python, else the one on the path."""
    beside = Path(sys.executable).with_name("ansible-playbook")
    return str(beside) if beside.exists() else shutil.which("ansible-playbook") or "ansible-playbook"


def utf8_locale() -> dict[str, str]:
    """Return what the environment lacks for a locale that exists and is UTF-8: Ansible starts in no other."""
    with contextlib.suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, "")
        if locale.nl_langinfo(locale.CODESET).upper() == "UTF-8":
            return {}
    return {"LC_ALL": "C.UTF-8"}


def main() -> None:
    """Read the order, carry it out."""
    control = os.fdopen(os.dup(0), "rb")
    events = os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # whatever a library prints must not end up between frames
    processes.adopt_orphans()
    processes.signal_on_parent_death(signal.SIGTERM)
    order = Order(**json.loads(control.readline()))
    Supervisor(order, control, events, Spawn).run()
    os._exit(0)  # the listening thread holds the stream that a normal exit would wait for


if __name__ == "__main__":
    main()
