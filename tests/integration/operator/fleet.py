"""Three operators of which one leads, what is done to them, and what their runs show of who worked when.

The runs write down when they begin, work and end, and write to the cluster through the proxy all the while. What they
wrote down tells of overlaps; the history of what they wrote to the cluster, as a watch shows it, tells of writes that
were accepted though another run had begun. Both are right only if an object's runs stand one after another in both.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import urllib3

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence
    from typing import Self

    from tests.kit.objects import Api
    from tests.kit.operator import Operator, Project

LEASE = 4.0
RENEW = 1.5
_ID = "faults"

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
    os.write(notes, f"{os.environ['POD_NAME']} {name} {run} {what}\n".encode())

def write(step):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"run": run, "step": str(step), "size": size}}
    headers = {"Authorization": "Bearer " + token, "Content-Type": "application/apply-patch+yaml"}
    request = urllib.request.Request(server + path, json.dumps(body).encode(), headers, method="PATCH")
    try:
        urllib.request.urlopen(request, timeout=60).read()
    except urllib.error.HTTPError as error:
        note(f"refused-{error.code}")
        if error.code == 409:
            sys.exit(f"refused: {error.read()}")
    except OSError:
        note("failed")

note("begin")
for step in range(int(os.environ["STEPS"])):
    write(step)
    note("step")
    time.sleep(0.04)
write("last")
note("end")
"""


class Note(NamedTuple):
    """What a run wrote down."""

    operator: str
    name: str
    run: str
    what: str


@dataclass
class Slot:
    """One of the three: the process that is there now."""

    name: str
    operator: Operator
    busy_until: float = 0.0
    """When it goes on, while it is stopped."""
    is_ending: bool = False

    @property
    def is_up(self) -> bool:
        """Whether it leads, or waits for another one; harm before that shows nothing of a handover."""
        return self.operator.process.poll() is None and (self.leads or "Another replica holds" in self.operator.log)

    @property
    def leads(self) -> bool:
        """Whether it has begun to lead."""
        return '"Lease acquired"' in self.operator.log


@dataclass
class Fleet:
    """The three operators and what is done to them."""

    project: Project
    program: Sequence[str] = ()
    """What is started instead of `ansible-operator`."""
    engine: str = "auto"
    steps: int = 10
    """What a run consists of, each of more than 40 ms."""
    slots: list[Slot] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    starts: int = 0

    def __post_init__(self) -> None:
        """Write the role, and start all three."""
        self.project.allow_lease(_ID)
        self.project.role("thing", TASKS)
        self.project.write("roles/thing/files/work.py", WORK)
        self.project.watch("thing")
        self.slots = [Slot(name, self._start(name)) for name in "abc"]

    def _start(self, name: str) -> Operator:
        self.starts += 1
        return self.project.start(
            f"--runner-dir={self.project.folder / name}",
            f"--leader-election-namespace={self.project.namespace}",
            f"--leader-election-id={_ID}",
            f"--leader-elect-lease-duration={LEASE}s",
            f"--leader-elect-renew-deadline={RENEW}s",
            "--leader-elect",
            f"--engine={self.engine}",
            "--graceful-shutdown-timeout=3s",
            environment={"NOTES": str(self._notes), "POD_NAME": name, "STEPS": str(self.steps)},
            ready=False,
            program=self.program,
        )

    @property
    def _notes(self) -> Path:
        return self.project.folder / "notes"

    def notes(self) -> list[Note]:
        """What the runs wrote down, in order."""
        text = self._notes.read_text() if self._notes.exists() else ""
        return [Note(*line.split()) for line in text.splitlines()]

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
                slot.operator, slot.is_ending = self._start(slot.name), False

    def harm(self, choice: random.Random) -> bool:
        """Do something to one that is as it should be; False when there is none."""
        free = [slot for slot in self.slots if not slot.busy_until and not slot.is_ending and slot.is_up]
        if not free:
            return False
        slot = choice.choices(free, [3 if each.leads else 1 for each in free])[0]
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

    def calm(self) -> None:
        """Let all go on that are stopped."""
        for slot in self.slots:
            slot.busy_until = 0.0
            if slot.operator.process.poll() is None:
                os.kill(slot.operator.process.pid, signal.SIGCONT)


class History(threading.Thread):
    """Every state that the ConfigMaps of a namespace have had, in order, while the block lasts."""

    def __init__(self, api: Api, namespace: str) -> None:
        super().__init__()
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._is_over = threading.Event()
        self._problem: BaseException | None = None
        self.runs: dict[str, list[str]] = defaultdict(list)
        """For each name the runs that wrote it, a write each."""

    def __enter__(self) -> Self:
        """Begin with what is written from now on."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End; what went wrong is raised by `complete`."""
        self._is_over.set()
        self.join()

    def complete(self) -> dict[str, list[str]]:
        """Wait for all that was written so far."""
        self._is_over.set()
        self.join()
        assert self._problem is None, f"the history has a gap: {self._problem!r}"
        return self.runs

    def run(self) -> None:
        """Watch."""
        try:
            version = self._api.call("GET", self._path)["metadata"]["resourceVersion"]
            is_last = False
            while not is_last:
                # One more list after the end was requested: it contains all writes until then.
                is_last = self._is_over.is_set()
                version = self._follow(version)
        except BaseException as error:  # noqa: BLE001 - raised in the main thread
            self._problem = error

    def _follow(self, version: str) -> str:
        for event in self._events(version):
            assert event["type"] != "ERROR", event
            version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK" and (run := event["object"].get("data", {}).get("run")):
                self.runs[event["object"]["metadata"]["name"]].append(run)
        return version

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


def without_ansible(folder: Path) -> list[str]:
    """An `ansible-operator` whose Python has the program of `WORK` as the ansible-playbook beside it."""
    ours = Path(sys.executable)
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").symlink_to(ours.parents[1] / "lib")
    (folder / "pyvenv.cfg").write_text((ours.parents[1] / "pyvenv.cfg").read_text())
    python = folder / "bin" / ours.name
    python.symlink_to(ours)
    program = folder / "bin" / "ansible-playbook"
    program.write_text(WORK.replace("PYTHON", str(python)))
    program.chmod(0o700)
    return [str(python), str(ours.with_name("ansible-operator"))]


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


def overlaps(orders: dict[str, list[str]]) -> dict[str, list[str]]:
    """The same for each object that has such runs."""
    return {name: found for name, runs in orders.items() if (found := interleaved(runs))}


def by_object(notes: Iterable[Note]) -> dict[str, list[str]]:
    """For each object the runs that noted something, in order."""
    found: dict[str, list[str]] = defaultdict(list)
    for note in notes:
        found[note.name].append(note.run)
    return found
