"""The collection's modules and the sample operator's roles, on a real control plane with real Ansible.

`module` runs one module as a process of its own, as Ansible does, and returns its result. `ansible` runs a command of
the installed ansible-core at the repository's top. `memcached` makes a Memcached; `kubectl` asks as administrator.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Protocol

MEMCACHED = {"api_version": "cache.example.com/v1alpha1", "kind": "Memcached"}


class StartModule(Protocol):
    """Starts a module; see `start_module`."""

    def __call__(
        self, name: str, /, *, check: bool = False, diff: bool = False, **arguments: Any
    ) -> subprocess.Popen[str]: ...


class Module(Protocol):
    """Runs a module; see `module`."""

    def __call__(
        self, name: str, /, *, check: bool = False, diff: bool = False, **arguments: Any
    ) -> dict[str, Any]: ...


class Ansible(Protocol):
    """Runs a command of ansible-core; see `ansible`."""

    def __call__(self, command: str, *arguments: str, kubeconfig: Path | None = None) -> str: ...
