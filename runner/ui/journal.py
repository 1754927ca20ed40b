"""What this operator's runs do and did, for the page: those that go on, and the latest that have ended.

Bounded by weight: a run weighs one, and one for each of its tasks; the oldest goes first. Ends nothing and delays
nothing: taking in an event is a few assignments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from runner.engine.job import Event, Job, Outcome, RunResult
from runner.objects import GVK, ObjectKey
from runner.proxy.identity import RunStats
from runner.ui.timeline import Timeline
from runner.watches.watch import content_name
from runner.workqueue.request import Request

MOST_WEIGHT = 20_000
UNKNOWN = "given up"
"""How a run ended that nobody told the end of."""
_LONGEST_MESSAGE = 4000


@dataclass(frozen=True, slots=True)
class Calls:
    """What a run asked of the API server."""

    calls: int
    seconds: float
    hits: int
    misses: int


@dataclass(slots=True)
class Run:
    """One run."""

    ident: str
    gvk: GVK
    key: ObjectKey
    content: str
    """The role's name or the playbook's path."""
    reason: str
    details: tuple[str, ...]
    waited: float
    began: float
    """Seconds since the epoch, as all moments here."""
    timeline: Timeline
    outcome: str = ""
    """Empty while it goes on."""
    ended: float | None = None
    message: str = ""
    """Why it did not succeed."""
    place: str = ""
    """`file:line` of the task that failed first."""
    task: str = ""
    """Its name."""
    calls: Calls | None = None
    ways: Mapping[str, int] = field(default_factory=dict)
    """How many tasks were executed in which way."""

    @property
    def weight(self) -> int:
        """How much room it takes."""
        return 1 + len(self.timeline.tasks)


@dataclass(frozen=True, slots=True)
class Streak:
    """Failed runs of an object in a row."""

    runs: int
    since: float
    """When the first of them began."""


class Journal:
    """A recorder of runs."""

    def __init__(self, clock: Callable[[], float], most_weight: int = MOST_WEIGHT) -> None:
        """`clock` tells seconds since the epoch."""
        self.revision = 0
        """Counts what was taken in."""
        self.live: dict[tuple[GVK, ObjectKey], Run] = {}
        self.ended: deque[Run] = deque()
        """The latest last."""
        self.streaks: dict[tuple[GVK, ObjectKey], Streak] = {}
        """Of the objects whose latest run failed."""
        self._clock = clock
        self._most_weight = most_weight
        self._weight = 0

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._clock()

    def start(self, job: Job, request: Request) -> RunNotes:
        """Note that a run starts."""
        self.settle(lambda gvk, key: (gvk, key) != (job.gvk, job.key))
        run = Run(
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
        return RunNotes(self, run)

    def settle(self, goes_on: Callable[[GVK, ObjectKey], bool]) -> None:
        """Take those runs for ended of which nobody told the end."""
        for (gvk, key), run in list(self.live.items()):
            if not goes_on(gvk, key):
                run.timeline.end(self._clock(), None, whole=False)
                self.close(run, UNKNOWN)

    def close(self, run: Run, outcome: str) -> None:
        """A run has ended."""
        run.outcome, run.ended = outcome, self._clock()
        if self.live.get((run.gvk, run.key)) is run:
            del self.live[run.gvk, run.key]
        self.ended.append(run)
        self._weight += run.weight
        while self._weight > self._most_weight and len(self.ended) > 1:
            self._weight -= self.ended.popleft().weight
        self.revision += 1

    def count(self, run: Run, outcome: Outcome) -> None:
        """Count a run that came to its end by itself."""
        whose = (run.gvk, run.key)
        if outcome is Outcome.SUCCEEDED:
            self.streaks.pop(whose, None)
        elif outcome is not Outcome.CANCELED:
            before = self.streaks.get(whose, Streak(0, run.began))
            self.streaks[whose] = Streak(before.runs + 1, before.since)

    def forget(self, is_there: Callable[[GVK, ObjectKey], bool]) -> None:
        """Count nothing any more of objects that are gone."""
        for whose in [each for each in self.streaks if not is_there(*each)]:
            del self.streaks[whose]

    def of(self, gvk: GVK, key: ObjectKey) -> list[Run]:
        """The runs of an object, the latest first."""
        live = self.live.get((gvk, key))
        ended = [run for run in reversed(self.ended) if run.key == key and run.gvk == gvk]
        return [live, *ended] if live is not None else ended

    def latest(self, most: int) -> list[Run]:
        """The latest of those that have ended, the latest first."""
        return [run for run, _ in zip(reversed(self.ended), range(most), strict=False)]


@dataclass(frozen=True, slots=True)
class RunNotes:
    """What is noted of one run."""

    journal: Journal
    run: Run

    def event(self, event: Event) -> None:
        """Note an event."""
        if self.run.timeline.add(event):
            self.journal.revision += 1

    def end(self, result: RunResult, api: RunStats) -> None:
        """Note how it ended."""
        run, masked = self.run, self.run.timeline.masked
        first = result.failures[0] if result.failures else None
        run.message = masked(first.message if first else result.message)[:_LONGEST_MESSAGE]
        run.task, run.place = (masked(first.task), first.path) if first else ("", "")
        run.calls = Calls(api.calls, api.seconds, api.hits, api.misses)
        run.ways = result.executions.totals
        whole = result.outcome in {Outcome.SUCCEEDED, Outcome.FAILED}
        run.timeline.end(self.journal.now(), result.failures, whole=whole)
        self.journal.count(run, result.outcome)
        self.journal.close(run, result.outcome.value)
