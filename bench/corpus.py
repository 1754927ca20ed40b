"""Operators' projects that benchmarks run: `bench/roles`, a folder each with a watch, its kind and an object of it.

Their roles are written as an operator's author writes them, after profiles of operators in the field; what each has is
in `bench/roles/README.md`.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from runner.app.features import FEATURE_FIELDS
from runner.core.watches import watch as watches
from runner.core.watches.watch import Watch
from runner.values.objects import Object

ROOT = Path(__file__).with_name("roles")
GROUP_VERSION = "apps.example.com/v1alpha1"


@dataclass(frozen=True, slots=True)
class Case:
    """A project, and how the engine's benchmark runs it."""

    name: str
    creates: bool = False
    """Whether each run is that of a new object; else all runs are of one object that has nothing left to change."""
    small_objects: bool = False
    """Whether each `k8s` task of the role has one small object."""

    @property
    def folder(self) -> Path:
        """Return the project's folder."""
        return ROOT / self.name

    @property
    def watch(self) -> Watch:
        """Return the only watch of the project, as the operator reads it."""
        file = self.folder / "watches.yaml"
        loaded = watches.load(
            file, environ=os.environ, cwd=self.folder, roles_path="", collections_path="", features=FEATURE_FIELDS
        )
        (found,) = loaded.watches
        return found

    @property
    def crd(self) -> Object:
        """Return the definition of the project's kind."""
        return _read(self.folder / "crd.yaml")

    def sample(self, name: str, **spec: Any) -> Object:
        """Return an object of the kind with this name; `spec` wins over the sample's own fields."""
        made = copy.deepcopy(_read(self.folder / "sample.yaml"))
        made["metadata"]["name"] = name
        made["spec"] |= spec
        return made

    def path(self, namespace: str, name: str = "") -> str:
        """Return the API path of the objects of a namespace, or of one of them."""
        plural = self.crd["spec"]["names"]["plural"]
        return f"/apis/{GROUP_VERSION}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")


CASES = (
    Case("portal"),
    Case("registry"),
    Case("queue", creates=True, small_objects=True),
    Case("tenants"),
    Case("feed"),
    Case("typical"),
    Case("directory"),
)
QUEUE = CASES[2]


def _read(file: Path) -> Object:
    found: Object = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found
