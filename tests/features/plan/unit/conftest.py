"""Stages of the proxy, and readers of watches."""

from __future__ import annotations

from tests.unit.proxy.fixtures import stage, staged, with_stage
from tests.unit.watches.fixtures import errors, load, one, project

__all__ = ["errors", "load", "one", "project", "stage", "staged", "with_stage"]
