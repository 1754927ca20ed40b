"""What an engine is given and what it gives back: plain values, no I/O.

An engine promises: events reach the sink in order; `run` returns after every process of the run has ended;
a run that dies, times out or cannot start returns a RunResult that says so rather than raising. Events, result and
files hold none of the job's secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from runner.config.settings import EngineName
from runner.engine.executions import Executions
from runner.engine.run_secrets import RunSecrets
from runner.objects import GVK, ObjectKey
from runner.watches.watch import Content

Event: TypeAlias = dict[str, Any]
"""An event of ansible-runner: `event`, `counter`, `stdout`, `event_data`, ..."""

EventSink: TypeAlias = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Job:
    """One run, wholly described."""

    ident: str
    """Unique among the object's runs; names the folder below `artifacts/`."""
    gvk: GVK
    key: ObjectKey
    content: Content
    run_dir: Path
    """ansible-runner's private data directory of the object."""
    extra_vars: Mapping[str, Any]
    """What the run receives, as plain JSON values; see `unsafe_keys`."""
    unsafe_keys: frozenset[str]
    """Top-level extra vars that came from the object: their strings are never templated."""
    ignored_variables: tuple[str, ...]
    """Variables of the spec that the run does not receive, since Ansible itself interprets them."""
    verbosity: int
    ansible_args: str
    max_artifacts: int
    """Run folders kept: 0 keeps all, -1 keeps none."""
    environment: Mapping[str, str]
    """Added to (and winning over) the operator's own environment."""
    kubeconfig: str
    """Text of the kubeconfig of this run alone; written 0600, removed after the run has ended."""
    deadline: float | None
    """Seconds that the run may take; None: as long as it likes."""
    engine: EngineName | None = None
    """None: the operator's own."""
    secrets: RunSecrets = field(default_factory=RunSecrets, repr=False, compare=False)
    """What is masked in whatever the run shows and leaves; grows while it goes on."""


class Outcome(Enum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    CANCELED = "canceled"
    DIED = "died"
    NOT_STARTED = "not started"


@dataclass(frozen=True, slots=True)
class Recap:
    """The play recap for localhost. `completion` is ISO 8601 with microseconds, as the recap's event has it."""

    ok: int
    changed: int
    skipped: int
    failures: int
    completion: str


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """A failed or unreachable task that nobody rescued or ignored. `path` is `file:line`, empty if unknown."""

    task: str
    message: str
    path: str
    terminal: bool = False
    """Whether the role said by this task that trying again is of no use."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run came to."""

    outcome: Outcome
    recap: Recap | None
    failures: tuple[TaskFailure, ...]
    message: str
    """A sentence for the Failure condition when there is no failed task to name; empty on success."""
    requeue_after: float | None
    """Seconds, as the `requeue_after` module asked; None when it did not."""
    duration: float
    executions: Executions = field(default_factory=Executions)
    """How its tasks were executed; empty for a run that was not forked."""

    @property
    def is_terminal(self) -> bool:
        """Whether trying again is of no use, as the role said."""
        return any(failure.terminal for failure in self.failures)


def canceled(why: str, duration: float) -> RunResult:
    """The result of a run that was ended because nobody wants it any more."""
    return RunResult(
        outcome=Outcome.CANCELED, recap=None, failures=(), message=why, requeue_after=None, duration=duration
    )


class Engine(Protocol):
    """Runs jobs."""

    async def run(self, job: Job, sink: EventSink) -> RunResult:
        """Run a job to its end. Canceling the awaiting task ends every process of the run first."""
        ...

    async def forget(self, run_dir: Path) -> None:
        """Remove what is kept of an object that is gone."""
        ...

    async def close(self, grace: float) -> None:
        """Let runs end within `grace` seconds, then end them. No run starts afterwards."""
        ...
