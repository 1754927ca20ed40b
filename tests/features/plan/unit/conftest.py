"""Readers of watches."""

from __future__ import annotations

from tests.unit.watches.fixtures import errors, load, one, project

__all__ = ["errors", "load", "one", "project"]
