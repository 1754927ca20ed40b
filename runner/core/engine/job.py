"""Input and output of an engine: plain values, no I/O.

An engine promises:

- Events reach the sink in order.
- `run` returns after every process of the run has ended.
- A run that dies, times out or cannot start returns a RunResult with that outcome and does not raise.
- A run outlives its operator only if it has another place. `resume` and `recorded` bracket such runs.
- Events, result and files contain none of the job's secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from runner.core.engine.run_secrets import RunSecrets
from runner.core.watches.watch import Content
from runner.values.objects import GVK, ObjectKey, ObjectRef
from runner.values.slots import EMPTY, Slots

Event: TypeAlias = dict[str, Any]
"""An event of ansible-runner: `event`, `counter`, `stdout`, `event_data`, ..."""

EventSink: TypeAlias = Callable[[Event], None]


SUPERSEDED = "superseded"
"""Message of a cancellation that ends the run. After another cancellation, a run in another place goes on."""


@dataclass(frozen=True, slots=True)
class UnrecordedRun:
    """A run whose outcome no operator has recorded yet. An engine adds what it needs to continue it."""

    ident: str
    token: str = field(repr=False)


class Inventory(Protocol):
    """Hosts of a run beside localhost."""

    @property
    def group(self) -> str:
        """Group of the hosts of the resource; the play for a role runs on it."""
        ...

    @property
    def further(self) -> tuple[Path, ...]:
        """Inventories of the project, which are read after its own."""
        ...

    @property
    def keeps_facts(self) -> bool:
        """True if facts of hosts are kept for the next run."""
        ...

    @property
    def unmatched(self) -> str:
        """Why the run failed if no play had any of the hosts, a sentence. Empty: the run succeeded."""
        ...

    def write(
        self, temporary: Path, sockets: Path, *, seen: Path | None = None, facts: Path | None = None
    ) -> tuple[Path, ...]:
        """Write its files into the temporary folder of a run; return its own inventories as Ansible sees them.

        `sockets` is a folder with a short path. `seen` is the path of the temporary folder for Ansible, if it differs.
        `facts` is the folder with kept facts; those of other machines are removed. Blocking I/O.
        """
        ...

    def explain(self, result: RunResult) -> RunResult:
        """Return a result whose messages about hosts name what a user can do."""
        ...

    def collect(self, result: RunResult, temporary: Path) -> RunResult:
        """Add what a run left in its temporary folder to its result. Blocking I/O."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """One run with all its inputs."""

    ident: str
    """Unique among the object's runs; name of the folder below `artifacts/`."""
    gvk: GVK
    key: ObjectKey
    content: Content
    run_dir: Path
    """ansible-runner's private data directory of the object."""
    extra_vars: Mapping[str, Any]
    """Variables of the run, as plain JSON values; see `unsafe_keys`."""
    unsafe_keys: frozenset[str]
    """Top-level extra vars from the object: their strings are never templated."""
    ignored_variables: tuple[str, ...]
    """Variables of the spec that the run does not receive, because Ansible itself interprets them."""
    verbosity: int
    ansible_args: str
    max_artifacts: int
    """Number of run folders to keep: 0 keeps all, -1 keeps none."""
    environment: Mapping[str, str]
    """Added to the operator's environment; overrides its variables."""
    kubeconfig: str
    """Text of the kubeconfig for this run only. It is written with mode 0600 and removed after the run has ended."""
    deadline: float | None
    """Seconds that the run may take; None is unlimited."""
    is_large: bool = False
    """Whether the conversion of its variables waits for other large ones."""
    raised: bool = False
    """Whether a user raised the verbosity, so that the log contains all output of tasks."""
    uid: str = ""
    """UID of the custom resource."""
    generation: int = 0
    purpose: str = "apply"
    """`apply`, `finalize` or `plan`."""
    token: str = field(default="", repr=False)
    """Token of the run for the proxy."""
    resumed: UnrecordedRun | None = None
    """The run to continue, if the engine has returned one from `resume`; None: begin one."""
    keeps_worker: bool = False
    """Whether the run keeps its worker while it waits for its place: its writes were decided before."""
    inventory: Inventory | None = None
    """Hosts beside localhost; None: there are none."""
    secrets: RunSecrets = field(default_factory=RunSecrets, repr=False, compare=False)
    """Values to mask in the run's output and files; grows during the run."""
    more: Slots = EMPTY
    """Inputs that only some features give a run."""

    @property
    def owner(self) -> ObjectRef:
        """The custom resource."""
        return ObjectRef(self.gvk, self.key, self.uid)


class Outcome(Enum):
    """Outcome of a run."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    CANCELED = "canceled"
    DIED = "died"
    NOT_STARTED = "not started"


@dataclass(frozen=True, slots=True)
class Recap:
    """Play recap of localhost, or of all hosts if the run has further ones.

    `completion` is ISO 8601 with microseconds, from the recap's event.
    """

    ok: int
    changed: int
    skipped: int
    failures: int
    completion: str


@dataclass(frozen=True, slots=True)
class HostRecap:
    """Play recap of a host. `unreachable` counts the tasks before which it could not be reached."""

    name: str
    ok: int
    changed: int
    failures: int
    unreachable: int


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """A failed or unreachable task that was not rescued or ignored. `path` is `file:line`, empty if unknown."""

    task: str
    message: str
    path: str
    terminal: bool = False
    """True if the role declared with this task that a retry cannot succeed."""
    host: str = ""
    """The host, unless it is localhost."""
    unreachable: bool = False


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of a run."""

    outcome: Outcome
    recap: Recap | None
    failures: tuple[TaskFailure, ...]
    message: str
    """Sentence for the Failure condition if there is no failed task; empty on success."""
    requeue_after: float | None
    """Seconds from the `requeue_after` module; None if the role did not use it."""
    duration: float
    pod: str = ""
    """`namespace/name` of the run's pod, with ` on ` and its node if that is known; empty for a process."""
    waits: bool = False
    """Whether a canceled run began nothing, because it has no place yet, such as a pod that is not scheduled."""
    lost: bool = False
    """Whether a run was canceled because its place was lost."""
    unfinished: bool = False
    """Whether the role requested another run because the object is not in its desired state yet."""
    hosts: tuple[HostRecap, ...] = ()
    """Recaps of the hosts beside localhost."""
    missed: tuple[str, ...] = ()
    """Names of hosts without a recap: the run ended before it reached them."""
    refused: bool = False
    """Whether no task ran, because a callback of the operator ended the run. `message` has the reason."""
    more: Slots = EMPTY
    """Results that only some features add to a run."""

    @property
    def unreachable(self) -> tuple[str, ...]:
        """Names of unreachable hosts if nothing else failed."""
        is_other = self.outcome is not Outcome.FAILED or not all(failure.unreachable for failure in self.failures)
        if is_other or not self.hosts:
            return ()
        return tuple(dict.fromkeys(failure.host for failure in self.failures))

    @property
    def is_terminal(self) -> bool:
        """True if the role declared that a retry cannot succeed."""
        return any(failure.terminal for failure in self.failures)


def canceled(why: str, duration: float, *, waits: bool = False) -> RunResult:
    """Return the result of a run that was ended because it was not needed any more, or that waits for its place."""
    return RunResult(Outcome.CANCELED, None, (), why, None, duration, waits=waits)


class Engine(Protocol):
    """Runner of jobs."""

    async def run(self, job: Job, sink: EventSink) -> RunResult:
        """Run a job to its end. If the awaiting task is canceled, every process of the run ends first."""
        ...

    async def resume(self, owner: ObjectRef, generation: int, purpose: str) -> UnrecordedRun | None:
        """Return the unrecorded run of an object that the next attempt continues; None if there is none.

        `purpose` is that of a `Job`. Other runs of the object that an earlier operator began are ended.

        Raises:
            PodWaitsError: the run waits for its place.
        """
        ...

    async def recorded(self, job: Job) -> None:
        """End what remains of a run after its outcome is recorded. Calling it twice does no harm."""
        ...

    async def forget(self, run_dir: Path) -> None:
        """Remove the files of a deleted object, and what remains of its runs. Its last run is kept for some minutes."""
        ...

    async def sweep(self, gvk: GVK, is_gone: Callable[[ObjectKey, str], bool], *, finalizes: bool) -> None:
        """End the unrecorded runs of objects that are gone. `is_gone` receives the key and UID of an object."""
        ...

    async def close(self, grace: float) -> None:
        """Wait up to `grace` seconds for runs to end, then end them. No run starts afterwards."""
        ...
