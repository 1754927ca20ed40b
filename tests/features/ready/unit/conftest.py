"""Threads of controllers in virtual time."""

from __future__ import annotations

from tests.unit.controller.fixtures import no_threads

__all__ = ["no_threads"]
