"""A model of the process that a run's playbook gets: Ansible, loaded in the environment that all runs share.

Much of Ansible is decided when it is imported: settings, paths of plugins, colours, the terminal's width, temporary
folders. So the server imports it in the very environment of a run, behind a terminal like a run's; only what differs
between two runs has a stand-in: a path below `scratch`, which names nothing else. Owns what is imported when the server
starts, and knowing what has to be made anew for each run: see `refresh`. Must not be imported before `os.environ` is
what it shall be.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import struct
import sys
import termios
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROWS, _COLUMNS = 24, 80
_READ = 65536
_IDENT = "model"
_MODULES = (
    "ansible.cli.playbook",
    "ansible.executor.playbook_executor",
    "ansible.executor.process.worker",
    "ansible.executor.task_executor",
    "ansible.plugins.action",
    "ansible.plugins.become",
    "ansible.plugins.cache",
    "ansible.plugins.callback.default",
    "ansible.plugins.connection.local",
    "ansible.plugins.inventory",
    "ansible.plugins.shell.sh",
    "ansible.plugins.strategy.linear",
    "ansible.plugins.vars",
    "ansible.module_utils.basic",
)
_WORTH_HAVING = ("kubernetes", "kubernetes.dynamic", "kubernetes.config", "jsonpatch", "yaml")
"""What modules of Kubernetes import; a project that uses none of it may lack them."""


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
    path: tuple[str, ...]
    """`sys.path`."""
    streams: Mapping[str, Stream]
    said: bytes
    """What importing Ansible printed."""


def load(scratch: Path) -> Model:
    """Import Ansible in the environment that ansible-runner would give it."""
    streams = {
        name: Stream(stream.encoding, stream.errors or "strict", stream.write_through)
        for name in ("stdin", "stdout", "stderr")
        if (stream := getattr(sys, name)) is not None
    }
    environment = _environment(scratch)
    os.environ.clear()
    os.environ.update(environment)
    with _terminal(streams) as said:
        for module in _MODULES:
            importlib.import_module(module)
        for module in _WORTH_HAVING:
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
        from ansible.plugins.loader import init_plugin_loader  # noqa: PLC0415 - not before the environment is right

        init_plugin_loader([])
    return Model(environment, str(scratch), tuple(sys.path), streams, bytes(said))


def _environment(scratch: Path) -> dict[str, str]:
    """Let ansible-runner say what it adds to a run's environment."""
    from ansible_runner.config.runner import RunnerConfig  # noqa: PLC0415 - as above

    from runner.engine.child import ansible_playbook, utf8_locale  # noqa: PLC0415 - imports ansible-runner

    config = RunnerConfig(private_data_dir=str(scratch), ident=_IDENT, playbook=_IDENT, quiet=True)
    config.prepare()
    if not sys.flags.safe_path:
        sys.path.insert(0, str(Path(ansible_playbook()).parent))
    environment: dict[str, str] = config.env | utf8_locale()
    return environment


@contextlib.contextmanager
def _terminal(streams: Mapping[str, Stream]) -> Iterator[bytearray]:
    """Stand behind a terminal like that of a run; gives what was printed to it."""
    said = bytearray()
    ours = [os.dup(number) for number in range(3)]
    main, other = os.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    for number in range(3):
        os.dup2(other, number)
    os.close(other)
    reader = threading.Thread(target=_read, args=(main, said))
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


def _open(number: int, name: str, stream: Stream) -> Any:
    reading = number == 0
    # Whatever becomes of this object, the descriptor stays open.
    binary: Any = open(
        number, "rb" if reading else "wb", buffering=0 if stream.unbuffered and not reading else -1, closefd=False
    )  # noqa: E501,SIM115,PTH123 - a descriptor
    import io  # noqa: PLC0415

    text = io.TextIOWrapper(
        binary,
        encoding=stream.encoding,
        errors=stream.errors,
        newline=None if reading else "\n",
        line_buffering=not reading and (os.isatty(number) or number == 2),  # noqa: PLR2004 - standard error
        write_through=stream.unbuffered and not reading,
    )
    text.mode = "r" if reading else "w"  # type: ignore[misc]  # as the interpreter does
    return text
