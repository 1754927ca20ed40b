"""`ansible-operator migrate --try`: the project's samples on a local control plane, for each ansible-core and engine.

Each trial has its own control plane, so that objects have the same names. It applies the project's CRDs and samples.
The operator runs until the first run of each sample has ended. Then the objects in the namespace are collected. Values
that differ between two trials of one ansible-core are random, and are not compared.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from runner.base.config import paths
from runner.compatibility.finding import NEW_CORE, OLD_CORE
from runner.core.engine.events import TASK_STARTS
from runner.sdk import devcluster
from runner.sdk.devcluster import DevCluster, processes
from runner.sdk.devcluster.cluster import run_kubectl
from runner.sdk.migrate import image, manifests, samples, trial_cluster
from runner.sdk.migrate.project import Project
from runner.sdk.migrate.trial_cluster import Objects
from runner.values.errors import ConfigError, OperatorError

NAMESPACE = "trial"
_GRACE = 30.0
_LONGEST = 300.0
"""Seconds that the first run of a sample can take."""
_AT_ONCE = 4
"""Samples of a kind that run at the same time. Most of a run is waiting."""
_PORTS = ("--proxy-port=0", "--health-probe-bind-address=0", "--metrics-bind-address=0", "--user-metrics-port=0")
_SHOWN = 10
"""Differences that a report shows."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Tasks of a run."""

    started: int
    last: str
    """Name of the last one that started."""

    def __str__(self) -> str:
        return f"reached task {self.started}, {self.last!r}"


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of the samples with one ansible-core and one engine."""

    core: str
    engine: str
    outcomes: Mapping[str, str]
    """`succeeded`, or the reason of the failure, by `Kind/name`."""
    objects: Objects
    tasks: Mapping[str, Progress] = field(default_factory=dict)
    """Progress of the first runs that started a task."""

    @property
    def name(self) -> str:
        """Core and engine, for messages."""
        return f"ansible-core {self.core}, {self.engine}"

    @property
    def succeeded(self) -> bool:
        """True if the first run of each sample succeeded."""
        return all(outcome == "succeeded" for outcome in self.outcomes.values())


@dataclass(frozen=True, slots=True)
class Trials:
    """All trials of a project, and their comparison."""

    trials: tuple[Trial, ...]
    differences: Mapping[str, Sequence[str]]
    """Paths of objects that differ from the first trial, by name of the trial."""
    fitting: tuple[str, ...]
    """Versions of ansible-core with which all samples succeed and the objects are those of the first trial."""

    def lines(self) -> Iterator[str]:
        """Yield the comparison for a terminal."""
        yield f"Trial of {len(self.trials[0].outcomes)} samples:"
        for trial in self.trials:
            done = sum(outcome == "succeeded" for outcome in trial.outcomes.values())
            yield f"  {trial.name}: {done} of {len(trial.outcomes)} samples succeeded, {len(trial.objects)} objects"
            failed = {name: outcome for name, outcome in trial.outcomes.items() if outcome != "succeeded"}
            yield from (f"    {name}: {' '.join(outcome.split())}" for name, outcome in failed.items())
            different = self.differences[trial.name]
            yield from (f"    differs from {self.trials[0].name}: {path}" for path in different[:_SHOWN])
            if len(different) > _SHOWN:
                yield f"    {len(different) - _SHOWN} more differences"
        if newest := next((trial for trial in self.trials if trial.core == NEW_CORE), None):
            first, outcome = next(iter(newest.outcomes.items()))
            reached = newest.tasks.get(first, "started no task")
            yield f"  First sample with ansible-core {NEW_CORE}: {first} {reached}: {' '.join(outcome.split())}"
        yield f"  The samples work and give the same objects with ansible-core: {', '.join(self.fitting) or 'none'}"

    def to_json(self) -> dict[str, Any]:
        """Return the comparison for `--output json`."""
        return {
            "trials": [
                {
                    "ansibleCore": trial.core,
                    "engine": trial.engine,
                    "outcomes": dict(trial.outcomes),
                    "tasks": {name: {"started": of.started, "last": of.last} for name, of in trial.tasks.items()},
                    "objects": sorted(trial.objects),
                    "differences": list(self.differences[trial.name]),
                }
                for trial in self.trials
            ],
            "fitting": list(self.fitting),
        }


def run(project: Project, *, cores: Sequence[str] = (OLD_CORE, NEW_CORE)) -> Trials:
    """Try the project's samples with each ansible-core and engine.

    Raises:
        ConfigError: the project has no samples.
        OperatorError: an environment, the collections, or a control plane is not available.
    """
    samples_by_name = _samples(project)
    if not samples_by_name:
        raise ConfigError("--try requires samples of watched kinds, for example in config/samples")
    engines = ("exec", "warm") if sys.platform == "linux" else ("exec",)
    trials = []
    with _collections(project) as collections, tempfile.TemporaryDirectory(prefix="ao-project-") as staged:
        folder = image.stage(project.search_path.image, Path(staged))
        for core in cores:
            python = trial_cluster.python_of(core, project.environ, _print)
            for engine in engines:
                _print(f"Trying ansible-core {core} with the engine {engine}")
                trials.append(_Attempt(project, folder, samples_by_name, python, core, engine, collections).result())
    return compared(trials)


def compared(trials: Sequence[Trial]) -> Trials:
    """Compare each trial with the first one. Paths that differ between trials of one ansible-core are ignored."""
    random = {
        path
        for first, second in itertools.pairwise(trials)
        if first.core == second.core
        for path in trial_cluster.differences(first.objects, second.objects)
        if ": " in path  # a whole object that is missing is a difference, not a random value
    }
    different = {
        trial.name: [path for path in trial_cluster.differences(trials[0].objects, trial.objects) if path not in random]
        for trial in trials
    }
    cores = dict.fromkeys(trial.core for trial in trials)
    fitting = [
        core
        for core in cores
        if all(trial.succeeded and not different[trial.name] for trial in trials if trial.core == core)
    ]
    return Trials(tuple(trials), different, tuple(fitting))


def _samples(project: Project) -> dict[str, dict[str, Any]]:
    """Return the samples of watched kinds in the trial's namespace, by `Kind/name`; the first of each name counts."""
    by_name: dict[str, dict[str, Any]] = {}
    for _, document in samples.samples(project):
        metadata = dict(document.value.get("metadata") or {})
        metadata["namespace"] = NAMESPACE
        by_name.setdefault(f"{document.value['kind']}/{metadata.get('name')}", {**document.value, "metadata": metadata})
    return by_name


@contextmanager
def _collections(project: Project) -> Iterator[str]:
    """Yield the search path of the project's collections. `ansible-galaxy` installs them, unless a path is given."""
    search_path = project.environ.get("ANSIBLE_COLLECTIONS_PATH", "")
    if search_path or not project.collections:
        yield search_path
        return
    _print("Installing the collections of requirements.yml")
    with tempfile.TemporaryDirectory(prefix="ansible-operator-collections-") as folder:
        words = ("collection", "install", "-r", "requirements.yml", "-p", folder)
        command = [sys.executable, "-P", "-m", "ansible.cli.galaxy", *words]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            reason = " ".join(done.stderr.split()) or "no message"
            raise OperatorError(
                f"`ansible-galaxy {' '.join(words)}` failed: {reason}; or set ANSIBLE_COLLECTIONS_PATH to a folder "
                "that contains the collections"
            )
        yield folder


def _print(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@dataclass(slots=True)
class _Attempt:
    """One trial."""

    project: Project
    folder: Path
    """Folder in which the operator runs, with the files in the places of the image."""
    samples: Mapping[str, Mapping[str, Any]]
    python: Path
    core: str
    engine: str
    collections: str
    outcomes: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    tasks: dict[str, Progress] = field(default_factory=dict)
    last: str = "no output"
    """Last line of the operator's log."""
    is_late: bool = False
    """True if the time for the first runs is over: the operator ends, and with it the current runs."""
    has_ended: bool = False
    """True if the operator has closed its output."""
    changed: threading.Condition = field(default_factory=threading.Condition)

    def result(self) -> Trial:
        """Run the operator on a new control plane, and return outcomes and objects."""
        with devcluster.start(name="migrate") as cluster:
            self._kubectl(cluster, "create", "namespace", NAMESPACE)
            if crds := [crd.value for crd in self.project.crds.values()]:
                self._kubectl(cluster, "apply", "--server-side", "--filename=-", given=crds)
                self._kubectl(cluster, "wait", "--for=condition=Established", "--filename=-", given=crds)
            for name, sample in self.samples.items():
                try:
                    self._kubectl(cluster, "apply", "--filename=-", given=[sample])
                except OperatorError as error:
                    self.outcomes[name] = str(error)
            with self._operator(cluster), self.changed:
                self.is_late = not self.changed.wait_for(self._is_done, self._longest)
            for name in self.samples.keys() - self.outcomes.keys():
                ended = f"the run did not end within {self._longest:.0f} s" if self.is_late else "the operator ended"
                self.outcomes[name] = f"{ended}; the operator's log: {self.last}"
            objects = trial_cluster.normalised(self._objects(cluster))
        return Trial(self.core, self.engine, dict(sorted(self.outcomes.items())), objects, dict(self.tasks))

    @property
    def _longest(self) -> float:
        """Seconds that the first runs of all samples can take."""
        return _LONGEST * math.ceil(len(self.samples) / _AT_ONCE)

    def _is_done(self) -> bool:
        return self.samples.keys() <= self.outcomes.keys() or self.has_ended

    @contextmanager
    def _operator(self, cluster: DevCluster) -> Iterator[None]:
        # A run that the operator had to kill can still write for a moment. Some roles find group, version and kind of
        # their resource by counting the parts of `inventory_file`, so the path has as many parts as the default.
        with tempfile.TemporaryDirectory(prefix="ao-try-", dir="/tmp", ignore_cleanup_errors=True) as folder:
            flags = (
                f"--watches-file={self.project.watches_file.absolute()}",
                "--log-format=json",
                "--ansible-log-format=json",
                "--ansible-log-events=everything",  # `tasks` omits some modules, such as set_fact
                f"--runner-dir={folder}/runner",
                f"--engine={self.engine}",
                "--graceful-shutdown-timeout=5s",
                f"--max-concurrent-reconciles={_AT_ONCE + 1}",  # one worker is reserved for changes
            )
            environ = {
                **manifests.variables(self.project, self.folder),
                **({"ANSIBLE_ROLES_PATH": f"{self.folder}/roles"} if self.folder != self.project.root else {}),
                **self.project.environ,
                "KUBECONFIG": str(cluster.kubeconfig),
                "WATCH_NAMESPACE": NAMESPACE,
                **paths.AS_DEPLOYED,
                **({"ANSIBLE_COLLECTIONS_PATH": self.collections} if self.collections else {}),
            }
            command = [str(self.python), "-P", "-m", "runner", "run", *_PORTS, *flags]
            with subprocess.Popen(
                command, cwd=self.folder, env=environ, text=True, errors="replace", start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            ) as process:  # fmt: skip
                reader = threading.Thread(target=self._read, args=(process.stdout,))
                reader.start()
                try:
                    yield
                finally:
                    processes.end(process, _GRACE)
                    reader.join()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                self.last = line.strip() or self.last  # an error at the start of the operator
                continue
            if isinstance(entry, dict):
                with self.changed:
                    self._take(entry, line)
                    self.changed.notify_all()
        with self.changed:
            self.has_ended = True
            self.changed.notify_all()

    def _take(self, entry: Mapping[str, Any], line: str) -> None:
        """Record the end of a sample's first run, and the messages of its failed tasks."""
        self.last = line.strip()
        name = f"{str(entry.get('gvk', '')).rpartition('Kind=')[2]}/{entry.get('name')}"
        if name in self.samples and name not in self.outcomes and entry.get("ansible_event") in TASK_STARTS:
            before = self.tasks.get(name)
            self.tasks[name] = Progress(before.started + 1 if before else 1, str(entry.get("task")))
        elif name in self.samples and entry.get("msg") == "Task failed":
            self.failures.setdefault(name, str(entry.get("error")))
        elif name in self.samples and entry.get("msg") == "Run ended":
            outcome = str(entry.get("outcome"))
            reason = self.failures.get(name) or str(entry.get("error") or outcome)
            if self.is_late:
                reason = f"the run did not end within {self._longest:.0f} s: {reason}"
            self.outcomes.setdefault(name, "succeeded" if outcome == "succeeded" else f"failed: {reason}")

    def _objects(self, cluster: DevCluster) -> Iterable[Mapping[str, Any]]:
        names = self._kubectl(cluster, "api-resources", "--namespaced", "--verbs=list", "--output=name").split()
        skipped = {"events", "events.events.k8s.io", "leases.coordination.k8s.io"}
        kinds = ",".join(sorted(set(names) - skipped))
        objects = json.loads(self._kubectl(cluster, "get", kinds, f"--namespace={NAMESPACE}", "--output=json"))
        items: list[Mapping[str, Any]] = objects["items"]
        return items

    @staticmethod
    def _kubectl(cluster: DevCluster, *arguments: str, given: Sequence[Mapping[str, Any]] = ()) -> str:
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(given)}) if given else None
        environ = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
        return run_kubectl(cluster.kubectl, environ, *arguments, given=document)
