"""Model of a run's playbook process: Ansible, loaded in the environment that all runs share.

Ansible reads its options, plugin paths, colours, the terminal's width and temporary folders when it is imported. So the
server imports it in the environment of a run, with a terminal like a run's. Values that differ between runs are
replaced by placeholders: paths below `scratch`, which occur nowhere else. Owns the imports at the server's start;
`refresh` renews the state that differs between runs. Must not import Ansible before `os.environ` is set.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ptyprocess.ptyprocess

from runner.agent import interpreter
from runner.agent.interpreter import Stream
from runner.engines.warm import procfs

if TYPE_CHECKING:
    from runner.engines.warm.modules.module_namespace import Interpreter

WINDOW = (24, 80)
"""Rows and columns of a run's terminal: ptyprocess's default, as in a run without the fork server."""
_READ = 65536
_IDENT = "model"
_FIRST = ("ansible.cli.playbook",)
_OPTIONAL = ("kubernetes", "kubernetes.dynamic", "kubernetes.config")
"""Python modules that `kubernetes.core` imports. They may be missing in a project that does not use it."""


@dataclass(frozen=True, slots=True)
class Model:
    """State of a playbook process at its start."""

    environment: Mapping[str, str]
    scratch: str
    module_path: tuple[str, ...]
    """`sys.path` of an interpreter that starts to run a module."""
    streams: Mapping[str, Stream]
    import_output: bytes
    """Output of importing Ansible."""
    initial_modules: frozenset[str]
    """Names of the Python modules that are loaded at the start of a playbook process."""
    warning_filters: tuple[Any, ...]
    """Filters of warnings at the start; preloaded modules may add more."""
    shown_messages: Mapping[str, Any]
    """Messages that Ansible has shown and does not repeat, by the attribute of `Display`."""
    pending_warnings: tuple[frozenset[str], tuple[Any, ...]]
    """Warnings and deprecations of options that Ansible has not shown yet."""

    def interpreter(self, shown: procfs.Shown) -> Interpreter:
        """Return an interpreter that starts to run a module."""
        from runner.engines.warm.modules.module_namespace import Interpreter  # noqa: PLC0415 - it imports Ansible

        encodings = tuple((stream.encoding, stream.errors) for stream in self.streams.values())
        return Interpreter(self.module_path, encodings, partial(procfs.show, shown))


def load(scratch: Path) -> Model:
    """Import Ansible in the environment of ansible-runner."""
    streams = interpreter.streams()
    module_path = tuple(sys.path)
    environment = _environment(scratch)
    os.environ.clear()
    os.environ.update(environment)
    with _terminal(streams) as import_output:
        for name in _FIRST:
            importlib.import_module(name)
        initial_modules, warning_filters = frozenset(sys.modules), tuple(warnings.filters)
        shown_messages, pending_warnings = _warning_state()
    with _terminal(streams):
        _find_plugins()
    return Model(
        environment,
        str(scratch),
        module_path,
        streams,
        bytes(import_output),
        initial_modules,
        warning_filters,
        shown_messages,
        pending_warnings,
    )


def preload(loaded: Model, plugins: frozenset[str]) -> None:
    """Load common plugins, and the Python modules that earlier runs used."""
    from ansible import constants  # noqa: PLC0415 - not before the environment is right

    if constants.DEFAULT_DEBUG:
        return  # runs print each plugin that they load
    with _terminal(loaded.streams):
        ahead = importlib.import_module("runner.engines.warm.server.preload")
        ahead.load_common()
        ahead.load_modules((*_OPTIONAL, *sorted(plugins)))


def _find_plugins() -> None:
    from ansible import constants  # noqa: PLC0415 - as above
    from ansible.plugins.loader import init_plugin_loader  # noqa: PLC0415 - as above
    from ansible.utils.collection_loader import AnsibleCollectionConfig  # noqa: PLC0415 - as above

    interpreter.import_later_modules()
    importlib.import_module("ansible.modules")
    if not constants.DEFAULT_DEBUG and not AnsibleCollectionConfig.collection_finder:
        init_plugin_loader([])


def _warning_state() -> tuple[dict[str, Any], tuple[frozenset[str], tuple[Any, ...]]]:
    from ansible import constants  # noqa: PLC0415 - as above
    from ansible.utils.display import Display  # noqa: PLC0415 - as above

    display, config = Display(), constants.config
    shown_messages = {name: copy.copy(getattr(display, name)) for name in ("_deprecations", "_warns", "_errors")}
    return shown_messages, (frozenset(config.WARNINGS), tuple(config.DEPRECATED))


def _environment(scratch: Path) -> dict[str, str]:
    """Return the environment that ansible-runner prepares for a run."""
    from ansible_runner.config.runner import RunnerConfig  # noqa: PLC0415 - slow, and only needed here

    from runner.core.engine.child import ansible_playbook, utf8_locale  # noqa: PLC0415 - imports ansible-runner

    project = scratch / "project"
    project.mkdir()
    os.chdir(project)  # as in a run: Ansible searches its configuration here
    config = RunnerConfig(private_data_dir=str(scratch), ident=_IDENT, playbook=_IDENT, quiet=True)
    config.prepare()
    if not sys.flags.safe_path:
        sys.path.insert(0, str(Path(ansible_playbook()).parent))  # as Python does for a script
    environment: dict[str, str] = config.env | utf8_locale()
    return environment


@contextlib.contextmanager
def _terminal(streams: Mapping[str, Stream]) -> Iterator[bytearray]:
    """Redirect the standard streams to a terminal like a run's. Yield the output printed there."""
    import_output = bytearray()
    saved = [os.dup(number) for number in range(3)]
    main, terminal_end = os.openpty()
    ptyprocess.ptyprocess._setwinsize(terminal_end, *WINDOW)  # noqa: SLF001 - as for a run's terminal
    for number in range(3):
        os.dup2(terminal_end, number)
    os.close(terminal_end)
    reader = threading.Thread(
        target=_read, args=(main, import_output), name="terminal"
    )  # Python numbers unnamed threads
    reader.start()
    standard = {name: getattr(sys, name) for name in streams}
    interpreter.open_streams(streams)
    try:
        yield import_output
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, own in enumerate(saved):
            os.dup2(own, number)
            os.close(own)
        reader.join()  # the terminal's other end is closed by now
        os.close(main)
        for name, stream in standard.items():
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def _read(descriptor: int, into: bytearray) -> None:
    with contextlib.suppress(OSError):  # the other end is closed
        while part := os.read(descriptor, _READ):
            into.extend(part.replace(b"\r\n", b"\n"))
