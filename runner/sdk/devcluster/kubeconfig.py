"""Kubeconfig files with client certificates, and the shell script that selects one.

Promises: a written file contains the certificates, has mode 0600, and is written atomically.
"""

from __future__ import annotations

import base64
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from runner.values.errors import ClusterError

if TYPE_CHECKING:  # loading the cryptography behind it would slow every pytest start
    from runner.base.pki import KeyPair

CONTEXT_PREFIX = "ansible-operator-"


def text(cluster: str, url: str, authority: bytes, client: KeyPair) -> str:
    """Return a kubeconfig with one context, which is named after the cluster."""
    cluster = CONTEXT_PREFIX + cluster
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": cluster, "cluster": {"server": url, "certificate-authority-data": _base64(authority)}},
        ],
        "users": [
            {
                "name": cluster,
                "user": {
                    "client-certificate-data": _base64(client.certificate),
                    "client-key-data": _base64(client.key),
                },
            },
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
        "current-context": cluster,
    }
    return yaml.safe_dump(document, sort_keys=False)


def current(path: Path) -> tuple[str, str]:
    """Return a kubeconfig's current context, and the URL of its API server. Raises ClusterError if there is none."""
    try:
        document = _read(path)
        context = document["current-context"]
        cluster = next(c["context"]["cluster"] for c in document["contexts"] if c["name"] == context)
        return str(context), str(next(c["cluster"]["server"] for c in document["clusters"] if c["name"] == cluster))
    except (OSError, yaml.YAMLError, KeyError, TypeError, StopIteration) as error:
        raise ClusterError(f"{path}: not a valid kubeconfig with a current context ({error!r})") from error


def cluster_name(path: Path) -> str | None:
    """Return the name of the cluster in a kubeconfig that `text` created; None for other files."""
    try:
        context = str(_read(path)["current-context"])
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError):
        return None
    return context.removeprefix(CONTEXT_PREFIX) if context.startswith(CONTEXT_PREFIX) else None


def is_ours(path: Path) -> bool:
    """Return whether a file is a kubeconfig that `text` created."""
    return cluster_name(path) is not None


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def leading_to(kubeconfig: Path, kubectl: Path) -> str:
    """Return a POSIX shell script that sets KUBECONFIG and prepends the folder of kubectl to PATH. It is idempotent."""
    folder = shlex.quote(str(kubectl.parent))
    return (
        f"export KUBECONFIG={shlex.quote(str(kubeconfig))}\n"
        f'case ":$PATH:" in *:{folder}:*) ;; *) export PATH={folder}:"$PATH" ;; esac\n'
    )
