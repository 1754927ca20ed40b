"""What runs wrote down outside the cluster, what the operator logged of them, and what must hold between the two. Pure.

A run appends a line when it begins, when its effect is made, and when it ends; lines of one run carry the object's uid
and generation. The file's order is the order in which things happened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

BEGIN, EFFECT, END = "begin", "effect", "end"
_EXPLAINED = {"dependent changed", "requested by the last run"}
"""Reasons for which an object may be run again although it did not change."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a run. `operator` identifies the operator process, `job` is the run's name in its log."""

    operator: str
    job: str
    name: str
    uid: str
    generation: int
    what: str
    finalizing: bool

    @classmethod
    def parse(cls, text: str) -> Line:
        """Read the words that the role's module wrote."""
        run, what, name, uid, generation, finalizing = text.split()
        _, operator, start, job = run.split(":")
        return cls(f"{operator}:{start}", job, name, uid, int(generation), what, finalizing == "finalizing")


@dataclass(frozen=True, slots=True)
class Logged:
    """What the operator's log says of a run."""

    reason: str
    outcome: str
    """Empty when the operator ended before the run did."""


def overlaps(lines: Iterable[Line]) -> list[str]:
    """Find runs that did something after the next run of the same object had begun."""
    current: dict[str, str] = {}
    found = []
    for line in lines:
        if line.what == BEGIN:
            current[line.uid] = line.job
        elif current.get(line.uid) != line.job:
            found.append(f"{line.name}: run {line.job} said {line.what!r} while {current.get(line.uid)} went on")
    return found


def lost(lines: Sequence[Line], wanted: Mapping[str, int]) -> list[str]:
    """Find objects (uid → newest generation) whose last run did not work on what they are now, or did not end."""
    last = {line.uid: line for line in lines if not line.finalizing}
    found = []
    for uid, generation in wanted.items():
        line = last.get(uid)
        if line is None or line.what != END or line.generation != generation:
            found.append(f"{uid} has generation {generation}; its last run: {line}")
    return found


def unfinalized(lines: Iterable[Line], deleted: Iterable[str]) -> list[str]:
    """Find objects (uids) that went without a finalizer run that ended, though they had been run."""
    lines = list(lines)
    begun = {line.uid for line in lines if not line.finalizing}
    done = {line.uid for line in lines if line.finalizing and line.what == END}
    return [
        f"{uid} went without its finalizer; it has {[line for line in lines if line.uid == uid]}"
        for uid in deleted
        if uid in begun and uid not in done
    ]


def doubled(lines: Iterable[Line], log: Mapping[str, Logged]) -> list[str]:
    """Find runs for which there was no cause: the same operator had run the same generation with success before.

    A finalizer that has done its work is never run again by the operator that ran it.
    """
    done: dict[tuple[str, str, int, bool], str] = {}
    present: dict[tuple[str, str], list[str]] = defaultdict(list)
    found = []
    for line in (line for line in lines if line.what == BEGIN):
        logged = log.get(line.job, Logged("", ""))
        this = (line.operator, line.uid, line.generation, line.finalizing)
        if this in done and (line.finalizing or logged.reason not in _EXPLAINED):
            found.append(f"{line.name}: run {line.job} ({logged.reason}) repeats {done[this]}, which had succeeded")
        if logged.outcome == "succeeded":
            done[this] = line.job
        if logged.reason == "present at start":
            present[line.operator, line.uid].append(line.job)
    found += [
        f"{uid}: runs {jobs} all because it was present at start" for (_, uid), jobs in present.items() if jobs[1:]
    ]
    return found


def causes(lines: Iterable[Line], log: Mapping[str, Logged]) -> dict[str, int]:
    """Count the runs by reason."""
    counted: dict[str, int] = defaultdict(int)
    for line in lines:
        if line.what == BEGIN:
            counted[log.get(line.job, Logged("not logged", "")).reason] += 1
    return dict(counted)
