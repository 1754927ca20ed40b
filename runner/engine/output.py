"""Location of a run's output, and the hint that names it. Pure.

Source of the layout:
https://ansible.readthedocs.io/projects/runner/en/stable/intro/#runner-artifacts-directory-hierarchy
"""

from __future__ import annotations

from pathlib import Path

from runner.config.settings import RUNNER_DIR
from runner.engine.artifacts import KEEP_NONE
from runner.engine.job import Job
from runner.objects import GVK

STDOUT = "stdout"
"""File in a run's folder with all its output."""


def named(gvk: GVK) -> str:
    """Return the name of a kind for `kubectl`: `Kind.group`, or `Kind` alone for the core group."""
    return f"{gvk.kind}.{gvk.group}" if gvk.group else gvk.kind


def pointer(job: Job) -> str:
    """Return a sentence with the location of a run's output; empty if the output is not kept."""
    if job.max_artifacts == KEEP_NONE:
        return ""
    command = f"ansible-operator logs {named(job.gvk)}/{job.key.name}"
    if job.key.namespace:
        command += f" -n {job.key.namespace}"
    if not job.run_dir.is_relative_to(RUNNER_DIR):
        depth = len([part for part in (job.gvk.group, job.gvk.version, job.gvk.kind, *job.key) if part])
        command += f" --runner-dir={Path(job.run_dir).parents[depth - 1]}"
    return f"All of its output, where the operator runs: {command} (run folder {job.run_dir})"
