"""Folders of binaries and clusters, by the XDG base directory specification."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from runner.values.errors import ConfigError

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


def binaries(environ: Mapping[str, str]) -> Path:
    """Return the folder of built and downloaded binaries."""
    return _base(environ, "XDG_CACHE_HOME", ".cache") / "controlplane"


def clusters(environ: Mapping[str, str]) -> Path:
    """Return the parent folder of named clusters."""
    return _base(environ, "XDG_STATE_HOME", ".local/state") / "clusters"


def cluster(environ: Mapping[str, str], name: str) -> Path:
    """Return the folder of one named cluster."""
    if not is_name(name):
        raise ConfigError(
            f"invalid cluster name {name!r}: use at most 40 lower case letters, digits and hyphens",
        )
    return clusters(environ) / name


def is_name(text: str) -> bool:
    """Return whether a cluster can have this name, which is part of file and context names."""
    return _NAME.fullmatch(text) is not None


def _base(environ: Mapping[str, str], variable: str, default: str) -> Path:
    # The specification requires to ignore relative paths.
    given = Path(environ.get(variable, ""))
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    return (given if given.is_absolute() else home / default) / "ansible-operator"
