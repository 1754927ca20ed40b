"""Preloaded ansible-runner of a warm pod: `python agent.py preload SECRET WORK REPORT`.

It imports ansible-runner and Ansible, and waits for the order of the run: the name of its file on standard input. Then
it is `ansible-runner worker`, and its first `ansible-playbook` is a fork of it instead of a new interpreter.

Ansible reads its environment when it is imported, so it is imported in the environment that ansible-runner makes for
runs of the watch. If the environment, the folder or the `ansible.cfg` of the run differs, ansible-playbook
is started as usual. The file `WORK/unused` then contains the reason.

`SECRET` has the file `warm`: the files of a private data directory on which the environment depends. `REPORT` is a
descriptor for one JSON object: `problem`, empty if everything is imported. It needs only the image's own packages.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from . import interpreter

IDENT = "run"
"""Ident of the run for ansible-runner, which is part of the environment."""
_PLAYBOOK = "ansible-playbook"


class UnfitError(Exception):
    """Ansible cannot be preloaded in this image."""


class Loaded:
    """Ansible, imported in the environment of a run."""

    def __init__(self, secret: Path, work: Path) -> None:
        """Import. Raises UnfitError, and any error of the imports."""
        self._work = work
        self._program = _same_interpreter()
        folder = work / "run"
        for name, text in json.loads((secret / "warm").read_text(encoding="utf-8")).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        (folder / "project").mkdir(exist_ok=True)
        config = importlib.import_module("ansible_runner.config.runner").RunnerConfig(
            private_data_dir=str(folder), ident=IDENT, playbook=IDENT, quiet=True
        )
        config.prepare()
        self._environment: dict[str, str] = config.env
        self._folder = config.cwd
        self._config = _config(self._folder)
        (folder / "tmp").mkdir(exist_ok=True)
        self._path = _search_path(self._program, self._environment)
        self._streams = interpreter.streams()
        self._exits: list[tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]] = []
        """Exit handlers of Ansible."""
        self._output = self._import()
        for entry in folder.iterdir():
            if entry.name != "tmp":  # Ansible has made its temporary folder there
                shutil.rmtree(entry)

    def become_playbook(self, program: str, arguments: list[str], environment: Mapping[str, str]) -> None:
        """Be `ansible-playbook` to the end of this process; return if it must be started."""
        reason = self._mismatch(program, environment)
        if reason:
            (self._work / "unused").write_text(reason, encoding="utf-8")
            return
        code = 1
        try:
            interpreter.close_descriptors()  # the parent reads from one until the program has started
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
                signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
            os.environ.clear()
            os.environ.update(environment)
            sys.path[:] = self._path
            importlib.invalidate_caches()  # folders of the search path exist only now
            sys.argv = list(arguments)
            main: Any = sys.modules["__main__"]
            main.__file__, main.__spec__ = program, None
            interpreter.open_streams(self._streams)
            atexit._clear()  # noqa: SLF001 - there is no public name
            for handler, positional, named in self._exits:
                atexit.register(handler, *positional, **named)
            os.write(1, self._output)
            code = interpreter.finish(interpreter.exit_code(importlib.import_module("ansible.cli.playbook").main))
        except BaseException:  # noqa: BLE001 - the traceback is the run's output
            traceback.print_exc()
        os._exit(code)

    def _mismatch(self, program: str, environment: Mapping[str, str]) -> str:
        if os.path.realpath(program) != os.path.realpath(self._program):
            return f"the run starts {program} instead of {self._program}"
        names = environment.keys() | self._environment.keys()
        differ = sorted(name for name in names if environment.get(name) != self._environment.get(name))
        if differ:
            return f"the run has other values of {', '.join(differ)}"
        if str(Path.cwd()) != self._folder or _config(self._folder) != self._config:
            return "the run has another folder or ansible.cfg"
        return ""

    def _import(self) -> bytes:
        """Import Ansible as a new interpreter in the folder of the run; return its output."""
        saved = dict(os.environ), Path.cwd(), list(sys.path), atexit.register
        descriptors = _descriptors()
        printed = self._work / "imported"
        atexit.register = self._note_exit  # type: ignore[assignment]
        try:
            os.environ.clear()
            os.environ.update(self._environment)
            os.chdir(self._folder)
            sys.path[:] = self._path
            with printed.open("wb") as file:
                outputs = os.dup(1), os.dup(2)
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
                try:
                    importlib.import_module("ansible.cli.playbook")
                    interpreter.import_later_modules()
                finally:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    for number, own in enumerate(outputs, 1):
                        os.dup2(own, number)
                        os.close(own)
        finally:
            atexit.register = saved[3]
            os.environ.clear()
            os.environ.update(saved[0])
            os.chdir(saved[1])
            sys.path[:] = saved[2]
        if _descriptors() != descriptors:
            raise UnfitError("Ansible opens a file when it is loaded, such as that of log_path")
        return printed.read_bytes()

    def _note_exit(self, handler: Callable[..., object], *positional: Any, **named: Any) -> Callable[..., object]:
        self._exits.append((handler, positional, named))
        return handler


def _same_interpreter() -> str:
    """Return the path of ansible-playbook, if its interpreter is this one."""
    program = shutil.which(_PLAYBOOK)
    if program is None:
        raise UnfitError(f"{_PLAYBOOK} is not in PATH")
    own, other = shebang(shutil.which("ansible-runner") or ""), shebang(program)
    if own != other:
        raise UnfitError(f"ansible-runner and {_PLAYBOOK} have different interpreters")
    return program


def shebang(program: str) -> list[str]:
    """Return the command in the first line of a script. Raises UnfitError if it is not a Python."""
    with Path(program).open("rb") as file:
        first = file.readline(1024)
    command = first[2:].decode(errors="replace").split()
    if first[:2] != b"#!" or not command or not Path(command[0]).name.startswith("python"):
        raise UnfitError(f"{program} does not name its Python in its first line")
    return command


def _search_path(program: str, environment: Mapping[str, str]) -> list[str]:
    """Return `sys.path` of a new interpreter that executes `program` in this environment."""
    safe = _is_safe()
    own = sys.path if safe else sys.path[1:]
    inherited = [] if sys.flags.ignore_environment else os.environ.get("PYTHONPATH", "").split(os.pathsep)
    added = [] if sys.flags.ignore_environment else environment.get("PYTHONPATH", "").split(os.pathsep)
    rest = [path for path in own if path not in inherited]
    return [*([] if safe else [str(Path(program).parent)]), *filter(None, added), *rest]


def _is_safe() -> bool:
    """Return True if `sys.path` does not begin with the folder of the script."""
    return bool(getattr(sys.flags, "safe_path", False) or sys.flags.isolated)


def _config(folder: str) -> str:
    try:
        return Path(folder, "ansible.cfg").read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _descriptors() -> set[str]:
    """Return open descriptors, without that of the listing."""
    return {entry.name for entry in list(Path("/proc/self/fd").iterdir()) if entry.exists()}


def _await(report: int, problem: str) -> None:
    """Report the problem, and wait for the order; then standard input is the order."""
    os.write(report, json.dumps({"problem": problem}).encode())
    os.close(report)
    order = sys.stdin.readline().rstrip("\n")
    if not order:  # the agent has ended
        os._exit(0)
    descriptor = os.open(order, os.O_RDONLY)
    os.dup2(descriptor, 0)
    os.close(descriptor)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115


def main() -> NoReturn:
    """Preload, wait, and be `ansible-runner worker`."""
    _, secret, work, report, *is_again = sys.argv[1:]
    program = shutil.which("ansible-runner") or ""
    if not is_again:
        try:
            command = shebang(program)
        except (OSError, UnfitError) as error:
            os.write(int(report), json.dumps({"problem": str(error)}).encode())
            sys.exit(1)
        os.set_inheritable(int(report), True)  # noqa: FBT003 - it has no other parameter
        os.execvp(command[0], [*command, *sys.argv, "again"])  # noqa: S606 - the interpreter of ansible-runner
    _work(program, Path(secret), Path(work), int(report))


def _work(program: str, secret: Path, work: Path, report: int) -> NoReturn:
    output = os.dup(1)
    os.dup2(2, 1)  # until the order comes, nothing may be written to the output of the worker
    sys.path[0:1] = [] if _is_safe() else [str(Path(program).parent)]  # in place of this application
    problem, loaded = "", None
    worker = importlib.import_module("ansible_runner.__main__")
    importlib.import_module("ansible_runner.interface")
    pty = importlib.import_module("ptyprocess.ptyprocess")
    try:
        loaded = Loaded(secret, work)
    except Exception as error:  # noqa: BLE001 - whatever fails, the run starts Ansible itself
        problem = str(error) or type(error).__name__
        shutil.rmtree(work / "run", ignore_errors=True)
    if loaded is not None:
        execute, become = os.execvpe, loaded.become_playbook

        def execvpe(file: str, arguments: list[bytes], environment: Mapping[Any, Any]) -> NoReturn:
            texts = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
            become(os.fsdecode(file), [os.fsdecode(argument) for argument in arguments], texts)
            execute(file, arguments, environment)

        pty.os.execvpe = execvpe
    gc.collect()
    gc.freeze()
    _await(report, problem)
    os.dup2(output, 1)
    os.close(output)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.argv = [program, "worker", "--private-data-dir", str(work / "run")]
    sys.exit(worker.main())
