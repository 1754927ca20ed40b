"""Controllers in virtual time, and readers of watches."""

from __future__ import annotations

from tests.unit.controller.fixtures import no_threads
from tests.unit.watches.fixtures import errors, load, one, project

__all__ = ["errors", "load", "no_threads", "one", "project"]
