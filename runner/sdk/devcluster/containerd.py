"""Images of a real node: imports into its containerd.

`ctr` runs in the namespaces of the node, as a child of this process. Raises `ClusterError`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import IO

from runner.sdk.devcluster import node
from runner.sdk.devcluster.api import Api
from runner.sdk.devcluster.layout import Layout
from runner.sdk.devcluster.leash import ENTER
from runner.sdk.devcluster.nodes import find
from runner.sdk.devcluster.processes import environment, leashed
from runner.values.errors import ClusterError

_WITHIN = 300.0
_ANSWERS_WITHIN = 10.0
_IMPORTED = re.compile(r"^unpacking (\S+) \(", re.MULTILINE)


def load_archive(archive: Path, layout: Layout) -> list[str]:
    """Import an archive in the format of Docker or OCI into the cluster's node; return the names of its images.

    Pods can use the images as soon as this function returns.
    """
    try:
        facts = json.loads(layout.facts.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ClusterError(
            f"no cluster runs in {layout.folder}; start one with `ansible-operator cluster up`"
        ) from error
    if facts["namespaces"] is None:
        raise ClusterError(
            f"cluster {facts['name']!r} has no real node, so it runs no images; start it with `--node real` or `both`"
        )
    names = import_archive(archive, facts["namespaces"])
    announce(Api.from_run_folder(layout.run, facts["port"]), facts["namespaces"])
    return names


def import_archive(archive: Path, namespaces: int) -> list[str]:
    """Import an archive; return the names of its images."""
    with archive.open("rb") as content:
        output = _ctr(namespaces, "images", "import", "-", content=content)
    return [image.removesuffix(":") for image in _IMPORTED.findall(output)]


def announce(api: Api, namespaces: int) -> None:
    """Write the names of all images of the node to the ConfigMap that the admission policy reads."""
    names = _ctr(namespaces, "images", "list", "--quiet").split()
    api.apply(node.IMAGES_PATH, node.loaded_images([name for name in names if not name.startswith("sha256:")]))


def is_ready(namespaces: int) -> bool:
    """Return whether containerd responds."""
    try:
        _ctr(namespaces, "version", within=_ANSWERS_WITHIN)
    except ClusterError:
        return False
    return True


def _ctr(namespaces: int, *arguments: str, content: IO[bytes] | None = None, within: float = _WITHIN) -> str:
    ctr = find("ctr", os.environ)
    if ctr is None:
        raise ClusterError("ctr is missing; on Debian: apt-get install containerd")
    command = leashed(f"{ENTER}{namespaces}", ctr, f"--address={node.SOCKET}", "--namespace=k8s.io", *arguments)
    shown = f"ctr {' '.join(arguments)}"
    try:
        done = subprocess.run(
            command,
            cwd="/",
            env=environment(os.environ),
            stdin=content or subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=within,
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"`{shown}` did not end within {within:.0f} s") from error
    if done.returncode:
        raise ClusterError(f"`{shown}` failed: {done.stderr.strip()}")
    return done.stdout
