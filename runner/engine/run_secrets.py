"""What is known to be secret in one run.

Owns: the known values from the run's begin until its files are masked, and what is remembered of where they were found.
Whoever learns values tells: credentials before the run, everything else while it goes on, and before the run's clients
have it, so that what the run shows comes later. Nothing here is logged. Must not import: what shows anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from runner.masking.masker import Masker

WITHHELD = "withheld: this run read more Secrets than can be masked in its output"


class RunSecrets:
    """The secrets of one run. `spared` are words that are shown whatever they equal: names of the object itself."""

    __slots__ = ("_cleared", "_has_learned", "_is_told", "has_found", "masker")

    def __init__(self, spared: Iterable[str] = ()) -> None:
        self.masker = Masker(spared)
        self.has_found = False
        """Whether an event showed a value."""
        self._has_learned = False
        self._is_told = False
        self._cleared: set[str] = set()

    def __repr__(self) -> str:
        return f"<RunSecrets: {self.masker!r}>"

    def know(self, values: Iterable[str]) -> None:
        """Know values before the run begins."""
        for value in values:
            self.masker.add(value)

    def learn(self, values: Iterable[str | bytes], spared: Collection[str] = ()) -> None:
        """Know values from now on; `spared` as above, for these alone."""
        for value in values:
            self._has_learned = True
            self.masker.add(value, spared)

    def exhaust(self) -> None:
        """Note that there are values that cannot be known."""
        self.masker.exhaust()

    def is_exhausted_first(self) -> bool:
        """Whether there are such values and nobody has asked since: for whoever tells of it once."""
        is_first = self.masker.is_exhausted and not self._is_told
        self._is_told = self.masker.is_exhausted
        return is_first

    def clear(self, task: str) -> None:
        """Note that the arguments of a task (its uuid) with `no_log` are known."""
        self._cleared.add(task)

    def is_cleared(self, task: object) -> bool:
        """Whether the arguments of a task with `no_log` are known."""
        return task in self._cleared

    @property
    def is_exhausted(self) -> bool:
        """Whether there were more values than can be known: what the run shows cannot be vouched for."""
        return self.masker.is_exhausted

    @property
    def may_be_in_files(self) -> bool:
        """Whether a file that is made of the run's events may hold a value.

        It may not, where no event showed one, and none became known since the first of them.
        """
        return self._has_learned or self.has_found or self.is_exhausted
