"""Supervisor process of one run: `python -m runner.core.engine.child`.

It uses the protocol of `wire` on its standard streams. When stdin closes, the operator has ended: the supervisor ends
the run and removes its kubeconfig. If the operator does not read, writing blocks, and Ansible waits. Must not import
parts of this package that a run does not need, because each run pays for the import.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import locale
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any, BinaryIO

import ansible_runner
from ansible_runner import runner
from ansible_runner.config.runner import RunnerConfig
from ansible_runner.runner import Runner, pexpect
from ansible_runner.utils import OutputEventFilter

from runner.agent import process_tree
from runner.core.engine.memory_watch import MemoryWatch
from runner.core.engine.wire import ARTIFACTS, GRACE, HEADER, LEARNED, STOP, ChildEnd, Kind, Order

_START = "\x1b[K"
_MARK = re.compile(r"\x1b\[K((?:[A-Za-z0-9+/=]{1,78}\x1b\[\d{1,2}D){1,2})\x1b\[K")
"""Marks of ansible-runner's callback consist of at most two parts."""
_BETWEEN = re.compile(r"\x1b\[\d{1,2}D")
_UUID = re.compile(r"[0-9A-Za-z-]{30,48}(?:_\d{1,9})?")
"""Callbacks number the events of one task on several hosts."""


class EventFilter(OutputEventFilter):  # type: ignore[misc]  # ansible-runner has no types
    """Events in the output of ansible-playbook, from marks with data.

    The callback of ansible-runner sends the data of an event to a file or a socket. Then it writes two marks around the
    event's text on the terminal. A role can print text that looks like such a mark, for example from the spec of a
    resource. Here a mark begins an event only if it contains nothing but an ID, and if data with this ID was sent. The
    ID is random. All other text that looks like a mark remains text. Such text can end the text of its own event early:
    the end of an event has no ID. The rest is then output outside of any task, without data.
    """

    def __init__(
        self,
        handle: None,
        event_callback: Callable[[dict[str, Any]], None],
        *_: Any,
        is_sent: Callable[[str], bool],
        **__: Any,
    ) -> None:
        # Without a file. `is_sent` returns whether the data of the event with this ID was sent.
        super().__init__(handle, event_callback, suppress_ansible_output=True)
        self._is_sent = is_sent

    def write(self, data: str) -> None:
        """Process more output."""
        self._buffer.write(data)
        recent = self._last_chunk + data
        self._last_chunk: str = data
        if _START in recent:
            self._end_at_marks()
        if "\n" in data and self._current_event_data is None:
            *lines, last = self._buffer.getvalue().splitlines(keepends=True) or [""]
            if last.endswith("\n"):
                lines, last = [*lines, last], ""
            for line in lines:
                self._emit_event(line)
            self._restart(last)

    def _end_at_marks(self) -> None:
        """Emit the events that end at a mark in the buffer."""
        rest = self._buffer.getvalue()
        position = 0
        while match := _MARK.search(rest, position):
            begun = self._begun(match[1])
            if begun is None:
                position = match.start() + 1
                continue
            self._emit_event(rest[: match.start()], begun)
            rest, position = rest[match.end() :], 0
            self._last_chunk = rest
            self._restart(rest)

    def _begun(self, content: str) -> dict[str, Any] | None:
        """Return the event that a mark begins, an empty one for the end of an event, and None for other text."""
        try:
            value = json.loads(base64.b64decode(_BETWEEN.sub("", content)))
        except ValueError:
            return None
        if value == {}:
            return {}
        uuid = value.get("uuid") if isinstance(value, dict) and len(value) == 1 else None
        if isinstance(uuid, str) and _UUID.fullmatch(uuid) and self._is_sent(uuid):
            return {"uuid": uuid}
        return None

    def _restart(self, rest: str) -> None:
        self._buffer = StringIO()
        self._buffer.write(rest)


_ENDING = 0.02
"""Seconds in which helpers of Ansible usually end by themselves. Waiting costs less than a search for process_tree."""
_LAST_WORD = 5.0
"""Seconds after a signal in which an operator that was killed closes its end of the control stream."""
_LONGEST_NOTES = 16 * 1024 * 1024
"""Bytes of a file of notes that are read: a line for each of 200,000 tasks."""


def _without_wait(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


class Supervisor:
    """Runner of one order."""

    def __init__(self, order: Order, control: BinaryIO, events: BinaryIO, spawn: type[Spawn]) -> None:
        self._order = order
        self._control = control
        self._events = events
        self._spawn = spawn
        self._process: Spawn | None = None
        self._stopping = threading.Event()
        self._listener: threading.Thread | None = None
        self._memory = 0
        self._stuck = False

    def run(self) -> None:
        """Run Ansible. Send every event, then the ending."""
        signaled = threading.Event()

        def end(*_: object) -> None:
            signaled.set()
            threading.Thread(target=self._stop, daemon=True).start()

        signal.signal(signal.SIGTERM, end)
        try:
            ending = self._ansible()
        except Exception as error:  # noqa: BLE001 - whatever ansible-runner raises, the operator must receive it
            ending = ChildEnd(code=None, signal=None, error=f"{type(error).__name__}: {error}", alone=False, learned="")
        try:
            self._send(Kind.ENDING, asdict(ending))
        except BrokenPipeError:
            self._abandon()
        if signaled.is_set() and self._listener is not None:
            # The kernel sends the signal of a killed operator before it closes all of its streams, so the ending can
            # have been sent to nobody. The listener then removes the files.
            self._listener.join(_LAST_WORD)

    def _ansible(self) -> ChildEnd:
        order = self._order
        config = RunnerConfig(
            private_data_dir=order.run_dir,
            ident=order.ident,
            playbook=order.playbook,
            inventory=order.inventories,
            verbosity=order.verbosity,
            cmdline=order.ansible_args or None,
            quiet=True,
            artifact_dir=str(Path(order.temporary, ARTIFACTS)),
            suppress_output_file=True,
            fact_cache=order.facts or None,
        )
        config.prepare()
        config.command[0] = ansible_playbook()
        config.env |= utf8_locale()
        self._spawn.started = self._started
        pexpect.spawn = self._spawn
        run = _Run(config, event_handler=self._event, cancel_callback=self._stopping.is_set)
        run.take_event = self._take_event
        is_sent = functools.partial(self._is_sent, Path(config.artifact_dir, "job_events"))
        runner.OutputEventFilter = functools.partial(EventFilter, is_sent=is_sent)
        run.run()
        killed_by = self._process.signalstatus if self._process else None
        return ChildEnd(
            code=None if killed_by else run.rc,
            signal=killed_by,
            error="",
            alone=not process_tree.has_children(),
            learned=self._learned(),
            memory=self._memory,
            stuck=self._stuck,
            status=run.status,
            rc=run.rc,
        )

    def _learned(self) -> str:
        """Return the notes that a run writes for its starter, as far as they are not too long; empty if there are none.

        A role can write to this file, or make it a pipe whose reader would wait.
        """
        try:
            with open(Path(self._order.temporary, LEARNED), "rb", opener=_without_wait) as file:
                return file.read(_LONGEST_NOTES).decode(errors="replace")
        except OSError:
            return ""  # only the runs of some starters write it

    def _started(self, process: Spawn) -> None:
        """Listen to the operator from now on. A second thread before the fork could make the child hang."""
        self._process = process
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        MemoryWatch(self._order.memory, self._out_of_memory).start()

    def _out_of_memory(self, used: int) -> None:
        self._memory, self._stuck = used, not used
        self._stop()

    def _take_event(self, uuid: str) -> dict[str, Any] | None:
        return self._spawn.take_event(uuid)

    def _is_sent(self, folder: Path, uuid: str) -> bool:
        """Return True if the callback sent the data of an event: through the socket, or as a file in this folder."""
        return self._spawn.has_event(uuid) or (folder / f"{uuid}-partial.json").exists()

    def _event(self, event: dict[str, Any]) -> bool:
        if "uuid" in event:  # the marker of the end of output has none
            self._send(Kind.EVENT, event)
        return False  # the operator writes its file

    def _send(self, kind: Kind, value: Any) -> None:
        body = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        self._events.write(HEADER.pack(kind, len(body)))
        self._events.write(body)
        self._events.flush()

    def _listen(self) -> None:
        while self._control.readline() == STOP:
            self._stop()
        self._abandon()

    def _stop(self) -> None:
        self._stopping.set()
        process_tree.end_descendants(GRACE)

    def _abandon(self) -> None:
        """End without an operator: end all processes, and remove the files that the operator would have removed."""
        self._stop()
        Path(self._order.kubeconfig).unlink(missing_ok=True)
        shutil.rmtree(self._order.temporary, ignore_errors=True)
        process_tree.reap_children()
        os._exit(1)


def _nothing(_: str) -> dict[str, Any] | None:
    return None


def _never(_: str) -> bool:
    return False


class _Run(Runner):  # type: ignore[misc]  # ansible-runner has no types
    """Runner that reads the content of an event from the socket if it is not in a file."""

    take_event: Callable[[str], dict[str, Any] | None] = staticmethod(_nothing)

    def event_callback(self, event_data: dict[str, Any]) -> None:
        """Complete an event and forward it. Without a file to read, this uses fewer system calls."""
        data = self.take_event(event_data.get("uuid", ""))
        if not data or "created" not in data:
            super().event_callback(event_data)
            return
        self.last_stdout_update = time.time()
        event_data.update({"runner_ident": str(self.config.ident), **data})
        self.event_handler(event_data)
        for plugin in ansible_runner.plugins.values():
            plugin.event_handler(self.config, event_data)


class Spawn(pexpect.spawn):  # type: ignore[misc]  # pexpect has no types
    """Process of ansible-playbook, with more information than ansible-runner provides.

    It dies with its supervisor. When it ends, background processes of the role are ended too. They would keep open the
    terminal that ansible-runner reads to its end, and run with a kubeconfig that is removed.
    """

    started: Callable[[Spawn], None]
    take_event: Callable[[str], dict[str, Any] | None] = staticmethod(_nothing)
    """Content of an event that was not sent through a file."""
    has_event: Callable[[str], bool] = staticmethod(_never)
    """Whether there is such content."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, preexec_fn=_die_with_supervisor, **kwargs)
        self._swept = False
        type(self).started(self)

    def isalive(self) -> bool:
        """Return True if the process is alive. When it has ended, end and reap the processes that it left."""
        alive: bool = super().isalive()
        if not alive and not self._swept:
            self._swept = True
            process_tree.await_children(_ENDING)
            process_tree.end_descendants(GRACE)
            process_tree.reap_children()
            self.ptyproc.delayafterclose = 0  # the time that a process gets to end; this one has ended
        return alive


def _die_with_supervisor() -> None:
    process_tree.signal_on_parent_death(signal.SIGKILL)


def ansible_playbook() -> str:
    """Return the ansible-playbook beside the current Python, else the one in `PATH`."""
    beside = Path(sys.executable).with_name("ansible-playbook")
    return str(beside) if beside.exists() else shutil.which("ansible-playbook") or "ansible-playbook"


def utf8_locale() -> dict[str, str]:
    """Return the missing environment variables of an existing UTF-8 locale. Ansible starts with no other."""
    with contextlib.suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, "")
        if locale.nl_langinfo(locale.CODESET).upper() == "UTF-8":
            return {}
    return {"LC_ALL": "C.UTF-8"}


def main() -> None:
    """Read the order and run it."""
    control = os.fdopen(os.dup(0), "rb")
    events = os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # output of a library must not get between frames
    process_tree.adopt_orphans()
    process_tree.signal_on_parent_death(signal.SIGTERM)
    order = Order(**json.loads(control.readline()))
    Supervisor(order, control, events, Spawn).run()
    os._exit(0)  # a normal exit would wait for the stream that the listening thread holds


if __name__ == "__main__":
    main()
