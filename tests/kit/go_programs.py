"""Programs that only tests need, each built once with Go: the helm client, and the linter of GitHub's workflows."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from runner.sdk.devcluster import binaries
from runner.sdk.devcluster.binaries import Program, Toolset
from runner.sdk.devcluster.gobuild import GoBuild
from runner.sdk.devcluster.progress import Progress

HELM, ACTIONLINT = "v3.20.2", "v1.7.12"
MODULES = Path(__file__).with_name("modules")
_HELM_VARIABLES = (("helm.sh/helm/v3/internal/version.version", HELM),)
_HELM = Program("helm", MODULES / "helm", "helm.sh/helm/v3/cmd/helm", _HELM_VARIABLES)
_ACTIONLINT = Program("actionlint", MODULES / "actionlint", "github.com/rhysd/actionlint/cmd/actionlint")


def get_helm(environ: Mapping[str, str], progress: TextIO) -> Path:
    """Return the helm client in PATH; if there is none, build it."""
    return _get(_HELM, HELM, environ, progress)


def get_actionlint(environ: Mapping[str, str], progress: TextIO) -> Path:
    """Return the actionlint in PATH; if there is none, build it."""
    return _get(_ACTIONLINT, ACTIONLINT, environ, progress)


def _get(program: Program, version: str, environ: Mapping[str, str], progress: TextIO) -> Path:
    if installed := shutil.which(program.name, path=environ.get("PATH")):
        return Path(installed)
    kit = Toolset(program.name, f"{program.name}-{version}", (program,))
    logs = binaries.cache_folder(environ, binaries.this_machine(), kit)
    return binaries.provide(environ, (GoBuild(environ, logs),), Progress(progress), kit)[program.name]
