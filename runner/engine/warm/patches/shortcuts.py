"""The shortcuts of the warm engine inside the playbook's process, each with a name that turns it off.

`prepare` belongs into the fork server, once Ansible is loaded; `install` into each playbook's process, before
its main function. Must be imported only where Ansible is loaded.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from runner.engine.warm import versions
from runner.engine.warm.messages import Load
from runner.engine.warm.modules import module_namespace as worlds
from runner.engine.warm.modules import module_process, preimport, tracebacks
from runner.engine.warm.modules.interpreter import Interpreter
from runner.engine.warm.modules.module_process import Ground
from runner.engine.warm.modules.payload import Payloads
from runner.engine.warm.modules.preimport import Ahead
from runner.engine.warm.modules.zygote import Zygote
from runner.engine.warm.patches import (
    commands,
    event_socket,
    fact_cache,
    fields,
    listings,
    modules,
    tasks,
    templates,
    waiting,
)
from runner.engine.warm.patches.templates import Templates

NAMES = {
    "modules": "Modules on local connections run in a fork, not in a new interpreter.",
    "commands": "Temporary folders are made and removed without a shell.",
    "tasks": "Tasks that never leave the controller, or are skipped, need no worker's process.",
    "actions": "Where a play has one host, actions that run modules need no worker's process either.",
    "events": "What events hold goes to the supervisor through a socket, and what they say in one write for each.",
    "facts": "A file of cached facts that would be written as it is gets a new time only.",
    "fields": "Attributes of tasks are copied and validated without asking each time what holds for all of a class.",
    "listings": "Folders of collections are listed again only when something was added to them.",
    "templates": "Templates that runs have compiled are compiled in the server, once.",
    "sharing": "Memory of the fork server is laid out so that runs share it, and copy less of it.",
    "waiting": "A worker's report wakes the one who waits for it, who no longer asks every millisecond.",
}
"""What each shortcut does."""

LEARNED = "ANSIBLE_OPERATOR_LEARNED"
"""Names a file that takes what modules imported beyond what was there."""


@dataclass(frozen=True, slots=True)
class Made:
    """What was made ready in the server."""

    modules: Ahead
    templates: templates.Ahead


def prepare(wanted: Load, interpreter: Interpreter) -> Made:
    """Make ready what runs need of this."""
    compiled = templates.compile_ahead(wanted.templates if versions.TAGGED else ())
    return Made(preimport.make(wanted.modules, wanted.imports, interpreter), compiled)


def install(off: frozenset[str], made: Made, telling: int) -> Templates:
    """Install every shortcut but those that are off; returns what will know which templates were compiled.

    `telling` is the number of a socket to the supervisor.
    """
    modules.record_tasks()
    if "modules" in off:
        modules.count_interpreters()
    else:
        _install_modules(made.modules)
    if "commands" not in off:
        commands.install()
    if "tasks" not in off:
        tasks.install(with_modules=not off & {"actions", "commands", "modules"})
    if "events" in off:
        os.close(telling)
    else:
        event_socket.install(telling)
    if "facts" not in off:
        fact_cache.install()
    if "fields" not in off:
        fields.install()
    if "listings" not in off:
        listings.install()
    if "waiting" not in off:
        waiting.install()
    # Ansible shows where a plugin has failed, from its own frames on, and ours stand among these.
    tracebacks.hide()
    known = Templates(made.templates)
    if "templates" not in off and versions.TAGGED:
        known.install()
    return known


def _install_modules(made: Ahead) -> None:
    payloads = Payloads(made.payloads)
    ground = Ground(made.world, {(each.name, each.path): each for each in payloads}, made.interpreter)
    session = versions.worker_session({})

    def enter() -> None:
        session.begin()
        if versions.TAGGED:  # workers handle these since, so what they start does not ignore what the operator may
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        worlds.enter(made.world)

    zygote = Zygote.start(enter, module_process.runner(ground))
    learned = os.environ.get(LEARNED, "")
    modules.install(modules.Modules(zygote, session, payloads, frozenset(ground.payloads), made.read, learned))
