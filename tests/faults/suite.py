"""Rounds of faults, and what must hold afterwards. See `__main__` for how it is started.

A round: an object is touched, a fault begins, further objects are touched while it holds, it ends. After every few
rounds the world must come to rest: every object as it is wanted, no run that goes on; then it is looked whether a run
was lost or doubled, and whether anything leaked.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.faults import journal, leaks
from tests.faults.actions import FAULTS, Fault
from tests.faults.world import PATIENCE, World
from tests.kit.wait import wait_until

BETWEEN_RESTS = 9
_IDLE_FOR = 0.7
"""Seconds without a process of a run after which none is about to start."""
_LEAK_PATIENCE = 45.0
"""Seconds in which what a fault left may go: caches, unused connections, a fork server that is replaced."""


class Broken(Exception):  # noqa: N818 - it says what is broken
    """A promise does not hold; the message says which."""


def say(text: str) -> None:
    """Tell the user."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@dataclass(slots=True)
class Plan:
    """Which faults, in which order."""

    faults: list[Fault]
    slow_engine: int
    """How many of the last rounds run with the engine `exec`."""

    @classmethod
    def of(cls, chance: random.Random, rounds: int, only: str) -> Plan:
        """Return the deck in random order, repeated as needed; each kind of fault comes once before any comes again.

        `only` selects the faults whose name contains this text.
        """
        faults: list[Fault] = []
        kinds = [fault for fault in FAULTS if only in fault.name]
        again = [fault for fault in kinds for _ in range(fault.times - 1)]
        while len(faults) < rounds:
            faults += chance.sample(kinds, len(kinds)) + chance.sample(again, len(again))
        return cls(faults[:rounds], slow_engine=0 if only else rounds // 20)


@dataclass(slots=True)
class Suite:
    """One go."""

    world: World
    plan: Plan
    patience: float
    """Seconds in which the world must come to rest, but for the first time, when everything is loaded."""
    between_rests: int = BETWEEN_RESTS
    """Rounds after which it must. What is broken may be mended by the next change of an object, so fewer see more."""
    made: Counter[str] = field(default_factory=Counter)
    touched: int = 0
    rests: int = 0
    slowest: float = 0.0

    def run(self) -> None:
        """Run all rounds; Broken when something does not hold."""
        world = self.world
        world.start_operator()
        world.await_ready()
        for _ in range(8):
            self._touch()
        self._rest()
        turn = len(self.plan.faults) - self.plan.slow_engine
        for number, fault in enumerate(self.plan.faults):
            if number == turn:
                self._rest()
                self._slow_engine()
            self._round(number, fault)
            if number % self.between_rests == self.between_rests - 1:
                self._rest()
        self._rest()

    def _round(self, number: int, fault: Fault) -> None:
        chance, began = self.world.chance, time.monotonic()
        if chance.random() < 0.7:
            self._touch()
            time.sleep(chance.uniform(0, 0.8))  # the fault comes at any moment of a run
        with fault.action(self.world):
            self.made[fault.name] += 1
            for _ in range(chance.randint(1, 3)) if "API server" not in fault.name and "etcd" not in fault.name else ():
                self._touch()
                time.sleep(chance.uniform(0, 0.5))
            time.sleep(chance.uniform(0.2, 1.2))  # how long it holds
        if fault.restarts:
            self.world.await_ready()
        self._touch()
        say(f"{number + 1:4} {fault.name} ({time.monotonic() - began:.1f} s)")

    def _touch(self) -> None:
        self.touched += 1
        self.world.touch()

    def _slow_engine(self) -> None:
        """Go on with the engine that starts a new interpreter for each run."""
        self.world.engine = "exec"
        self.world.stop_operator(signal.SIGTERM)
        self.world.start_operator()
        self.world.await_ready()

    def _rest(self) -> None:
        """Wait until nothing is left to do, and check."""
        world, began = self.world, time.monotonic()
        patience = self.patience if self.rests else PATIENCE
        try:
            world.await_ready()
            wait_until(
                lambda: not world.problems(), lambda: "\n".join(["all to converge:", *world.problems()]), patience
            )
            wait_until(self._is_idle, lambda: leaks.going_on(world), patience)
            wait_until(
                lambda: not leaks.found(world), lambda: "\n".join(["no leak:", *leaks.found(world)]), _LEAK_PATIENCE
            )
        except AssertionError as error:
            stands = "\n".join([leaks.going_on(world), leaks.where_it_stands(world)])
            raise Broken(f"{error}\n{stands}\nthe end of the operator's log:\n{world.last_words()}") from error
        found = world.violations()
        if found:
            raise Broken("\n".join(found))
        self.rests += 1
        self.slowest = max(self.slowest, time.monotonic() - began)
        say(f"     all is well after {time.monotonic() - began:.1f} s")

    def _is_idle(self) -> bool:
        for _ in range(3):
            if not leaks.is_idle(self.world):
                return False
            time.sleep(_IDLE_FOR / 3)
        return not self.world.problems()

    def report(self) -> None:
        """Say what was done, and how often."""
        world = self.world
        lines, log = world.written(), world.logged()
        outcomes = Counter(found.outcome or "ended with the operator" for found in log.values())
        say(f"\n{sum(self.made.values())} rounds, {self.rests} rests, {self.touched} changes of objects")
        for name, count in sorted(self.made.items()):
            say(f"  {count:4} {name}")
        for title, counted in (
            ("done by the relay", world.relay.made),
            ("runs by cause", journal.causes(lines, log)),
            ("runs by outcome", outcomes),
        ):
            say(f"{title}: " + ", ".join(f"{count} {name}" for name, count in sorted(counted.items())))
        memory = leaks.resident(world.life.process.pid) if world.life.process.poll() is None else 0
        disk = "a tmpfs that is full" if world.disk.mounted else "RLIMIT_FSIZE of the live process (no mount allowed)"
        clock = "a preloaded library" if world.clock else "NOT MADE: there is no C compiler"
        say(f"operators: {len(world.lives)}; memory of the last: {memory:.0f} MiB; slowest rest: {self.slowest:.0f} s")
        say(f"full disk by {disk}; clock by {clock}")
