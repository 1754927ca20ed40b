"""The faults: each is made from outside the operator, lasts for a moment, and is undone.

A fault is a context manager over a `World`: it holds while the block runs, in which objects are created, changed and
deleted. What it leaves to chance comes from the world's own generator.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import urllib3

from runner.agent import process_tree
from runner.sdk.devcluster.layout import APISERVER, ETCD
from tests.faults.world import World
from tests.kit import relay
from tests.kit.relay import Delay, ExpireInStream, LoseAnswer, Refuse, Rule
from tests.kit.wait import wait_until

Action: TypeAlias = Callable[[World], AbstractContextManager[None]]

_ENDING = (signal.SIGTERM, signal.SIGKILL)
_SPARE_DESCRIPTORS = 6
_HITS_WITHIN = 5.0
"""Seconds that a fault of the relay waits for a request that it affects."""
_CLOCK_JUMPS = (7200, 90_000, -240)
"""Seconds. Not further back: the control plane's certificates are five minutes old."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, and how often it is in the deck."""

    name: str
    action: Action
    times: int
    restarts: bool = False
    """Whether the operator process ends by it, and another one begins."""


def _down(component: str) -> Action:
    @contextmanager
    def action(world: World) -> Iterator[None]:
        world.cluster.control.order("stop", component)
        yield
        world.cluster.control.order("start", component)
        wait_until(lambda: _answers(world), f"the API server to be back after {component}")

    return action


def _paused(component: str) -> Action:
    @contextmanager
    def action(world: World) -> Iterator[None]:
        world.cluster.pause(component)
        yield
        world.cluster.resume(component)
        wait_until(lambda: _answers(world), f"the API server to be back after {component}")

    return action


def _answers(world: World) -> bool:
    try:
        world.api.call("GET", "/readyz/ping?verbose=false")
    except (AssertionError, urllib3.exceptions.HTTPError, OSError):
        return False
    except ValueError:
        return True  # it answers in words, not in JSON
    return True


def _ruled(*rules: Rule) -> Action:
    @contextmanager
    def action(world: World) -> Iterator[None]:
        before = world.relay.made.total()
        world.relay.rules = rules
        yield
        end = time.monotonic() + _HITS_WITHIN
        while world.relay.made.total() == before and time.monotonic() < end:
            time.sleep(0.05)  # a fault that affects no request does not count
        world.relay.rules = ()

    return action


@contextmanager
def _cut(world: World) -> Iterator[None]:
    """Cut connections now, and again while the block runs."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(0.15):
            world.relay.cut(0.5)

    world.relay.cut(0.7)
    cutter = threading.Thread(target=go_on)
    cutter.start()
    yield
    over.set()
    cutter.join()


@contextmanager
def _forgotten(world: World) -> Iterator[None]:
    """All watches end, and requests that continue one get 410 Gone."""
    world.relay.rules = (Rule(relay.is_watch_taken_up, Refuse(410)),)
    world.relay.cut(1.0)
    yield
    world.relay.rules = ()


@contextmanager
def _forgotten_in_stream(world: World) -> Iterator[None]:
    world.relay.rules = (Rule(relay.is_watch_taken_up, ExpireInStream()),)
    world.relay.cut(1.0)
    yield
    world.relay.rules = ()


@contextmanager
def _forgotten_in_a_gap(world: World) -> Iterator[None]:
    """The operator stands still while things change, and then its place in time is gone."""
    before = world.relay.made["answered 410"]
    world.life.process.send_signal(signal.SIGSTOP)
    world.relay.rules = (Rule(relay.is_watch_taken_up, Refuse(410)),)
    world.relay.cut(1.0)
    yield
    world.life.process.send_signal(signal.SIGCONT)
    end = time.monotonic() + 10
    while world.relay.made["answered 410"] == before and time.monotonic() < end:
        time.sleep(0.05)
    world.relay.rules = ()


@contextmanager
def _expired_token(world: World) -> Iterator[None]:
    """The token stops working; while the block runs there is no other."""
    old, new = world.token_file.read_text(encoding="utf-8"), world.renew_token()
    world.relay.expired |= {old}
    world.relay.cut(1.0)
    yield
    fresh = world.token_file.with_suffix(".new")
    fresh.write_text(new, encoding="utf-8")
    fresh.replace(world.token_file)


@contextmanager
def _conflicts(world: World) -> Iterator[None]:
    """Somebody else writes labels, finalizers and status of the same objects, as fast as it goes."""
    over = threading.Event()
    things = type(world.things)(type(world.api)(world.cluster.kubeconfig), world.things.namespace)

    def write_on() -> None:
        count = 0
        while not over.is_set():
            count += 1
            for name in list(world.sizes):
                with contextlib.suppress(AssertionError, urllib3.exceptions.HTTPError):
                    obj = things.get(name)
                    if not obj:
                        continue
                    others = [own for own in obj["metadata"].get("finalizers", []) if not own.endswith("/other")]
                    version = obj["metadata"]["resourceVersion"]
                    added = [] if "deletionTimestamp" in obj["metadata"] or count % 2 else ["example.com/other"]
                    body = {"resourceVersion": version, "labels": {"c": str(count)}, "finalizers": [*others, *added]}
                    things.merge(name, {"metadata": body})
                    things.merge(name, {"status": {"counter": count}}, "status")
        for name in [f"obj-{number}" for number in range(5)]:
            _release(world, name)

    writer = threading.Thread(target=write_on)
    writer.start()
    yield
    over.set()
    writer.join()


def _release(world: World, name: str) -> None:
    """Take the other writer's finalizer off."""

    def once() -> bool:
        obj = world.things.get(name)
        names = obj["metadata"].get("finalizers", []) if obj else []
        if "example.com/other" in names:
            names.remove("example.com/other")
            body = {"resourceVersion": obj["metadata"]["resourceVersion"], "finalizers": names}
            world.things.merge(name, {"metadata": body})
        return True

    world.ask(once)


@contextmanager
def _full_disk(world: World) -> Iterator[None]:
    pid = world.life.process.pid
    world.disk.fill(pid)
    yield
    world.disk.empty(pid)


@contextmanager
def _no_descriptors(world: World) -> Iterator[None]:
    """The live process may open hardly any more files."""
    pid = world.life.process.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = max(int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir())
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 1 + world.chance.randrange(_SPARE_DESCRIPTORS), hard))
    yield
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def _hungry(world: World) -> Iterator[None]:
    """Runs need more memory than they may use."""
    world.hunger.touch()
    yield
    time.sleep(world.chance.uniform(0.5, 1.5))  # how long memory is short
    world.hunger.unlink()


@contextmanager
def _clock_jumps(world: World) -> Iterator[None]:
    if world.clock is None:
        yield
        return
    world.clock.jump(world.chance.choice(_CLOCK_JUMPS))
    yield
    world.clock.jump(0)


def _operator(number: signal.Signals) -> Action:
    """End the operator, and start another one some time later."""

    @contextmanager
    def action(world: World) -> Iterator[None]:
        code = world.stop_operator(number)
        assert code == (0 if number == signal.SIGTERM else -number), f"exit code {code}:\n{world.last_words()}"
        yield
        world.start_operator()

    return action


@contextmanager
def _operator_stopped(world: World) -> Iterator[None]:
    world.life.process.send_signal(signal.SIGSTOP)
    yield
    time.sleep(world.chance.uniform(0, 2))  # how long it stands still
    world.life.process.send_signal(signal.SIGCONT)


def fork_servers(pid: int) -> set[int]:
    """The children of an operator that runs are forked from, and their forks that wait for an order."""
    found = set()
    for each in process_tree.table().values():
        if each.parent == pid and not each.zombie:
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{each.pid}/cmdline").read_bytes()
                if b"warm/server/start.py" in command or b"ansible-operator: fork server" in command:
                    found.add(each.pid)
    return found


def _hit(world: World, find: Callable[[], set[int]], numbers: tuple[signal.Signals, ...]) -> Iterator[None]:
    """Send a signal to one of what is found, as soon as anything is; what was stopped goes on after the block."""
    end = time.monotonic() + 3
    while not (found := find()) and time.monotonic() < end:
        world.touch()
        time.sleep(0.1)
    chosen = world.chance.choice(sorted(found)) if found else None
    number = world.chance.choice(numbers)
    with contextlib.suppress(ProcessLookupError):
        if chosen is not None:
            os.kill(chosen, number)
    yield
    with contextlib.suppress(ProcessLookupError):
        if chosen is not None and number == signal.SIGSTOP:
            os.kill(chosen, signal.SIGCONT)


def _fork_server(*numbers: signal.Signals) -> Action:
    @contextmanager
    def action(world: World) -> Iterator[None]:
        yield from _hit(world, lambda: fork_servers(world.life.process.pid), numbers)

    return action


def _child(*numbers: signal.Signals) -> Action:
    """One process of a run: its supervisor, Ansible, or what a task started."""

    @contextmanager
    def action(world: World) -> Iterator[None]:
        pid = world.life.process.pid

        def find() -> set[int]:
            running = process_tree.table()
            living = {each for each in process_tree.descendants(running, [pid]) if not running[each].zombie}
            return living - fork_servers(pid)

        world.touch()
        time.sleep(world.chance.uniform(0, 0.6))  # somewhere within a run
        yield from _hit(world, find, numbers)

    return action


_SLOW = 0.7
_ALL = (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP)

FAULTS: tuple[Fault, ...] = (
    Fault("API server killed", _down(APISERVER), 4),
    Fault("API server paused", _paused(APISERVER), 5),
    Fault("etcd killed", _down(ETCD), 3),
    Fault("etcd paused", _paused(ETCD), 5),
    Fault("everything slow", _ruled(Rule(relay.anything, Delay(_SLOW))), 5),
    Fault("status writes slow", _ruled(Rule(relay.is_status_write, Delay(2 * _SLOW))), 4),
    Fault("answers to status writes lost", _ruled(Rule(relay.is_status_write, LoseAnswer(), 0.7)), 5),
    Fault("answers to any write lost", _ruled(Rule(relay.is_write, LoseAnswer(), 0.5)), 4),
    Fault("connections cut", _cut, 8),
    Fault("410 to watches", _forgotten, 4),
    Fault("410 within watches", _forgotten_in_stream, 3),
    Fault("410 after a gap", _forgotten_in_a_gap, 4),
    Fault("429 with Retry-After", _ruled(Rule(relay.anything, Refuse(429, retry_after=1), 0.5)), 6),
    Fault("500 to anything", _ruled(Rule(relay.anything, Refuse(500), 0.5)), 6),
    Fault("500 to status writes", _ruled(Rule(relay.is_status_write, Refuse(500), 0.9)), 4),
    Fault("token expired", _expired_token, 5),
    Fault("conflicts", _conflicts, 6),
    Fault("disk full", _full_disk, 4),
    Fault("no file descriptors", _no_descriptors, 4),
    Fault("out of memory", _hungry, 3),
    Fault("clock jumps", _clock_jumps, 4),
    Fault("operator: SIGTERM", _operator(signal.SIGTERM), 3, restarts=True),
    Fault("operator: SIGKILL", _operator(signal.SIGKILL), 3, restarts=True),
    Fault("operator: SIGSTOP", _operator_stopped, 4),
    Fault("fork server: SIGTERM or SIGKILL", _fork_server(*_ENDING), 3),
    Fault("fork server: SIGSTOP", _fork_server(signal.SIGSTOP), 2),
    Fault("child of a run: SIGTERM", _child(signal.SIGTERM), 4),
    Fault("child of a run: SIGKILL", _child(signal.SIGKILL), 5),
    Fault("child of a run: SIGSTOP", _child(signal.SIGSTOP), 3),
    Fault("child of a run: any signal", _child(*_ALL), 2),
)
