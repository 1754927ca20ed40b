"""The operator process of `dev`, which starts again after each edit of the project.

An edit ends the operator at once, so that no run starts with a part of it. When the files have been still for a
moment and the project is valid, the operator starts again. While the project is invalid, no operator runs.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import IO
from urllib.parse import urlsplit

from runner.base.config import paths
from runner.sdk.dev.project import Project
from runner.sdk.dev.screen import Screen
from runner.sdk.devcluster import processes
from runner.values.errors import ConfigError

_SETTLE = 0.1
"""Seconds without a change before an edit is read: editors write in several steps."""
_READ_AGAIN = 1.0
"""Seconds until an invalid project is read again: its cure can be a file in a folder that is not observed."""
_STOP = 60.0
"""Seconds that the operator has to end after SIGTERM."""
_MOST_NAMED = 5
_PORTS = ("--proxy-port=0", "--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0")
GRACE = "--graceful-shutdown-timeout=2s"
"""A developer does not wait for the end of long runs."""
_PROGRAM = """\
import json, sys
from runner.app import app
from runner.cli import main
flags = sys.stdin.readline()
sys.exit(main.main(json.loads(flags)) if flags else 0)
"""
"""Loads the modules of the operator before it has its flags: this takes most of the time of a restart."""
_PREPARE = 3.0
"""Seconds after a start until the next process is prepared, so that the operator's start does not share the CPU."""
_FORMATS = ("--log-format=json", "--ansible-log-format=json")
"""The live view parses the operator's output."""


class OperatorProcess:
    """One process of the operator after another."""

    def __init__(
        self, flags: Sequence[str], environ: Mapping[str, str], log: IO[str], screen: Screen, notify: Callable[[], None]
    ) -> None:
        """`flags` are the user's. `notify` is called from another thread when a process has ended."""
        self._flags = flags
        self._environ = environ
        self._log = log
        self._screen = screen
        self._notify = notify
        self._is_ending = False
        self._has_ended = False
        """Whether all output of the process was read."""
        self._process: subprocess.Popen[str] | None = None
        self._next: subprocess.Popen[str] | None = None
        self._reading: threading.Thread | None = None

    def prepare(self) -> None:
        """Create the next process, which loads its modules and waits for its flags."""
        if self._next is None:
            self._next = subprocess.Popen(
                # Its own session: only this process receives Ctrl-C, and ends the operator once.
                [sys.executable, "-P", "-c", _PROGRAM],
                env={**paths.AS_DEPLOYED, **self._environ}, start_new_session=True, text=True, errors="replace",
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def start(self, *, page: str = "") -> None:
        """Start a process. `page`: URL of the status page of the former one, whose port it uses again."""
        self.prepare()
        self._process, self._next, self._is_ending = self._next, None, False
        self._has_ended = False
        port = [f"--ui-bind-address={urlsplit(page).netloc}"] if page else []
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):  # the process has ended, and its output contains the reason
                self._process.stdin.write(json.dumps(["run", *_PORTS, GRACE, *port, *self._flags, *_FORMATS]) + "\n")
                self._process.stdin.close()
            self._reading = threading.Thread(target=self._read, args=(self._process.stdout,))
            self._reading.start()

    @property
    def is_running(self) -> bool:
        """True until it is terminated."""
        return self._process is not None and not self._is_ending

    def terminate(self) -> None:
        """Send SIGTERM once: the operator starts no more runs."""
        if self._process is not None and not self._is_ending:
            self._is_ending = True
            self._process.terminate()

    def hurry(self) -> None:
        """Kill the process if it is ending. Its runs end with it."""
        if self._process is not None and self._is_ending:
            self._process.kill()

    def end(self, within: float = _STOP) -> None:
        """Terminate the process, if there is one, and wait for its end; kill it after `within` seconds."""
        self.terminate()
        if self._process is not None and self._reading is not None:
            processes.await_end(self._process, within)
            self._reading.join()
        self._process = None

    def close(self, within: float) -> None:
        """End the process as `end` does, and the one that is prepared."""
        if self._next is not None:
            self._next.kill()
            self._next.communicate()
        self.end(within)

    def failure(self) -> str:
        """Return why the process has ended by itself; empty if it has not."""
        if self._process is None or self._is_ending or not self._has_ended:
            return ""
        return f"the operator exited with code {self._process.wait()}: {self._screen.last or 'no error message'}"

    def take(self, line: str) -> None:
        """Write a line to the log and to the view."""
        self._log.write(line)
        self._log.flush()
        self._screen.take(line)

    def _read(self, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                self.take(line)
        self._has_ended = True  # before the notification: the thread that gets it can be faster than this one's end
        self._notify()


class Restarts:
    """Decides when the operator ends and starts."""

    def __init__(self, project: Project, operator: OperatorProcess, page: Callable[[], str]) -> None:
        """`page` returns the URL at which the next operator serves the status page; empty for any."""
        self._project = project
        self._operator = operator
        self._page = page
        self._files: dict[str, None] = {}
        """Files of the edit that is not applied yet."""
        self._due = math.inf
        """Time at which the edit is read."""
        self._prepare_at = time.monotonic() + _PREPARE
        self._problem = ""

    def changed(self) -> None:
        """End the operator if a file of the project has another content. Those of finalizers are for later runs."""
        if files := self._project.edited():
            self._files.update(dict.fromkeys(files))
            if not self._project.only_finalize(files):
                self._operator.terminate()
            self._due = time.monotonic() + _SETTLE

    def pause(self) -> float | None:
        """Return the seconds until `apply` has an effect; None if it has none."""
        due = min(self._due, self._prepare_at)
        return None if due == math.inf else max(due - time.monotonic(), 0.0)

    def apply(self) -> None:
        """Start the operator if an edit is due and valid. Otherwise prepare the next process once."""
        now = time.monotonic()
        if now >= min(self._prepare_at, self._due):
            self._prepare_at = math.inf
            self._operator.prepare()
        if now < self._due:
            return
        try:
            self._project.load()
        except ConfigError as error:
            if self._operator.is_running:
                self._operator.terminate()
            self._due = time.monotonic() + _READ_AGAIN
            self._report(str(error))
            return
        self._due, self._problem = math.inf, ""
        named = list(self._files)[:_MOST_NAMED]
        more = [f"{len(self._files) - _MOST_NAMED} more"] if len(self._files) > _MOST_NAMED else []
        self._files = {}
        if self._operator.is_running:
            self._say("info", "A finalizer was edited; the next deletions run it", why=", ".join([*named, *more]))
            return
        self._operator.end()
        self._say("info", "The project was edited; the operator starts again", why=", ".join([*named, *more]))
        self._operator.start(page=self._page())
        self._prepare_at = time.monotonic() + _PREPARE

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            text = "; ".join(problem.splitlines())
            self._say("error", "The project is invalid; no run starts until you fix it", problem=text)

    def _say(self, level: str, message: str, **fields: str) -> None:
        now = datetime.now(UTC).isoformat()
        self._operator.take(json.dumps({"level": level, "msg": message, "ts": now, **fields}) + "\n")
