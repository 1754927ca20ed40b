"""Commands typed in a new project's folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Type: TypeAlias = Callable[[str], tuple[int, str, str]]
"""Type a line; what comes back: the exit code, and what was printed as output and as errors."""
