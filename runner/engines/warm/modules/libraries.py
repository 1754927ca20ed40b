"""Preparation of preloaded libraries in the fork server, so that each module uses them in less time.

A TLS context loads all certificate authorities of the machine. `uri` and `get_url` make one for each request, also
without TLS. Promises: a process receives each context made here once, and only if a new one would be the same. So the
caller gives no arguments, and the files and variables that a context depends on are unchanged.

A module starts commands with a function that only sets the umask. Python forks the process of the module to call it,
and the kernel copies the tables of its memory. A module that gathers facts starts up to 18 commands. Without the
function, nothing is copied. Promises: a command begins with the same umask, signals and descriptors. Any other function
is called in a fork.

The client of Kubernetes parses the kubeconfig with a faster function. Promises: the result is that of the client's own
call. A version of the client without this function keeps its own.
"""

from __future__ import annotations

import functools
import io
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn

from runner.engines.warm.stamps import Stamp, stamp

_REQUESTS = 2
"""Number of contexts: a module often reads, then writes. Each takes 20 ms of CPU time, and 0.8 MiB."""
_READ_BY_TLS = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")
_LONGEST = 1 << 16
"""Most characters of a kubeconfig that is read as JSON."""
_LONGEST_KEY = 1000
"""YAML refuses keys of more than 1024 characters."""


def prepare_tls() -> None:
    """Make the contexts, for this process and its forks."""
    make: Callable[..., ssl.SSLContext] = ssl.create_default_context
    known = _conditions()
    contexts = [make() for _ in range(_REQUESTS)]

    @functools.wraps(make)
    def create_default_context(*args: Any, **kwargs: Any) -> ssl.SSLContext:
        if contexts and not args and not any(kwargs.values()) and _conditions() == known:
            return contexts.pop()
        return make(*args, **kwargs)

    ssl.create_default_context = create_default_context
    names: Any = ssl
    if names._create_default_https_context is make:  # noqa: SLF001 - there is no public name
        names._create_default_https_context = create_default_context  # noqa: SLF001 - as above


def _conditions() -> tuple[Stamp | str | None, ...]:
    """Return what a context depends on: a folder of authorities is only searched when a certificate is verified."""
    paths = ssl.get_default_verify_paths()
    file = os.environ.get(paths.openssl_cafile_env, paths.openssl_cafile)
    return stamp(file), *map(os.environ.get, _READ_BY_TLS)


def prepare_kubernetes() -> None:
    """Prepare the client in this process and its forks, if it is imported and parses with the library `yaml`."""
    module: Any = sys.modules.get("kubernetes.config.kube_config")
    library = getattr(module, "yaml", None)
    if isinstance(library, ModuleType) and hasattr(library, "safe_load"):
        module.yaml = _Yaml(library)


def prepare_commands() -> None:
    """Let the modules in this process and its forks start commands without a copy of their memory."""
    begin = subprocess.Popen.__init__

    @functools.wraps(begin)
    def begin_without_fork(self: Any, *args: Any, **options: Any) -> None:
        umask = _only_umask(options.get("preexec_fn"))
        begin(self, *args, **options if umask is None else {**options, "preexec_fn": None, "umask": umask})

    subprocess.Popen.__init__ = begin_without_fork  # type: ignore[method-assign]


def _only_umask(function: Any) -> int | None:
    """Return the umask that a function of Ansible sets, or that it leaves; None if it may do anything else."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or function.__module__ != "ansible.module_utils.basic":
        return None
    if (code.co_names, code.co_freevars) != (("os", "umask"), ("umask",)):
        return None
    umask = function.__closure__[0].cell_contents
    if not umask:
        return _own_umask()
    return umask if type(umask) is int and umask > 0 else None


def _own_umask() -> int | None:
    """Return the umask of this process; None if /proc does not contain it.

    Given a umask, Python does not call posix_spawn, which makes commands ignore further signals.
    """
    for line in Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return None


class _Yaml:
    """The library `yaml`. It parses files that are JSON, as the kubeconfigs of runs, without its parser in Python."""

    def __init__(self, library: ModuleType) -> None:
        self._library: Any = library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def safe_load(self, stream: Any) -> Any:
        """Return the first document of a stream."""
        if isinstance(stream, io.TextIOWrapper) and stream.seekable():
            start = stream.tell()
            try:
                return _parsed(stream.read(_LONGEST))
            except ValueError:
                stream.seek(start)
        return self._library.safe_load(stream)


def _parsed(text: str) -> dict[str, Any]:
    """Return the value of JSON that is the same value as YAML. Any other text is a ValueError."""
    if len(text) == _LONGEST or text[:1] != "{" or "\\" in text or not (text.isascii() and text.strip().isprintable()):
        raise ValueError("not certainly the same in both languages")
    value: dict[str, Any] = json.loads(
        text, object_pairs_hook=_mapping, parse_float=_refuse, parse_constant=_refuse, parse_int=_refuse
    )
    return value


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs) or any(len(key) > _LONGEST_KEY for key in mapping):
        raise ValueError("an unusual mapping")
    return mapping


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} can be another value in YAML")
