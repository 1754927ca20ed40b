"""Roles' own tools before the proxy: ansible-playbook with kubernetes.core, and helm with a small chart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Played:
    """What came of a playbook: the value of its variable `result`, and all that it said."""

    result: Any
    output: str


Play = Callable[[str], Played]
Helm = Callable[..., str]
