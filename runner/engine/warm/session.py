"""How a module's processes stand apart from those of the playbook."""

from __future__ import annotations

from enum import Enum


class Session(Enum):
    """What of its own a module's process has."""

    SHARED = "shared"
    OWN_GROUP = "own group"
    OWN = "own"
