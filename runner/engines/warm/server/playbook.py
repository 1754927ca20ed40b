"""The playbook's process: the state of a new interpreter, then `ansible-playbook`'s own main function.

Owns standard streams, `sys.argv`, names and keys that must differ between processes, and the exit. `refresh` renews the
state of Ansible. Import this module only where `model` has loaded Ansible.
"""

from __future__ import annotations

import multiprocessing.process
import os
import sys
from functools import partial
from typing import Any

from ansible.cli.playbook import main

from runner.agent import interpreter
from runner.engines.warm import messages, procfs
from runner.engines.warm.messages import Load
from runner.engines.warm.modules.module_namespace import Interpreter
from runner.engines.warm.patches import shortcuts
from runner.engines.warm.patches.shortcuts import PreparedShortcuts
from runner.engines.warm.server import preload
from runner.engines.warm.server.model import Model
from runner.engines.warm.server.refresh import Refresh


def prepare(loaded: Model, request: Load, shown: procfs.Shown) -> PreparedShortcuts:
    """Prepare in the server the data that the shortcuts need for these requests."""
    encodings = tuple((stream.encoding, stream.errors) for stream in loaded.streams.values())
    return shortcuts.prepare(request, Interpreter(loaded.module_path, encodings, partial(procfs.show, shown)))


def begin(refresh: Refresh, arguments: list[str]) -> None:
    """Give this process the state of a new `ansible-playbook` with these arguments."""
    sys.argv = list(arguments)
    sys.orig_argv = [sys.executable, *arguments]
    sys.modules["__main__"].__file__ = arguments[0]
    current: Any = multiprocessing.process.current_process()
    current.authkey = os.urandom(32)
    interpreter.open_streams(refresh.model.streams)
    os.write(1, refresh.model.import_output)
    refresh.apply()


def run(made: PreparedShortcuts, without: frozenset[str], event_descriptor: int) -> int:
    """Run `ansible-playbook` without some shortcuts, after `begin`. Return its exit code.

    `event_descriptor` is the number of the socket for the data of events.
    """
    os.environ[shortcuts.LEARNED] = messages.noted_in(os.environ)
    templates = shortcuts.install(without, made, event_descriptor)
    del os.environ[shortcuts.LEARNED]
    before = frozenset(sys.modules)
    code = interpreter.exit_code(main)
    if plugins := preload.worth_loading(before):
        messages.note(os.environ, {"plugins": plugins})
    if templates:
        messages.note(os.environ, {"templates": list(templates.values())})
    return interpreter.finish(code)
