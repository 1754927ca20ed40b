"""A proxy on loopback between a raw client and a raw server, so that every byte on both sides is the test's own."""

from __future__ import annotations

from tests.unit.proxy.fixtures import stage, staged, with_stage

__all__ = ["stage", "staged", "with_stage"]
