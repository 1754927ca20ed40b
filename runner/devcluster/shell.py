"""How a user's shell is led to a control plane. Pure."""

from __future__ import annotations

import shlex
from pathlib import Path


def leading_to(kubeconfig: Path, kubectl: Path) -> str:
    """Return what a POSIX shell is to read: the kubeconfig's place, and the folder of its kubectl before others.

    Reading it twice is the same as once.
    """
    folder = shlex.quote(str(kubectl.parent))
    return (
        f"export KUBECONFIG={shlex.quote(str(kubeconfig))}\n"
        f'case ":$PATH:" in *:{folder}:*) ;; *) export PATH={folder}:"$PATH" ;; esac\n'
    )
