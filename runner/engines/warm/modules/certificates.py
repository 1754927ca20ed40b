"""Default TLS contexts, made in the fork server and given to the first requests for one in each process.

A context loads all certificate authorities of the machine. `uri` and `get_url` make one for each request, also without
TLS. Owns the replacement of `ssl.create_default_context`.

Promises: a process receives each context once, and only if a new one would be the same. So the caller gives no
arguments, and the files and variables that a context depends on are unchanged.
"""

from __future__ import annotations

import functools
import os
import ssl
from collections.abc import Callable
from typing import Any

from runner.engines.warm.stamps import Stamp, stamp

_REQUESTS = 2
"""Number of contexts: a module often reads, then writes. Each takes 20 ms of CPU time, and 0.8 MiB."""
_READ = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")


def prepare() -> None:
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
    return stamp(file), *map(os.environ.get, _READ)
