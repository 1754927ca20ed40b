"""Clusters that a user selects by a flag. Commands that start a control plane of their own ignore KUBECONFIG.

A shell often has a KUBECONFIG for another purpose. A command that applies CRDs, runs roles or tests would change that
cluster.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.base.config import atomic_file
from runner.sdk.devcluster import kubeconfig
from runner.sdk.devcluster.cluster import run_kubectl
from runner.values.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ChosenCluster:
    """A kubeconfig with one context, which is the current one."""

    path: Path
    context: str
    server: str

    @property
    def is_local(self) -> bool:
        """True for a control plane of `cluster up` or `dev`."""
        return kubeconfig.is_ours(self.path)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that select a cluster."""
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="use this cluster, and start no control plane")
    parser.add_argument("--context", default="", metavar="NAME", help="use this context of the kubeconfig")
    parser.add_argument("--yes", action="store_true", help="do not ask before the selected cluster is changed")


def ignored(environ: Mapping[str, str], flag: str) -> str:
    """Return the line about a KUBECONFIG that is ignored; empty if there is none. `flag` selects a cluster."""
    given = environ.get("KUBECONFIG")
    return (
        f"KUBECONFIG={given} is ignored: a separate control plane starts. To use that cluster, set {flag}"
        if given
        else ""
    )


def choose(file: str, context: str, folder: Path, kubectl: Path, environ: Mapping[str, str]) -> ChosenCluster:
    """Copy the selected context to a file in `folder`. Without `file`, it is in the usual kubeconfig.

    Raises:
        ConfigError: the file is missing.
        OperatorError: the file has no such context.
    """
    if file and not Path(file).exists():
        raise ConfigError(f"--kubeconfig {file}: no such file")
    own = {**environ, **({"KUBECONFIG": file} if file else {})}
    options = [f"--context={context}"] if context else []
    path = folder / "kubeconfig"
    text = run_kubectl(kubectl, own, "config", "view", "--raw", "--flatten", "--minify", *options)
    atomic_file.write(path, text)
    return ChosenCluster(path, *kubeconfig.current(path))


def confirm(cluster: ChosenCluster, action: str, *, yes: bool) -> None:
    """Name the cluster, and ask before it is changed. A control plane on this machine needs no question.

    Raises:
        ConfigError: the user refuses, or there is no terminal for the answer.
    """
    sys.stdout.write(f"Cluster:     context {cluster.context}, {cluster.server}\n")
    sys.stdout.flush()
    if yes or cluster.is_local:
        return
    if not is_terminal():
        raise ConfigError(
            f"nothing was changed: without a terminal, --yes is required to change the context {cluster.context}; "
            "without --kubeconfig and --context, a separate control plane starts"
        )
    try:
        answer = input(f"{action} in this cluster? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in {"y", "yes"}:
        raise ConfigError("nothing was changed; without --kubeconfig and --context, a separate control plane starts")


def is_terminal() -> bool:
    """Return whether a user can answer a question."""
    return sys.stdin.isatty() and sys.stdout.isatty()
