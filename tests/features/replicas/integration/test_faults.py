"""Three operators, of which one leads, are killed, stopped and ended at random: no two runs of an object overlap.

Most of the faults are done to operators for which a program stands in the place of `ansible-playbook`: what is tested
is who runs and writes when, and loading Ansible anew after each fault would cost more than everything else. Some are
done to operators with Ansible and a role.

Seeded, so that it does the same again, as far as processes let it. Prints what it did.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.operator.fleet import Fleet, History, Note, by_object, interleaved, overlaps, without_ansible
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Project

SEED = 6
OBJECTS = [f"thing-{i}" for i in range(8)]
SECONDS = 2400.0
"""After this long the faults are given up, and the test fails."""
BROKEN = Path(__file__).resolve().parents[3] / "faults/broken.py"


def converged(things: Things, api: Api, name: str, size: int) -> bool:
    obj = things.get(name)
    done = things.conditions(name).get("Successful", {})
    made = api.call("GET", f"/api/v1/namespaces/{things.namespace}/configmaps/{name}") or {}
    return (
        done.get("status") == "True"
        and done.get("observedGeneration") == obj["metadata"]["generation"]
        and made.get("data", {}).get("size") == str(size)
        and made["data"]["step"] == "last"
    )


def harm(fleet: Fleet, things: Things, most: int) -> tuple[int, float]:
    """Do `most` faults, and change objects meanwhile; return the last size, and how many seconds it took."""
    choice = random.Random(SEED)
    began = pace = time.monotonic()
    size = faults = 0
    while faults < most:
        assert time.monotonic() - began < SECONDS, f"{faults} faults only; the machine is too slow for more"
        fleet.tend()
        if time.monotonic() >= pace:
            pace = time.monotonic() + choice.uniform(0.1, 0.8)
            faults += fleet.harm(choice)
            size += 1
            things.merge(choice.choice(OBJECTS), {"spec": {"size": size}})
        time.sleep(0.02)
    fleet.calm()
    return size, time.monotonic() - began


@pytest.mark.timeout(int(SECONDS) + 600)
@pytest.mark.parametrize(
    ("what", "most"),
    [
        pytest.param("program", 24, marks=pytest.mark.full),
        pytest.param("program", 200, marks=pytest.mark.nightly),
        pytest.param("role", 20, marks=pytest.mark.nightly),
    ],
)
def test_no_two_runs_of_an_object_overlap_and_no_stale_write_is_accepted_whatever_is_done_to_the_operators(
    project: Project,
    things: Things,
    api: Api,
    capsys: pytest.CaptureFixture[str],
    what: str,
    most: int,
) -> None:
    is_program = what == "program"
    program = without_ansible(project.folder / "venv") if is_program else []
    with History(api, things.namespace) as history:
        for name in OBJECTS:
            things.create(name, {"size": 0})
        fleet = Fleet(project, program, engine="exec" if is_program else "auto")
        size, seconds = harm(fleet, things, most)
        for name in OBJECTS:
            things.merge(name, {"spec": {"size": size + 1}})

        def are_converged() -> bool:
            fleet.tend()
            return all(converged(things, api, name, size + 1) for name in OBJECTS)

        wait_until(are_converged, "all to converge", 300)
        written = history.complete()
    notes = fleet.notes()
    counts = Counter(note.what.split("-")[0] for note in notes)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{most} faults in {seconds:.0f} s with seed {SEED}: {dict(sorted(fleet.done.items()))}\n"
            f"{fleet.starts} processes started, {counts['begin']} runs begun, {counts['end']} not cut short\n"
            f"{counts['refused']} writes refused, {sum(map(len, written.values()))} accepted\n"
        )
    assert overlaps(by_object(notes)) == {}
    assert overlaps(written) == {}
    assert set(written) == set(OBJECTS)


@pytest.mark.nightly
def test_an_operator_that_ignores_the_loss_of_its_lease_is_detected(project: Project, things: Things, api: Api) -> None:
    """Proof that the test above can fail: with fencing broken on purpose, a stale write is accepted, and seen."""
    without_ansible(project.folder / "venv")
    python = str(project.folder / "venv/bin" / Path(sys.executable).name)
    with History(api, things.namespace) as history:
        things.create("one", {"size": 0})
        fleet = Fleet(project, [python, str(BROKEN), "fencing"], engine="exec", steps=2000)

        def begins() -> list[Note]:
            return [note for note in fleet.notes() if note.what == "begin"]

        begun = wait_until(begins, "a run to begin")[0]
        stopped = next(slot for slot in fleet.slots if slot.name == begun.operator)
        stopped.operator.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: len(begins()) > 1, "a run by another replica")
        stopped.operator.process.send_signal(signal.SIGCONT)
        wait_until(lambda: interleaved(note.run for note in fleet.notes()), "the first run to go on")
        wait_until(lambda: interleaved(history.runs["one"]), "a stale write to be accepted")
        written = history.complete()
    assert begun.run in overlaps(by_object(fleet.notes()))["one"]
    assert begun.run in overlaps(written)["one"]
