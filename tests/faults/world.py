"""A control plane, the relay in front of it, an operator, and the objects whose fate is watched.

Everything that is asked of the API server here goes to it directly, not through the relay, and is asked again while it
is away.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import urllib3
import yaml

from runner.sdk.devcluster import DevCluster
from tests.faults import journal, surroundings
from tests.faults.journal import Line, Logged
from tests.kit.objects import GROUP, THING_CRD, Api, Things
from tests.kit.operator import ACCOUNT, Operator, account_kubeconfig, log_lines, operators_environment, run_command
from tests.kit.relay import Relay, through
from tests.kit.wait import wait_until

T = TypeVar("T")

NAMESPACE = "faults"
NOTES, HUNGER = "notes", "hunger"
"""Files in the folder of a world."""
PATIENCE = 240.0
"""Seconds after which what is waited for is not going to happen."""
_LONGEST = 1500
"""Characters of a line of the log in a report."""
_FINALIZER = f"{GROUP}/faults"
_MEMORY_LIMIT = "400Mi"
_RUN_TIMEOUT = "40s"
_STOPS_WITHIN = 60.0

_MODULE = """
import http.client
import json
import os
from urllib.parse import urlsplit

from ansible.module_utils.basic import AnsibleModule


def note(path, what, words):
    line = " ".join([os.environ["ANSIBLE_OPERATOR_RUN_ID"], what, *words]) + "\\n"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, line.encode())
    os.close(file)


def make(namespace, name, size):
    with open(os.environ["K8S_AUTH_KUBECONFIG"]) as file:
        content = json.load(file)
    url, user = urlsplit(content["clusters"][0]["cluster"]["server"]), content["users"][0]["user"]
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
    headers = {"Authorization": "Bearer " + user["token"], "Content-Type": "application/apply-patch+yaml"}
    path = "/api/v1/namespaces/%s/configmaps/%s?fieldManager=faults&force=true" % (namespace, name)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"size": size}}
    connection.request("PATCH", path, body=json.dumps(body), headers=headers)
    answer = connection.getresponse()
    if answer.status >= 300:
        raise OSError("%s: %s" % (answer.status, answer.read()))


def main():
    module = AnsibleModule({
        "path": {"type": "path"}, "what": {"type": "str"}, "words": {"type": "list", "elements": "str"},
        "effect": {"type": "dict", "default": {}},
    })
    given = module.params
    try:
        if given["effect"]:
            make(**given["effect"])
        note(given["path"], given["what"], given["words"])
    except Exception as error:
        module.fail_json(msg="%s: %s" % (type(error).__name__, error))
    module.exit_json(changed=True)


main()
"""

_TASKS = """
- name: Begin
  note: &note
    path: "{notes}"
    what: begin
    words:
      - "{{{{ ansible_operator_meta.name }}}}"
      - "{{{{ _test_example_com_thing.metadata.uid }}}}"
      - "{{{{ _test_example_com_thing.metadata.generation }}}}"
      - "{{{{ 'finalizing' if finalizing | default(false) else 'ordinary' }}}}"

- name: Take some time, in a process of its own
  ansible.builtin.command: sleep 0.3
  changed_when: false

- name: Need more memory than there is
  ansible.builtin.command: "{python} -c 'x = bytearray(600 << 20); import time; time.sleep(30)'"
  changed_when: false
  when: lookup('ansible.builtin.fileglob', '{hunger}') | length > 0

- name: Make the effect
  note:
    <<: *note
    what: effect
    effect:
      namespace: "{{{{ ansible_operator_meta.namespace }}}}"
      name: "{{{{ ansible_operator_meta.name }}}}"
      size: "{{{{ size | string }}}}"
  when: not finalizing | default(false)

- name: End
  note:
    <<: *note
    what: end
"""


class Life(Operator):
    """One operator process."""

    def __init__(self, process: subprocess.Popen[bytes], path: Path, engine: str) -> None:
        super().__init__(process, path)
        self.engine = engine
        self.began = time.monotonic()
        self.idle_memory = 0.0
        """MiB, when it had nothing to do for the first time."""


@dataclass(slots=True, kw_only=True)
class Objects:
    """The objects that clients create, change and delete, and what runs write down. `chance` decides what they do."""

    cluster: DevCluster
    folder: Path
    chance: random.Random
    api: Api
    things: Things
    sizes: dict[str, int] = field(default_factory=dict)
    """Objects that are wanted, and the size that each is to have."""
    deleted: set[str] = field(default_factory=set)
    """Uids of objects that were deleted with their finalizer on them."""

    def logs(self) -> Iterable[Path]:
        """Return a log file for each life of an operator."""
        raise NotImplementedError

    @property
    def notes(self) -> Path:
        """Where runs write to."""
        return self.folder / NOTES

    @property
    def hunger(self) -> Path:
        """While it is there, runs need more memory than they may use."""
        return self.folder / HUNGER

    def ask(self, call: Callable[[], T]) -> T:
        """Ask the API server, again while it is away or not itself."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return call()
            except (AssertionError, urllib3.exceptions.HTTPError, OSError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def touch(self) -> None:
        """Create, change or delete an object as a client that is not affected by faults."""
        name = f"obj-{self.chance.randrange(5)}"
        lot = self.chance.random()
        found = self.ask(lambda: self.things.get(name))
        if not found:
            size = self.chance.randrange(1000)
            made = self.ask(lambda: self.things.get(name) or self.things.create(name, {"size": size}))
            self.sizes[name] = made["spec"]["size"]
        elif "deletionTimestamp" in found["metadata"]:
            return
        elif lot < 0.15:
            # Not where it has none yet: what is deleted while a finalizer is put on it may go without, whoever puts it
            # (https://github.com/kubernetes/kubernetes/issues/77988).
            if _FINALIZER in found["metadata"].get("finalizers", ()):
                self.deleted.add(found["metadata"]["uid"])
            self.sizes.pop(name, None)
            self.ask(lambda: self.things.delete(name))
        else:
            self.sizes[name] = found["spec"]["size"] + 1
            self.ask(lambda: self.things.merge(name, {"spec": {"size": self.sizes[name]}}))

    def written(self) -> list[Line]:
        """All that runs wrote so far."""
        if not self.notes.exists():
            return []
        return [Line.parse(text) for text in self.notes.read_text(encoding="utf-8").splitlines()]

    def logged(self) -> dict[str, Logged]:
        """What the operators logged of their runs."""
        found: dict[str, Logged] = {}
        for line in (line for log in self.logs() for line in log_lines(log.read_text(errors="replace"))):
            if line["msg"] == "Run started":
                found[line["job"]] = Logged(line["reason"], "")
            elif line["msg"] == "Run ended":
                found[line["job"]] = Logged(line["reason"], line["outcome"])
        return found

    def problems(self) -> list[str]:
        """Say what keeps the objects from being as they are wanted; empty when they have converged."""
        found: list[str] = []
        generations: dict[str, int] = {}
        for number in range(5):
            name = f"obj-{number}"
            obj = self.ask(lambda name=name: self.things.get(name))  # type: ignore[misc]
            if name not in self.sizes:
                found += [f"{name} is still there: {obj['metadata']}"] if obj else []
                continue
            if not obj:
                found.append(f"{name} is gone")
                continue
            generations[obj["metadata"]["uid"]] = obj["metadata"]["generation"]
            found += self._not_as_wanted(name, obj)
        return found + journal.lost(self.written(), generations)

    def _not_as_wanted(self, name: str, obj: dict[str, Any]) -> Iterator[str]:
        size, meta = self.sizes[name], obj["metadata"]
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}"
        effect = self.ask(lambda: self.api.call("GET", path)) or {}
        if obj["spec"]["size"] != size or effect.get("data", {}).get("size") != str(size):
            yield f"{name} is to have size {size}; it has {obj['spec']['size']}, its effect is {effect.get('data')}"
        conditions = {entry["type"]: entry for entry in (obj.get("status") or {}).get("conditions", [])}
        for kind, status in (("Successful", "True"), ("Running", "True"), ("Failure", "False")):
            entry = conditions.get(kind, {"status": "False"})
            current = kind == "Failure" or entry.get("observedGeneration") == meta["generation"]
            if entry["status"] != status or not current:
                yield f"{name} (generation {meta['generation']}) has {kind}: {entry}"

    def violations(self) -> list[str]:
        """Return what must not have happened, whatever the faults were."""
        lines, log = self.written(), self.logged()
        logged = (line for each in self.logs() for line in log_lines(each.read_text(errors="replace")))
        return [
            *journal.overlaps(lines),
            *journal.doubled(lines, log),
            *journal.unfinalized(lines, self.deleted),
            *(f"an error of ours: {line}"[:_LONGEST] for line in logged if "exception" in line),
        ]


@dataclass(slots=True, kw_only=True)
class World(Objects):
    """Objects, and an operator that is a process. `chance` decides everything that is left to chance."""

    command: tuple[str, ...]
    """What starts an operator, before `run`."""
    relay: Relay
    disk: surroundings.Disk
    clock: surroundings.Clock | None
    token_file: Path
    kubeconfig: Path
    engine: str = "auto"
    lives: list[Life] = field(default_factory=list)

    def logs(self) -> Iterable[Path]:
        """Return a log file for each life of an operator."""
        return [life.path for life in self.lives]

    @property
    def life(self) -> Life:
        """The operator that is running."""
        return self.lives[-1]

    def start_operator(self) -> None:
        """Start the operator; it need not be ready when this returns."""
        log = self.folder / f"operator-{len(self.lives)}.log"
        flags = [
            "--log-level=debug",
            f"--engine={self.engine}",
            f"--run-memory-limit={_MEMORY_LIMIT}",
            "--ansible-log-events=nothing",
            "--max-concurrent-reconciles=2",
        ]
        run = run_command(self.kubeconfig, self.disk.folder / "runs", NAMESPACE, *flags)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*self.command, *run],
                cwd=self.folder / "project",
                env=self._environment(),
                stdout=output,
                stderr=output,
            )
        self.lives.append(Life(process, log, self.engine))

    def _environment(self) -> dict[str, str]:
        return operators_environment(
            {"FAULTS_WORLD": str(self.folder), **(self.clock.environment if self.clock else {})}
        )

    def stop_operator(self, number: signal.Signals) -> int:
        """End the operator by a signal; return its exit code."""
        process = self.life.process
        process.send_signal(number)
        return process.wait(_STOPS_WITHIN)

    def kill_operators(self) -> None:
        """End all operators at once."""
        for life in self.lives:
            if life.process.poll() is None:
                life.process.kill()
                life.process.wait()

    def await_ready(self) -> None:
        """Wait until the operator watches."""
        wait_until(self.life.is_ready, lambda: f"the operator to be ready:\n{self.last_words()}", PATIENCE)

    def last_words(self, size: int = 3000) -> str:
        """The end of the operator's log."""
        return self.life.log[-size:]

    def renew_token(self) -> str:
        """Get another token for the operator's account; it is not in use yet."""
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
        answer = self.ask(lambda: self.api.call("POST", path, {"spec": {"expirationSeconds": 7200}}))
        return str(answer["status"]["token"])


@contextlib.contextmanager
def world(cluster: DevCluster, folder: Path, chance: random.Random, command: tuple[str, ...]) -> Iterator[World]:
    """Make everything but the operator; end everything."""
    with contextlib.ExitStack() as stack:
        api = Api(Path(cluster.kubeconfig))
        stack.callback(api.close)
        install(api)
        (folder / "project").mkdir()
        disk = surroundings.disk(folder / "disk")
        stack.callback(disk.remove)
        relay = Relay(cluster.url, Path(cluster.kubeconfig).parent, chance)
        url = relay.start()
        stack.callback(relay.stop)
        token_file = folder / "token"
        made = World(
            cluster=cluster,
            folder=folder,
            chance=chance,
            command=command,
            relay=relay,
            api=api,
            things=Things(api, NAMESPACE),
            disk=disk,
            clock=surroundings.clock(folder),
            token_file=token_file,
            kubeconfig=through(url, account_kubeconfig(api, cluster.kubeconfig, NAMESPACE, folder), token_file),
        )
        stack.callback(made.kill_operators)
        write_project(folder, sys.executable)
        yield made


def install(api: Api) -> None:
    """Create the kind and the namespace."""
    api.install(THING_CRD)
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})


def write_project(folder: Path, python: str) -> None:
    """Write watches and role; `python` is the program that runs execute."""
    role = folder / "project" / "roles" / "thing"
    (role / "tasks").mkdir(parents=True)
    (role / "library").mkdir()
    (role / "library" / "note.py").write_text(_MODULE, encoding="utf-8")
    tasks = _TASKS.format(notes=folder / NOTES, python=python, hunger=folder / HUNGER)
    (role / "tasks" / "main.yml").write_text("---" + tasks, encoding="utf-8")
    watch = {
        "group": GROUP,
        "version": "v1",
        "kind": "Thing",
        "role": "thing",
        "maxRunnerArtifacts": 3,
        "runTimeout": _RUN_TIMEOUT,
        "retry": {"delay": "500ms", "maxDelay": "4s"},
        "finalizer": {"name": _FINALIZER, "vars": {"finalizing": True}},
    }
    (folder / "project" / "watches.yaml").write_text(yaml.safe_dump([watch]), encoding="utf-8")


def forget(folder: Path) -> None:
    """Remove what a world left."""
    shutil.rmtree(folder, ignore_errors=True)
