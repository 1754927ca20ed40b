"""Active runs and the latest finished runs of this operator, for the status page.

The weight of all runs is bounded: one for each run, task and item of a loop. The oldest run is removed first.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from runner.core.engine.job import Event, Job, Outcome, RunResult
from runner.core.engine.run_secrets import RunSecrets
from runner.core.proxy.identity import RunStats
from runner.core.queue.reasons import ReconcileRequest
from runner.core.watches.watch import content_name
from runner.features.ui.timeline import Timeline
from runner.values.objects import GVK, ObjectKey

MOST_WEIGHT = 20_000
MOST_GROUPED = 1000
"""Maximum number of finished runs whose failures are grouped."""
ABANDONED = "abandoned"
"""Result of a run whose end was not reported."""
_LONGEST_MESSAGE = 4000
_COMPARED = 500
"""Characters of a message by which failures are grouped."""


@dataclass(slots=True)
class JournalEntry:
    """A run."""

    ident: str
    gvk: GVK
    key: ObjectKey
    content: str
    """Name of the role, or path of the playbook."""
    reason: str
    details: tuple[str, ...]
    waited: float
    began: float
    """Seconds since the epoch, as all times here."""
    timeline: Timeline
    outcome: str = ""
    """Empty while the run is active."""
    ended: float | None = None
    message: str = ""
    """Reason of a failure."""
    cause: str = ""
    """The message without names and numbers, to group failures."""
    place: str = ""
    """`file:line` of the first failed task."""
    task: str = ""
    """Name of the first failed task."""
    calls: int | None = None
    """API calls; None, like the next fields, until the run ends."""
    call_seconds: float | None = None
    cache_hits: int | None = None
    pod: str = ""
    """As in `RunResult`."""

    @property
    def weight(self) -> int:
        """Share of the journal's capacity."""
        return 1 + len(self.timeline.tasks) + sum(len(task.items) for task in self.timeline.tasks)

    @property
    def failed(self) -> bool:
        """True if it ended without success, and was not canceled."""
        return self.outcome not in {"", Outcome.SUCCEEDED.value, Outcome.CANCELED.value, ABANDONED}


@dataclass(frozen=True, slots=True)
class FailureStreak:
    """Consecutive failed runs of an object."""

    runs: int
    since: float
    """Start of the first."""


@dataclass(slots=True)
class FailureGroup:
    """Failed runs of one kind with the same cause."""

    latest: JournalEntry
    """The latest one, of an object that still fails if there is one."""
    runs: int = 0
    failing: dict[ObjectKey, None] = field(default_factory=dict)
    """Objects that still fail, the latest first."""
    resolved: dict[ObjectKey, None] = field(default_factory=dict)
    """Objects that succeeded later, or were deleted."""

    def add(self, run: JournalEntry, *, resolved: bool) -> None:
        """Add an older run."""
        self.runs += 1
        if not resolved and not self.failing:
            self.latest = run
        if not resolved:
            self.failing[run.key] = None
            self.resolved.pop(run.key, None)
        elif run.key not in self.failing:
            self.resolved[run.key] = None


class Journal:
    """Recorder of runs."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` returns seconds since the epoch."""
        self.revision = 0
        """Number of changes."""
        self.live: dict[tuple[GVK, ObjectKey], JournalEntry] = {}
        self.ended: deque[JournalEntry] = deque()
        """In order of their end."""
        self.streaks: dict[tuple[GVK, ObjectKey], FailureStreak] = {}
        """Objects whose last run failed."""
        self.secrets: dict[tuple[GVK, ObjectKey], RunSecrets] = {}
        """Secrets of the last run of each object."""
        self._clock = clock
        self._weight = 0

    def now(self) -> float:
        """Return the seconds since the epoch."""
        return self._clock()

    def start(self, job: Job, request: ReconcileRequest) -> RunRecorder:
        """Record the start of a run."""
        self.settle(lambda gvk, key: (gvk, key) != (job.gvk, job.key))
        run = JournalEntry(
            ident=job.ident,
            gvk=job.gvk,
            key=job.key,
            content=content_name(job.content),
            reason=request.reason.value,
            details=request.details,
            waited=request.waited,
            began=self._clock(),
            timeline=Timeline(job.secrets.masker.text),
        )
        self.live[job.gvk, job.key] = run
        self.revision += 1
        return RunRecorder(self, run, job.secrets)

    def settle(self, is_active: Callable[[GVK, ObjectKey], bool]) -> None:
        """Close runs that ended without a report, according to `is_active`."""
        for (gvk, key), run in list(self.live.items()):
            if not is_active(gvk, key):
                run.timeline.end(self._clock(), None, whole=False)
                self.close(run, ABANDONED)

    def close(self, run: JournalEntry, outcome: str) -> None:
        """Record the end of a run."""
        run.outcome, run.ended = outcome, self._clock()
        if self.live.get((run.gvk, run.key)) is run:
            del self.live[run.gvk, run.key]
        self.ended.append(run)
        self._weight += run.weight
        while self._weight > MOST_WEIGHT and len(self.ended) > 1:
            self._weight -= self.ended.popleft().weight
        self.revision += 1

    def count(self, run: JournalEntry, outcome: Outcome) -> None:
        """Update the object's streak of failed runs."""
        owner = (run.gvk, run.key)
        if outcome is Outcome.SUCCEEDED:
            self.streaks.pop(owner, None)
        elif outcome is not Outcome.CANCELED:
            before = self.streaks.get(owner, FailureStreak(0, run.began))
            self.streaks[owner] = FailureStreak(before.runs + 1, before.since)

    def forget(self, exists: Callable[[GVK, ObjectKey], bool]) -> None:
        """Remove deleted objects."""
        for owner in [key for key in (*self.streaks, *self.secrets) if not exists(*key)]:
            self.streaks.pop(owner, None)
            self.secrets.pop(owner, None)

    def of(self, gvk: GVK, key: ObjectKey) -> list[JournalEntry]:
        """Return the runs of an object, newest first."""
        live = self.live.get((gvk, key))
        ended = [run for run in reversed(self.ended) if run.key == key and run.gvk == gvk]
        return [live, *ended] if live is not None else ended

    def is_resolved(self, run: JournalEntry) -> bool:
        """Return whether a failed run's object succeeded later, or was deleted."""
        streak = self.streaks.get((run.gvk, run.key))
        return run.failed and (streak is None or run.began < streak.since)

    def failure_groups(self) -> list[FailureGroup]:
        """Return the failures of the latest runs by cause: unresolved ones first, then by the time of the last one.

        The cause is the task with its location and its message, apart from names and numbers.
        """
        groups: dict[tuple[GVK, str, str, str], FailureGroup] = {}
        for run in islice(reversed(self.ended), MOST_GROUPED):
            if run.failed:
                cause = (run.gvk, run.task, run.place, run.cause)
                groups.setdefault(cause, FailureGroup(latest=run)).add(run, resolved=self.is_resolved(run))
        return sorted(groups.values(), key=lambda group: not group.failing)


def _without_names(run: JournalEntry) -> str:
    """Return the message of a failure without the object's name and namespace, and without words with digits."""
    names = "|".join(re.escape(name) for name in run.key if name)
    return re.sub(rf"\b(?:{names}|[\w.-]*\d[\w.-]*)\b", "#", run.message[:_COMPARED])


@dataclass(frozen=True, slots=True)
class RunRecorder:
    """Recorder of one run."""

    journal: Journal
    run: JournalEntry
    secrets: RunSecrets

    def event(self, event: Event) -> None:
        """Record an event."""
        if self.run.timeline.add(event):
            self.journal.revision += 1

    def end(self, result: RunResult, api: RunStats) -> None:
        """Record the result."""
        run, masked = self.run, self.run.timeline.masked
        first = result.failures[0] if result.failures else None
        run.message = masked(first.message if first else result.message)[:_LONGEST_MESSAGE]
        run.cause = _without_names(run)
        run.task, run.place = (masked(first.task), first.path) if first else ("", "")
        run.calls, run.call_seconds, run.cache_hits = api.calls, api.seconds, api.hits
        run.pod = result.pod
        whole = result.outcome in {Outcome.SUCCEEDED, Outcome.FAILED}
        run.timeline.end(self.journal.now(), result.failures, whole=whole)
        run.timeline.masked = str  # all texts are masked; the secret values are kept only for the object
        self.journal.secrets[run.gvk, run.key] = self.secrets
        self.journal.count(run, result.outcome)
        self.journal.close(run, result.outcome.value)
