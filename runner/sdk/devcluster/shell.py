"""Shell script that selects a control plane. Pure."""

from __future__ import annotations

import shlex
from pathlib import Path


def leading_to(kubeconfig: Path, kubectl: Path) -> str:
    """Return a POSIX shell script that sets KUBECONFIG and prepends the folder of kubectl to PATH. It is idempotent."""
    folder = shlex.quote(str(kubectl.parent))
    return (
        f"export KUBECONFIG={shlex.quote(str(kubeconfig))}\n"
        f'case ":$PATH:" in *:{folder}:*) ;; *) export PATH={folder}:"$PATH" ;; esac\n'
    )
