"""`watches.yaml` as frozen values: which kind is watched, and what runs for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from runner.objects import GVK


@dataclass(frozen=True, slots=True)
class Role:
    """A role: `name` as written in watches.yaml, `path` the folder that was found for it (absolute)."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class Playbook:
    """A playbook: its absolute path."""

    path: Path


Content: TypeAlias = Role | Playbook
"""What a run executes."""


@dataclass(frozen=True, slots=True)
class Finalizer:
    """A watch's finalizer: `name` stands in `metadata.finalizers`; `content` runs on deletion with `vars` added.

    `content` is the watch's own role or playbook where the finalizer names none.
    """

    name: str
    content: Content
    vars: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Watch:
    """One entry of watches.yaml, with every default applied."""

    gvk: GVK
    content: Content
    vars: Mapping[str, Any]
    finalizer: Finalizer | None
    reconcile_period: float | None
    """Seconds between periodic runs; None: the flag's value; 0: off."""
    manage_status: bool
    watch_dependent_resources: bool
    watch_cluster_scoped_resources: bool
    watch_annotations_changes: bool
    max_runner_artifacts: int
    """Run folders kept per object; -1 keeps none."""
    snake_case_parameters: bool
    mark_unsafe: bool
    selector: str
    """Label selector in the API's own spelling (`a=b,c in (d,e)`); empty: all objects."""
    blacklist: frozenset[GVK]
    line: int
    """Where the entry begins in watches.yaml, counted from 1."""
