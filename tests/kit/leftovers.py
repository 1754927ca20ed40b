"""What tests leave behind: processes, listening ports of the test's own process, and temporary folders.

A session looks once, at its end, and names each leftover with the test that made it where that is known. Processes end
then.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from runner.agent import process_tree
from tests.kit.wait import patience

SESSION = "PYTEST_LEFTOVERS_OF"
"""All that a test starts inherits it, and PYTEST_CURRENT_TEST too, which names the test."""
_ENDING = 10.0
_SERVES_PYTHON = "multiprocessing.resource_tracker"
_LISTENS = "0A"


class Leftovers:
    """A plugin of a process that runs tests."""

    def __init__(self) -> None:
        self._session = uuid.uuid4().hex
        self._folders: dict[str, str] = {}
        self._make = tempfile.mkdtemp
        self.found: list[str] = []

    def begin(self) -> None:
        """Mark what this process starts, and note its temporary folders."""
        os.environ[SESSION] = self._session
        cast("Any", tempfile).mkdtemp = self._noted

    def _noted(self, *args: str | None, **options: str | None) -> str:
        folder: str = self._make(*args, **options)
        self._folders[folder] = os.environ.get("PYTEST_CURRENT_TEST", "a fixture")
        return folder

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Look for leftovers when all fixtures have ended, and tell them to the process that prints."""
        tempfile.mkdtemp = self._make
        processes = self._processes()
        end = time.monotonic() + patience(_ENDING)
        while processes and time.monotonic() < end:
            time.sleep(0.1)
            processes = self._processes()
        shared = Path(tempfile.gettempdir())  # pytest removes its own folders below
        made = [(Path(folder), test) for folder, test in self._folders.items()]
        folders = [f"folder {folder} of {test}" for folder, test in made if folder.parent == shared and folder.exists()]
        ports = [f"port {number}, on which this process listens" for number in _ports()]
        self.found = [*processes.values(), *folders, *ports]
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output["leftovers"] = self.found

    def _processes(self) -> dict[int, str]:
        """Return the processes that this one started and their descendants, with a description."""
        table = process_tree.table()
        below = process_tree.descendants(table, [os.getpid()])
        found = {}
        for pid, process in table.items():
            environ = _read(f"/proc/{pid}/environ").split("\0")
            is_ours = pid in below or f"{SESSION}={self._session}" in environ
            command = _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
            is_ending = process.zombie or not command  # without memory, so without a command line
            if is_ours and pid != os.getpid() and not is_ending and _SERVES_PYTHON not in command:
                test = next(
                    (each.partition("=")[2] for each in environ if each.startswith("PYTEST_CURRENT_TEST=")), "?"
                )
                found[pid] = f"process {pid} of {test}: {command[:200]}"
        return found


class Printed:
    """A plugin of the process that prints the results: it gathers the leftovers of all."""

    def __init__(self, own: Leftovers | None) -> None:
        self._own = own
        self._found: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take what a worker of pytest-xdist has found."""
        self._found += getattr(node, "workeroutput", {}).get("leftovers", [])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name each leftover."""
        found = self._found + (self._own.found if self._own else [])
        if found:
            terminalreporter.section("LEFTOVERS")
        for each in found:
            terminalreporter.write_line(each)


def register(config: pytest.Config) -> None:
    """Add the plugins; a process that only distributes tests has nothing of its own."""
    if config.option.collectonly or not Path("/proc/self/environ").exists():
        return
    is_worker = hasattr(config, "workerinput")
    own = None
    if is_worker or not getattr(config.option, "numprocesses", None):
        own = Leftovers()
        own.begin()
        config.pluginmanager.register(own)
    if not is_worker:
        config.pluginmanager.register(Printed(own))


def _ports() -> Iterator[int]:
    """Yield the ports of TCP on which this process listens."""
    inodes = set()
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.update(re.findall(r"socket:\[(\d+)\]", str(fd.readlink())))
    for line in (_read("/proc/self/net/tcp") + _read("/proc/self/net/tcp6")).splitlines():
        fields = line.split()
        if fields[3:4] == [_LISTENS] and fields[9] in inodes:
            yield int(fields[1].rpartition(":")[2], 16)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # it has ended, or is another user's
