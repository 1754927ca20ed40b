"""Name and entry of the user, which Ansible, ssh and other programs require.

A cluster can run a container with any user id, also one without an entry in /etc/passwd.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Mapping
from pathlib import Path

NAME = "ansible"
"""Name of a user without one, as in the operator's image."""
_LIBRARY = "libnss_wrapper.so"
_PASSWD, _GROUP = Path("/etc/passwd"), Path("/etc/group")


def has_entry() -> bool:
    """Return whether the user id of this process has an entry."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return True


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with the user's name that a user id without an entry lacks; none if it has an entry."""
    return {} if has_entry() else {name: NAME for name in ("USER", "LOGNAME") if not environ.get(name)}


def wrapper(environ: Mapping[str, str], file: Path, roots: Iterable[Path] = (Path("/usr"),)) -> dict[str, str]:
    """Return the variables with which programs read their entry from `file`; none if there is one, or no library.

    Source: nss_wrapper(1).
    """
    paths = (path for root in roots for name in ("lib64", "lib", "lib/*") for path in root.glob(f"{name}/{_LIBRARY}"))
    library = None if has_entry() else next(paths, None)
    if library is None:
        return {}
    preload = " ".join(filter(None, (environ.get("LD_PRELOAD"), str(library))))
    return {"LD_PRELOAD": preload, "NSS_WRAPPER_PASSWD": str(file), "NSS_WRAPPER_GROUP": str(_GROUP)}


def entries(environ: Mapping[str, str]) -> str:
    """Return the content of /etc/passwd with an entry of this user."""
    entry = f"{NAME}-{os.geteuid()}:x:{os.geteuid()}:{os.getegid()}::{environ.get('HOME') or '/'}:/bin/sh"
    return f"{_PASSWD.read_text(encoding='utf-8').rstrip()}\n{entry}\n"
