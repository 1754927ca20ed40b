"""Stages of the proxy, for the unit tests of each feature that handles requests of runs."""

from __future__ import annotations

from tests.unit.proxy.fixtures import stage, staged, with_stage

__all__ = ["stage", "staged", "with_stage"]
