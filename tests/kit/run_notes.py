"""Notes of forked runs: what they loaded, and what `task_record` recorded of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from runner.engines.warm.server.pool import Pool


@contextmanager
def kept() -> Iterator[list[str]]:
    """Yield a list that gets the notes of each forked run that ends meanwhile."""
    notes: list[str] = []
    learn = Pool.learn

    def keep(self: Pool, environment: Mapping[str, str], lines: str, ident: str) -> None:
        notes.append(lines)
        learn(self, environment, lines, ident)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Pool, "learn", keep)
        yield notes
