"""Removes each symbol of ansible-core that a shortcut patches, one at a time, and prints what the self-test finds.

Usage: `python moved_symbols.py SCRATCH`; prints a line of JSON for each symbol. Run it in a process of its own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

from runner.engines.warm import procfs
from runner.engines.warm.messages import Load
from runner.engines.warm.server import server

Symbol = tuple[str, str, str]
"""Python module, class or nothing, and name."""


def owners() -> Iterator[tuple[str, str, Any]]:
    for name, module in list(sys.modules.items()):
        if name.startswith("ansible.") and isinstance(module, ModuleType):
            yield name, "", module
            for each, value in list(vars(module).items()):
                if isinstance(value, type) and value.__module__ == name:
                    yield name, each, value


def snapshot() -> dict[Symbol, int]:
    return {
        (module, kind, name): id(value)
        for module, kind, owner in owners()
        for name, value in vars(owner).items()
        if not name.startswith("__") or name in {"__init__", "__getitem__"}
    }


def patched(install: Callable[[], object]) -> list[Symbol]:
    before = snapshot()
    install()
    after = snapshot()
    return sorted(
        symbol for symbol, value in before.items() if after.get(symbol, value) != value and not is_inherited(*symbol)
    )


def is_inherited(module: str, kind: str, name: str) -> bool:
    """Return whether a class has an attribute of this name also without its own."""
    return bool(kind) and any(name in vars(base) for base in getattr(sys.modules[module], kind).__mro__[1:])


def without(symbol: Symbol, install: Callable[..., Any]) -> Callable[..., Any]:
    """Return an `install` for an Ansible that lacks a symbol, which is back afterwards: Ansible itself needs it."""
    module, kind, name = symbol
    owner = getattr(sys.modules[module], kind) if kind else sys.modules[module]

    @wraps(install)
    def installed(*args: Any) -> Any:
        value = vars(owner)[name]
        delattr(owner, name)
        try:
            return install(*args)
        finally:
            if name not in vars(owner):
                setattr(owner, name, value)

    return installed


def main(scratch: Path) -> None:
    shown = procfs.take_over()
    for name in ("ANSIBLE_LOCAL_TEMP", "TMPDIR", "KUBECONFIG"):
        os.environ[name] = str(scratch / name)
    (scratch / "TMPDIR").mkdir()
    refresh, made = server.prepare(shown, scratch, Load())
    from runner.engines.warm.patches import event_socket, shortcuts  # noqa: PLC0415 - where Ansible is loaded
    from runner.engines.warm.server import self_test  # noqa: PLC0415 - as above
    from tests.kit.forks import seen  # noqa: PLC0415 - as above

    install = shortcuts.install

    def all_installed() -> object:
        return install(frozenset(), made, event_socket.keep(event_socket.pair()[1]))

    for symbol in [tuple(each) for each in seen(lambda: patched(all_installed))]:

        def tried(symbol: Symbol = symbol) -> dict[str, Any]:
            shortcuts.install = without(symbol, install)
            result = self_test.run(refresh, made, scratch, frozenset())
            return {"symbol": ".".join(symbol), "disabled": result.disabled, "problems": result.problems}

        print(json.dumps(seen(tried)), flush=True)  # noqa: T201 - the result


if __name__ == "__main__":
    main(Path(sys.argv[1]))
