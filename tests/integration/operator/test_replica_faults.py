"""Three operators share the work while they are killed, stopped and ended at random: no two runs of an object overlap.

The role is a program that writes down when it begins, works and ends, and writes to the cluster through the proxy all
the while. What it wrote down tells of overlaps; the history of what it wrote to the cluster, as a watch shows it, tells
of writes that were accepted though another run had begun. Both are right only if the order of runs is the same in both,
an object's runs one after another.

Most of the faults are done to operators for which the program stands in the place of `ansible-playbook`: what is tested
is who runs and writes when, and loading Ansible anew after each fault would cost more than everything else. Some are
done to operators with Ansible and a role.

Seeded, so that it does the same again, as far as processes let it. Prints what it did.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import urllib3

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.integration.operator.conftest import Api, Eventually, Operator, Project, Things

SEED = 6
LEASE = 3.0
RENEW = 1.5
OBJECTS = [f"thing-{i}" for i in range(8)]
SECONDS = 1800.0
"""After this long the faults are given up, and the test fails."""

TASKS = """
- name: Work
  ansible.builtin.command:
    cmd: "{{ ansible_playbook_python }} {{ role_path }}/files/work.py"
  environment:
    NAME: "{{ ansible_operator_meta.name }}"
    NAMESPACE: "{{ ansible_operator_meta.namespace }}"
    SIZE: "{{ size }}"
"""
WORK = r"""#!PYTHON
import json, os, pathlib, re, sys, time, urllib.error, urllib.request, uuid

if "NAME" in os.environ:
    name, namespace, size = (os.environ[each] for each in ("NAME", "NAMESPACE", "SIZE"))
else:
    # As ansible-playbook: the run folder says it all.
    folder = pathlib.Path.cwd().parent
    namespace, name = folder.parts[-2:]
    size = re.search(r'"size"\n: (\d+)', (folder / "env/extravars").read_text())[1]
run = uuid.uuid4().hex[:8]
notes = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
config = open(os.environ["KUBECONFIG"]).read()
server, token = (re.search(each + r'"?:\s*"?([^"\s,}]+)', config)[1] for each in ("server", "token"))
path = f"/api/v1/namespaces/{namespace}/configmaps/{name}?fieldManager=work&force=true"

def note(what):
    os.write(notes, f"{time.monotonic():.4f} {name} {run} {what}\n".encode())

def write(step):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"run": run, "step": str(step), "size": size}}
    headers = {"Authorization": "Bearer " + token, "Content-Type": "application/apply-patch+yaml"}
    request = urllib.request.Request(server + path, json.dumps(body).encode(), headers, method="PATCH")
    try:
        urllib.request.urlopen(request, timeout=20).read()
    except urllib.error.HTTPError as error:
        note(f"refused-{error.code}")
        if error.code == 409:
            sys.exit(f"refused: {error.read()}")
    except OSError:
        note("failed")

note("begin")
for step in range(10):
    write(step)
    note("step")
    time.sleep(0.04)
write("last")
note("end")
"""


@dataclass
class Slot:
    """One of the three: the process that is there now."""

    name: str
    operator: Operator
    busy_until: float = 0.0
    """When it goes on, while it is stopped."""
    is_ending: bool = False


@dataclass
class Fleet:
    """The three operators and what is done to them."""

    project: Project
    slots: list[Slot] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    python: str = ""
    """Beside which the operators find ansible-playbook; empty: our own."""

    def start(self, name: str) -> Operator:
        self.starts += 1
        return self.project.start(
            f"--runner-dir={self.project.folder / name}",
            f"--leader-election-namespace={self.project.namespace}",
            "--leader-election-id=faults",
            f"--leader-elect-lease-duration={LEASE}s",
            f"--leader-elect-renew-deadline={RENEW}s",
            "--shards=4",
            f"--engine={'exec' if self.python else 'auto'}",
            "--graceful-shutdown-timeout=3s",
            environment={"NOTES": str(self.project.folder / "notes"), "POD_NAME": name},
            ready=False,
            within=[self.python] if self.python else (),
        )

    def tend(self) -> None:
        """Let go on what was stopped for long enough, and start anew what has ended, as the kubelet would."""
        for slot in self.slots:
            if slot.busy_until and time.monotonic() >= slot.busy_until:
                slot.busy_until = 0.0
                if slot.operator.process.poll() is None:
                    slot.operator.process.send_signal(signal.SIGCONT)
            code = slot.operator.process.poll()
            if code is not None:
                if not slot.is_ending and slot.busy_until:
                    self.done["ended by the kernel while stopped"] += 1
                    slot.busy_until = 0.0
                assert code in {0, -signal.SIGKILL}, slot.operator.log[-3000:]
                slot.operator, slot.is_ending = self.start(slot.name), False

    def harm(self, choice: random.Random) -> bool:
        """Do something to one that is as it should be; False when there is none."""
        free = [slot for slot in self.slots if not slot.busy_until and not slot.is_ending and self._works(slot)]
        if not free:
            return False
        slot = choice.choice(free)
        fault = choice.choices(["killed", "stopped for a while", "stopped for too long", "ended"], [2, 5, 3, 2])[0]
        self.done[fault] += 1
        match fault:
            case "killed":
                slot.operator.kill()
            case "ended":
                slot.is_ending = True
                slot.operator.process.send_signal(signal.SIGTERM)
            case _:
                longest = LEASE * (0.4 if fault == "stopped for a while" else 1.6)
                slot.busy_until = time.monotonic() + choice.uniform(longest / 2, longest)
                slot.operator.process.send_signal(signal.SIGSTOP)
        return True

    def _works(self, slot: Slot) -> bool:
        """Whether it has made a run; harm before that shows nothing of sharing."""
        return slot.operator.process.poll() is None and '"Run ended"' in slot.operator.log

    def calm(self) -> None:
        for slot in self.slots:
            if slot.operator.process.poll() is None:
                os.kill(slot.operator.process.pid, signal.SIGCONT)


class History(threading.Thread):
    """Every state that the ConfigMaps of a namespace have had, in order."""

    def __init__(self, api: Api, namespace: str) -> None:
        super().__init__(daemon=True)
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"
        self.runs: dict[str, list[str]] = defaultdict(list)
        self.is_over = threading.Event()

    def run(self) -> None:
        version = self._api.call("GET", self._path)["metadata"]["resourceVersion"]
        while not self.is_over.is_set():
            for event in self._events(version):
                assert event["type"] != "ERROR", event
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK" and (run := event["object"].get("data", {}).get("run")):
                    self.runs[event["object"]["metadata"]["name"]].append(run)

    def _events(self, version: str) -> Iterable[dict[str, Any]]:
        query = f"{self._path}?watch=true&allowWatchBookmarks=true&timeoutSeconds=5&resourceVersion={version}"
        client = self._api._client
        answer: urllib3.BaseHTTPResponse = client.rest_client.pool_manager.request(
            "GET", client.configuration.host + query, preload_content=False
        )
        rest = b""
        for piece in answer.stream(65536):
            *lines, rest = (rest + piece).split(b"\n")
            yield from (json.loads(line) for line in lines)
        answer.release_conn()


def stand_in(folder: Path) -> str:
    """A Python like our own, but that the program is the ansible-playbook beside it."""
    ours = Path(sys.executable)
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").symlink_to(ours.parents[1] / "lib")
    (folder / "pyvenv.cfg").write_text((ours.parents[1] / "pyvenv.cfg").read_text())
    python = folder / "bin" / ours.name
    python.symlink_to(ours)
    program = folder / "bin" / "ansible-playbook"
    program.write_text(WORK.replace("PYTHON", str(python)))
    program.chmod(0o700)
    return str(python)


def interleaved(order: Iterable[str]) -> list[str]:
    """The runs that did something after another run of the same object had."""
    before: dict[str, None] = {}
    last, found = "", []
    for run in order:
        if run != last and run in before:
            found.append(run)
        before[run] = None
        last = run
    return found


def noted(notes: Path) -> dict[str, list[str]]:
    """For each object the runs that noted something, in order of time."""
    lines = sorted((line.split() for line in notes.read_text().splitlines()), key=lambda line: float(line[0]))
    found: dict[str, list[str]] = defaultdict(list)
    for _, name, run, _ in lines:
        found[name].append(run)
    return found


@pytest.mark.long
@pytest.mark.timeout(int(SECONDS) + 600)
@pytest.mark.parametrize(("what", "most"), [("program", 200), ("role", 20)])
def test_no_two_runs_of_an_object_overlap_and_no_stale_write_is_accepted_whatever_is_done_to_the_operators(
    project: Project,
    things: Things,
    api: Api,
    eventually: Eventually,
    capsys: pytest.CaptureFixture[str],
    what: str,
    most: int,
) -> None:
    namespace = things.namespace
    project.allow_leases()
    project.role("thing", TASKS)
    project.write("roles/thing/files/work.py", WORK)
    project.watch("thing")
    notes = project.folder / "notes"
    choice = random.Random(SEED)
    history = History(api, namespace)
    history.start()
    for name in OBJECTS:
        things.create(name, {"size": 0})
    fleet = Fleet(project, python=stand_in(project.folder / "venv") if what == "program" else "")
    fleet.slots = [Slot(name, fleet.start(name)) for name in "abc"]
    began, size, faults = time.monotonic(), 0, 0
    pace = began
    while faults < most and time.monotonic() - began < SECONDS:
        fleet.tend()
        if time.monotonic() >= pace:
            pace = time.monotonic() + choice.uniform(0.1, 0.8)
            faults += fleet.harm(choice)
            size += 1
            things.merge(choice.choice(OBJECTS), {"spec": {"size": size}})
        time.sleep(0.02)
    fleet.calm()
    for slot in fleet.slots:
        slot.busy_until = 0.0
    seconds = time.monotonic() - began

    def converged(name: str) -> bool:
        fleet.tend()
        obj = things.get(name) or {}
        done = things.conditions(name).get("Successful", {})
        made = api.call("GET", f"/api/v1/namespaces/{namespace}/configmaps/{name}") or {}
        return (
            done.get("status") == "True"
            and done.get("observedGeneration") == obj["metadata"]["generation"]
            and made.get("data", {}).get("size") == str(size + 1)
            and made["data"]["step"] == "last"
        )

    for name in OBJECTS:
        things.merge(name, {"spec": {"size": size + 1}})
    for name in OBJECTS:
        eventually(lambda name=name: converged(name), f"{name} to converge", 180)  # type: ignore[misc]
    history.is_over.set()
    history.join(30)
    text = notes.read_text()
    with capsys.disabled():
        sys.stdout.write(
            f"\n{faults} faults in {seconds:.0f} s with seed {SEED}: {dict(sorted(fleet.done.items()))}\n"
            f"{fleet.starts} processes started, {text.count(' begin')} runs begun, {text.count(' end')} not cut short\n"
            f"{text.count(' refused-')} writes refused, {sum(map(len, history.runs.values()))} accepted\n"
        )
    assert {name: interleaved(runs) for name, runs in noted(notes).items() if interleaved(runs)} == {}
    assert {name: interleaved(runs) for name, runs in history.runs.items() if interleaved(runs)} == {}
    assert set(history.runs) == set(OBJECTS)
    assert faults == most, "the machine was too slow for all faults"
