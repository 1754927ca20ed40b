"""Self-test of the fork server: a small playbook runs in a trial process before the first run is forked.

The playbook uses what the shortcuts speed up: a module of ansible-core, one of a collection, a skipped task, a template
and lookups. A shortcut that cannot be installed is disabled for the runs of this server. If the playbook fails, but
succeeds without shortcuts, all are disabled. Shortcuts that fall back to a slower way on their own are reported, not
disabled. Import this module only where `model` has loaded Ansible.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import socket
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.plugins.loader import callback_loader, module_loader

from runner.agent import process_tree
from runner.core.engine import processes
from runner.engines.warm import messages, task_record
from runner.engines.warm.patches import event_socket, shortcuts
from runner.engines.warm.patches.shortcuts import InstallError, PreparedShortcuts
from runner.engines.warm.server import run as runs
from runner.engines.warm.server.refresh import Refresh

_WITHIN = 60.0
"""Seconds that a trial may take."""
_REAP_WITHIN = 5.0
"""Seconds for processes that a trial left behind to end."""
_MAX_BASE = 40
"""Characters of the folder below which a trial's sockets are created: the path of a socket has at most 107 bytes."""
_MOST = 300
"""Characters of a problem, which is one line."""
_MARKS = re.compile(r"(?:[A-Za-z0-9+/=]+\x1b\[\d+D)+|\x1b\[[0-9;]*[mK]")
"""Colours, and how ansible-runner's callback marks events on the terminal."""
_UNEXPECTED = frozenset({"defect", "fork_failed", "payload", "resources"})
"""Reasons of slower ways that no setting of the project explains."""
_RECORDS = {
    "modules": {task_record.MODULE, task_record.INTERPRETER},
    "tasks": {task_record.PLAYBOOK, task_record.WORKER},
}
"""Ways that a shortcut records. It has no effect if it records none of them."""
_OF_COLLECTION = "operator_sdk.util.requeue_after"
MODULES = frozenset({_OF_COLLECTION})
"""Modules of the playbook that are prepared for it."""
_PLAYBOOK: Any = [
    {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": "{{ ansible_playbook_python }}", "given": {"a": [1, 2]}},
        "tasks": [
            {"set_fact": {"found": "{{ given.a | map('string') | join(',') }}", "path": "{{ lookup('env', 'PATH') }}"}},
            {"fail": {"msg": "not skipped"}, "when": "found != '1,2'"},
            {"stat": {"path": "/"}, "register": "root"},
            {"copy": {"content": "{{ found }}", "dest": "copied"}},
            {"set_fact": {"read": "{{ lookup('file', 'copied') }}"}},
            {"assert": {"that": ["root.stat.isdir", "read == found", "path | length > 0"]}},
        ],
    }
]


@dataclass(frozen=True, slots=True)
class SelfTestResult:
    """Result of the self-test."""

    disabled: dict[str, str] = field(default_factory=dict)
    """Why shortcuts are disabled, by name."""
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Trial:
    """How one trial ended."""

    uninstalled: str = ""
    """The shortcut that cannot be installed."""
    problem: str = ""
    """Why the trial failed; empty if the playbook succeeded."""
    notes: str = ""
    """The notes of the trial's run."""
    has_events: bool = True


def run(refresh: Refresh, made: PreparedShortcuts, scratch: Path, off: frozenset[str]) -> SelfTestResult:
    """Find the shortcuts that cannot be used here. Needs a process with a single thread."""
    bench = _Bench(refresh, made, scratch / "self-test")
    process_tree.adopt_orphans()
    try:
        return _examine(bench, off)
    finally:
        process_tree.adopt_orphans(adopt=False)
        shutil.rmtree(bench.folder, ignore_errors=True)


def _examine(bench: _Bench, off: frozenset[str]) -> SelfTestResult:
    prepared = bench.made.modules, bench.made.templates
    disabled: dict[str, str] = {}
    problems = [problem for part in prepared if part for problem in part.problems]
    trial = bench.run(off)
    while trial.uninstalled and trial.uninstalled not in off | disabled.keys():
        disabled[trial.uninstalled] = trial.problem
        trial = bench.run(off | disabled.keys())
    if trial.problem:
        if without := bench.run(frozenset(shortcuts.NAMES)).problem:
            problems.append(f"the playbook of the self-test fails without any shortcut: {without}")
            if without != trial.problem:
                problems.append(f"with shortcuts: {trial.problem}")
        else:
            disabled |= {name: trial.problem for name in shortcuts.NAMES if name not in off | disabled.keys()}
    else:
        problems += _shortfalls(trial, off | disabled.keys())
    reasons = {name: _line(reason) for name, reason in disabled.items()}
    return SelfTestResult(reasons, tuple(map(_line, (*problems, *bench.leftovers))))


def _shortfalls(trial: _Trial, off: frozenset[str]) -> list[str]:
    """Return the modules and tasks that were slower than expected, and the shortcuts without effect."""
    executions = task_record.executions(trial.notes)
    ways = {task.way for task in executions}
    slower = dict.fromkeys(task for task in executions if task.reason in _UNEXPECTED)
    problems = [f"{task.name} was executed in the slower way {task.way} ({task.reason})" for task in slower]
    problems += [
        f"the shortcut {name} had no effect" for name in _RECORDS if name not in off and not ways & _RECORDS[name]
    ]
    if not trial.has_events and "events" not in off:
        problems.append("no event came through the socket of the shortcut events")
    return [*problems, *task_record.defects(trial.notes)]


@dataclass(frozen=True, slots=True)
class _Bench:
    """Runs trials, one after the other."""

    refresh: Refresh
    made: PreparedShortcuts
    folder: Path
    leftovers: list[str] = field(default_factory=list)
    """Descriptions of processes that did not end with their trial."""

    def run(self, off: frozenset[str]) -> _Trial:
        """Run the playbook once, in a process of its own."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        (self.folder / "playbook.yml").write_text(json.dumps(_tasks(str(self.folder))), encoding="utf-8")
        receiver, sender = event_socket.pair()
        with receiver, sender, tempfile.TemporaryDirectory(dir=_short_folder(), prefix="ansible-trial-") as temporary:
            result = processes.result_of_fork(
                lambda: self._trial(off, receiver, event_socket.keep(sender), temporary), _WITHIN
            )
            sender.close()
            if leftover := _end_orphans():
                self.leftovers.append(leftover)
            receiver.settimeout(0)
            return self._read(result or {"problem": "the trial died"}, has_events=_has_data(receiver))

    def _trial(
        self, off: frozenset[str], receiver: socket.socket, event_descriptor: int, temporary: str
    ) -> dict[str, Any]:
        """Run the playbook in this process; return its exit code, or the problem."""
        receiver.close()
        with (self.folder / "output").open("wb") as output, Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        os.environ |= {"ANSIBLE_LOCAL_TEMP": str(self.folder), "TMPDIR": temporary, task_record.RECORDED: "1"}
        arguments = ["ansible-playbook", "-i", "localhost,", str(self.folder / "playbook.yml")]
        try:
            runs.begin(self.refresh, arguments)
            _isolate()
            return {"code": runs.play(self.made, off, event_descriptor)}
        except InstallError as error:
            return {"name": error.name, "problem": error.problem}
        except BaseException as error:  # noqa: BLE001 - the server reports it
            return {"problem": f"{type(error).__name__}: {error}"}

    def _read(self, result: dict[str, Any], *, has_events: bool) -> _Trial:
        problem = result.get("problem", "")
        if result.get("code"):
            output = (self.folder / "output").read_text(encoding="utf-8", errors="replace")
            problem = f"exit code {result['code']}: {_failure_of(output)}"
        notes = Path(messages.noted_in({"ANSIBLE_LOCAL_TEMP": str(self.folder)}))
        text = notes.read_text(encoding="utf-8", errors="replace") if notes.exists() else ""
        return _Trial(result.get("name", ""), problem, text, has_events)


def _isolate() -> None:
    """Make the trial's playbook free of effects that the project configured for runs.

    No callback plugin of the project is loaded, no vault password is read, and nothing is written to a log.
    """
    for name, value in (
        ("CALLBACKS_ENABLED", []),
        ("DEFAULT_VAULT_PASSWORD_FILE", None),
        ("DEFAULT_VAULT_IDENTITY_LIST", []),
    ):
        constants.set_constant(name, value)
    os.environ.pop("ORIGINAL_STDOUT_CALLBACK", None)
    callback_loader.all = lambda *_, **__: iter(())
    logging.disable(logging.CRITICAL)


def _failure_of(output: str) -> str:
    """Return the first error in Ansible's output, without the marks of events; the last line of a traceback."""
    lines = [line for line in _MARKS.sub("", output).splitlines() if line.strip()]
    wrong = (line for line in lines if line.startswith(("fatal:", "ERROR", "[ERROR]")))
    return next(wrong, lines[-1] if lines else "no output")


def _line(text: str) -> str:
    """Return a problem as one short line."""
    line = " ".join(text.split())
    return line if len(line) <= _MOST else f"{line[: _MOST - 1]}…"


def _tasks(folder: str) -> Any:
    play = {**_PLAYBOOK[0], "tasks": list(_PLAYBOOK[0]["tasks"])}
    # As in runs: the home folder can be read-only.
    play["vars"] = {**play["vars"], "ansible_remote_tmp": f"{folder}/remote"}
    if module_loader.find_plugin_with_context(_OF_COLLECTION).resolved:
        play["tasks"][3:3] = [{_OF_COLLECTION: {"time": time}} for time in ("1h", "2h")]
    text = json.dumps([play]).replace('"copied"', json.dumps(f"{folder}/copied"))
    return json.loads(text.replace("'copied'", f"'{folder}/copied'"))


def _end_orphans() -> str:
    """Reap the processes that the trial left behind; return a description of those that had to be killed.

    Those of the shortcut `modules` end with their parent.
    """
    process_tree.await_children(_REAP_WITHIN)
    if not process_tree.has_children():
        return ""
    running = process_tree.table()
    pids = sorted(process_tree.descendants(running, [os.getpid()]))
    names = ", ".join(f"{pid} ({_command(pid)})" for pid in pids)
    process_tree.end_descendants(0.0)
    process_tree.await_children(_REAP_WITHIN)
    return f"processes of the self-test did not end with it and were killed: {names}"


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "ended"


def _short_folder() -> str | None:
    """Return a folder with a short path for short-lived files; None for the default.

    Must not call `tempfile.gettempdir`, which would keep its result for the runs that are forked later.
    """
    folders = (os.environ.get("TMPDIR", ""), "/tmp", "/dev/shm")  # noqa: S108 - the folder below it is private
    return next((folder for folder in folders if 0 < len(folder) <= _MAX_BASE and os.access(folder, os.W_OK)), None)


def _has_data(receiver: Any) -> bool:
    try:
        return bool(receiver.recv(1))
    except OSError:
        return False
