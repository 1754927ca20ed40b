"""State of a new interpreter in a fork that has Ansible loaded already: its imports, standard streams, and end."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

NAMES = ("stdin", "stdout", "stderr")
NOT_FLUSHED = 120
"""Exit code of an interpreter that could not write its last output."""
_LATER = (
    "ansible.executor.playbook_executor",
    "ansible.executor.process.worker",
    "ansible.executor.task_executor",
    "ansible.module_utils.basic",
    "ansible.playbook.handler_task_include",
    "ansible.playbook.role_include",
    "multiprocessing.popen_fork",
    "multiprocessing.synchronize",
)
"""Python modules that each `ansible-playbook` imports later."""


class Stream(NamedTuple):
    """How an interpreter opened one of its standard streams."""

    encoding: str
    errors: str
    unbuffered: bool


def import_later_modules() -> None:
    """Import what a playbook will import."""
    for name in _LATER:
        with contextlib.suppress(ModuleNotFoundError):  # versions differ
            importlib.import_module(name)


def close_descriptors(but: Iterable[int] = ()) -> None:
    """Close all descriptors but the standard ones. Their limit can be a billion, so it is not a range to go through."""
    kept = {*range(len(NAMES)), *but}
    for name in [entry.name for entry in Path("/proc/self/fd").iterdir()]:
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # the descriptor of the listing is closed already
                os.close(int(name))


def streams() -> dict[str, Stream]:
    """Return how this interpreter opened its standard streams."""
    return {
        name: Stream(stream.encoding, stream.errors or "strict", stream.write_through)
        for name in NAMES
        if (stream := getattr(sys, name)) is not None
    }


def open_streams(streams: Mapping[str, Stream]) -> None:
    """Open the standard streams as an interpreter does when it starts."""
    for name, stream in streams.items():
        fresh = _open(NAMES.index(name), name, stream)
        setattr(sys, name, fresh)
        setattr(sys, f"__{name}__", fresh)


def _open(number: int, name: str, stream: Stream) -> io.TextIOWrapper:
    reading = name == "stdin"
    unbuffered = stream.unbuffered and not reading
    # The descriptor stays open when these objects are closed.
    raw: Any = io.FileIO(number, "rb" if reading else "wb", closefd=False)
    raw.name = f"<{name}>"
    buffer = raw if unbuffered else io.BufferedReader(raw) if reading else io.BufferedWriter(raw)
    text = io.TextIOWrapper(
        buffer,
        encoding=stream.encoding,
        errors=stream.errors,
        newline=None if reading else "\n",
        line_buffering=not reading and not unbuffered and (raw.isatty() or name == "stderr"),
        write_through=unbuffered,
    )
    text.mode = "r" if reading else "w"  # type: ignore[misc]  # as the interpreter sets it
    return text


def exit_code(program: Callable[[], object]) -> int:
    """Run a program, and handle its exceptions as an interpreter does. Return the exit code."""
    try:
        program()
    except SystemExit as end:
        return code_of(end.code)
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(*sys.exc_info())
    else:
        return 0
    return 1


def code_of(code: object) -> int:
    """Return the exit code for the value of a SystemExit, as an interpreter does."""
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    with contextlib.suppress(Exception):
        sys.stderr.write(f"{code}\n")
    return 1


def finish(code: int) -> int:
    """End as an interpreter does: join threads, call exit handlers, flush streams. Return the exit code."""
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public name
    atexit._run_exitfuncs()  # noqa: SLF001 - as above
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        code = code or NOT_FLUSHED
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    return code
