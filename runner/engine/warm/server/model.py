"""A model of the process that a run's playbook gets: Ansible, loaded in the environment that all runs share.

Much of Ansible is decided when it is imported: settings, paths of plugins, colours, the terminal's width, temporary
folders. So the server imports it in the very environment of a run, behind a terminal like a run's; only what differs
between two runs has a stand-in: a path below `scratch`, which names nothing else. Owns what is imported when the server
starts; what has to be made anew for each run is `refresh`'s business. Must not import Ansible before `os.environ` is
what it shall be.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ptyprocess.ptyprocess

WINDOW = (24, 80)
"""Rows and columns of a run's terminal: those of ptyprocess, which a run without us gets."""
_READ = 65536
_IDENT = "model"
_FIRST = ("ansible.cli.playbook",)
_LATER = (
    "ansible.executor.playbook_executor",
    "ansible.executor.process.worker",
    "ansible.executor.task_executor",
    "ansible.module_utils.basic",
    "ansible.modules",
    "ansible.playbook.handler_task_include",
    "ansible.playbook.role_include",
    "multiprocessing.popen_fork",
    "multiprocessing.synchronize",
)
_IF_THERE = ("kubernetes", "kubernetes.dynamic", "kubernetes.config")
"""What modules and lookups of `kubernetes.core` import; a project that uses none of them may lack it."""


@dataclass(frozen=True, slots=True)
class Stream:
    """How this interpreter opened one of its standard streams."""

    encoding: str
    errors: str
    unbuffered: bool


@dataclass(frozen=True, slots=True)
class Model:
    """What is known of the playbook's process before there is one."""

    environment: Mapping[str, str]
    scratch: str
    module_path: tuple[str, ...]
    """`sys.path` of an interpreter that starts to run a module."""
    streams: Mapping[str, Stream]
    said: bytes
    """What importing Ansible printed."""
    cold: frozenset[str]
    """The Python modules that a process has which has only just begun."""
    filters: tuple[Any, ...]
    """Its filters of warnings; what is imported ahead may add some."""
    told: Mapping[str, Any]
    """By the names of `Display`'s attributes, what Ansible has said already and does not say again."""
    to_tell: tuple[frozenset[str], tuple[Any, ...]]
    """Warnings and deprecations of settings that are still to be said."""


def load(scratch: Path, learned: frozenset[str]) -> Model:
    """Import Ansible in the environment that ansible-runner would give it, and ahead what runs needed before."""
    streams = _streams()
    module_path = tuple(sys.path)
    environment = _environment(scratch)
    os.environ.clear()
    os.environ.update(environment)
    with _terminal(streams) as said:
        for name in _FIRST:
            importlib.import_module(name)
        cold, filters = frozenset(sys.modules), tuple(warnings.filters)
        told, to_tell = _told()
    with _terminal(streams):
        _ahead(learned)
    return Model(environment, str(scratch), module_path, streams, bytes(said), cold, filters, told, to_tell)


def _ahead(learned: frozenset[str]) -> None:
    from ansible import constants  # noqa: PLC0415 - not before the environment is right
    from ansible.plugins.loader import init_plugin_loader  # noqa: PLC0415 - as above
    from ansible.utils.collection_loader import AnsibleCollectionConfig  # noqa: PLC0415 - as above

    for name in _LATER:
        with contextlib.suppress(ModuleNotFoundError):  # versions differ
            importlib.import_module(name)
    if constants.DEFAULT_DEBUG:
        return  # a run tells then of each plugin that it loads
    if not AnsibleCollectionConfig.collection_finder:
        init_plugin_loader([])
    preload = importlib.import_module("runner.engine.warm.server.preload")
    preload.needed()
    preload.again((*_IF_THERE, *sorted(learned)))


def _told() -> tuple[dict[str, Any], tuple[frozenset[str], tuple[Any, ...]]]:
    from ansible import constants  # noqa: PLC0415 - as above
    from ansible.utils.display import Display  # noqa: PLC0415 - as above

    display, config = Display(), constants.config
    told = {name: copy.copy(getattr(display, name)) for name in ("_deprecations", "_warns", "_errors")}
    return told, (frozenset(config.WARNINGS), tuple(config.DEPRECATED))


def _streams() -> dict[str, Stream]:
    return {
        name: Stream(stream.encoding, stream.errors or "strict", stream.write_through)
        for name in ("stdin", "stdout", "stderr")
        if (stream := getattr(sys, name)) is not None
    }


def _environment(scratch: Path) -> dict[str, str]:
    """Let ansible-runner say what it adds to a run's environment."""
    from ansible_runner.config.runner import RunnerConfig  # noqa: PLC0415 - slow, and nothing else here needs it

    from runner.engine.child import ansible_playbook, utf8_locale  # noqa: PLC0415 - imports ansible-runner

    project = scratch / "project"
    project.mkdir()
    os.chdir(project)  # where runs are, and where Ansible looks for its configuration
    config = RunnerConfig(private_data_dir=str(scratch), ident=_IDENT, playbook=_IDENT, quiet=True)
    config.prepare()
    if not sys.flags.safe_path:
        sys.path.insert(0, str(Path(ansible_playbook()).parent))  # as Python does for a script
    environment: dict[str, str] = config.env | utf8_locale()
    return environment


@contextlib.contextmanager
def _terminal(streams: Mapping[str, Stream]) -> Iterator[bytearray]:
    """Stand behind a terminal like that of a run; gives what was printed to it."""
    said = bytearray()
    ours = [os.dup(number) for number in range(3)]
    main, other = os.openpty()
    ptyprocess.ptyprocess._setwinsize(other, *WINDOW)  # noqa: SLF001 - the one that a run's terminal gets
    for number in range(3):
        os.dup2(other, number)
    os.close(other)
    reader = threading.Thread(target=_read, args=(main, said), name="terminal")  # unnamed ones are counted
    reader.start()
    standard = {name: getattr(sys, name) for name in streams}
    open_streams(streams)
    try:
        yield said
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, own in enumerate(ours):
            os.dup2(own, number)
            os.close(own)
        reader.join()  # the terminal's other end is closed by now
        os.close(main)
        for name, stream in standard.items():
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def _read(descriptor: int, into: bytearray) -> None:
    with contextlib.suppress(OSError):  # nobody is at the other end any more
        while part := os.read(descriptor, _READ):
            into.extend(part.replace(b"\r\n", b"\n"))


def open_streams(streams: Mapping[str, Stream]) -> None:
    """Open the standard streams anew, as an interpreter that starts does."""
    for number, (name, stream) in enumerate(streams.items()):
        fresh = _open(number, name, stream)
        setattr(sys, name, fresh)
        setattr(sys, f"__{name}__", fresh)


def _open(number: int, name: str, stream: Stream) -> io.TextIOWrapper:
    reading = name == "stdin"
    unbuffered = stream.unbuffered and not reading
    # Whatever becomes of these objects, the descriptor stays open.
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
    text.mode = "r" if reading else "w"  # type: ignore[misc]  # as the interpreter says
    return text
