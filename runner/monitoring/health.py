"""Whether the operator does what it is there for: named checks, each with a grace time, and what is said of them.

`/healthz` has the checks that a restart may mend, `/readyz` all of them. The answers are those of the Kubernetes
components' own probes (https://kubernetes.io/docs/reference/using-api/health-checks/): `?verbose` lists each check,
`?exclude=NAME` leaves one out, and a path below the probe asks for one alone.

Owns: since when each check fails. A check that has passed once may fail for its grace time before it counts; until it
has passed for the first time it counts at once. Must not import: anything that asks the network; answers are given by
`probe_server`, which works when the event loop does not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Question: TypeAlias = Callable[[], str | None]
"""Returns what is wrong, or None."""

GRACE = 15.0
"""Seconds for which something may be wrong: a new connection, or a rolling update of the API server, takes as long."""
LOOK_INTERVAL = 1.0
"""Seconds between two looks at all checks."""
PING, LOOP = "ping", "event-loop"
"""Names of the checks that need no question: that somebody answers, and that the event loop does its work."""


@dataclass(slots=True)
class _Check:
    ask: Question
    grace: float
    live: bool
    """Whether a restart may help, so that it belongs to `/healthz`."""
    has_passed: bool = False
    failing_since: float = 0.0
    reason: str = ""
    """What is wrong; empty while nothing is."""

    def look(self, now: float) -> None:
        found = self.ask()
        if found is None:
            self.has_passed, self.reason = True, ""
            return
        if not self.reason:
            self.failing_since = now
        self.reason = found

    def problem(self, now: float) -> str | None:
        counts = not self.has_passed or now - self.failing_since >= self.grace
        return self.reason if self.reason and counts else None


Problems: TypeAlias = Mapping[str, str | None]
"""What is wrong, by the name of the check; None where nothing is."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was found at a look."""

    live: Problems
    ready: Problems
    """Those of `live` among them."""


class Health:
    """All checks. Its methods belong to the event loop; `report` and `last_look` may be read from everywhere."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._checks: dict[str, _Check] = {}
        self.last_look = clock()
        """When the event loop last did its work, by `clock`."""
        self.report = Report({}, {})

    def add(self, name: str, ask: Question, *, grace: float = GRACE, live: bool = False) -> None:
        """Have something looked at from now on; the name stands in paths."""
        self._checks[name] = _Check(ask, grace, live)

    def look(self) -> Report:
        """Ask everything now."""
        now = self._clock()
        for check in self._checks.values():
            check.look(now)
        found = {name: check.problem(now) for name, check in self._checks.items()}
        self.report = Report({name: found[name] for name, check in self._checks.items() if check.live}, found)
        self.last_look = now
        return self.report

    def silence(self) -> float:
        """Seconds for which the event loop has not looked."""
        return self._clock() - self.last_look

    async def follow(self) -> None:
        """Look for ever."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_INTERVAL)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a probe is told."""

    status: int
    text: str


def answer(probe: str, problems: Problems, *, only: str = "", exclude: Collection[str] = (), verbose: bool) -> Answer:
    """Write what the probe (`healthz`, `readyz`) is told. `only` names the one check that was asked for."""
    found = {PING: None, **problems}
    if only:
        if only not in found:
            return Answer(404, f"there is no check {only}; known are {', '.join(sorted(found))}\n")
        found = {only: found[only]}
    kept = {name: problem for name, problem in found.items() if name not in exclude}
    broken = any(problem is not None for problem in kept.values())
    if not broken and not verbose:
        return Answer(200, "ok")
    lines = [_line(name, problem, excluded=name in exclude) for name, problem in found.items()]
    unknown = sorted(set(exclude) - found.keys())
    if unknown:
        lines.append(f"warn: some health checks cannot be excluded: no matches for {', '.join(unknown)}")
    lines.append(f"{probe} check {'failed' if broken else 'passed'}")
    return Answer(500 if broken else 200, "\n".join(lines) + "\n")


def _line(name: str, problem: str | None, *, excluded: bool) -> str:
    if excluded:
        return f"[+]{name} excluded: ok"
    return f"[+]{name} ok" if problem is None else f"[-]{name} failed: {' '.join(problem.split())}"
