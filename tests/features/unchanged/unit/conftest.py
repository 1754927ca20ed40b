"""Stages of the proxy."""

from __future__ import annotations

from tests.unit.proxy.fixtures import stage, staged, with_stage

__all__ = ["stage", "staged", "with_stage"]
