"""A project folder with roles and a playbook, and readers of watches files in it."""

from __future__ import annotations

from tests.unit.watches.fixtures import errors, load, one, project

__all__ = ["errors", "load", "one", "project"]
