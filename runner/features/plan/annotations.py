"""Annotation that approves a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.values.objects import PREFIX, annotations_of

APPROVE = PREFIX + "approve"
"""Annotation: the hash of the plan that the operator executes, in mode `approve`."""


def approved_hash(obj: Mapping[str, Any]) -> str:
    """Return the value of the annotation; empty if it is not set."""
    return str(annotations_of(obj).get(APPROVE, ""))
