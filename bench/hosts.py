"""What runs on hosts with SSH cost, against `ansible-playbook`: `python -m bench.hosts`. It needs OpenSSH's server.

For each number of hosts in `BENCH_HOSTS` (1,10,50), `BENCH_REPEATS` (3) times in turn: `ansible-playbook` runs one task
on all hosts; a new object does so; and it does so once more. The same follows with an operator whose watch sets
`factCache`. All gather facts, with five forks, and no run finds an open connection. Figures are medians of wall times:
from the start of the program to its end, or from the request to the line `Run ended`.

All hosts are addresses of the loopback interface, with one server, which this program starts. So hosts and Ansible
share the processors.
"""

from __future__ import annotations

import asyncio
import base64
import getpass
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from bench import objects
from bench.operator_process import OperatorProcess, Project, moment, running
from bench.process_stats import proportional, tree
from bench.results import Result, show, tell
from runner.base.credentials import auth
from runner.core.kube.client import Client, PatchType
from runner.sdk import devcluster
from runner.sdk.devcluster import ports
from tests.kit import ssh_hosts
from tests.kit.operator import operators_environment
from tests.kit.places import BIN
from tests.kit.wait import wait_for_program

_CASE = "hosts"
_TASK: list[dict[str, Any]] = [{"name": "Read a file", "ansible.builtin.command": "true", "changed_when": False}]
_VARIABLES = {"ansible_python_interpreter": sys.executable}
_PLAY = {"gather_facts": True, "tasks": _TASK}
_FIRST, _AGAIN = 1.0, 0.6
"""Goals, in times of `ansible-playbook`."""
_WATCHES = {"": {}, " with factCache": {"factCache": "1h"}}
_BETWEEN = 0.05
"""Seconds between two measurements of memory."""
_REQUEST = "ansible.sdk.operatorframework.io/run-requested"


@dataclass(frozen=True, slots=True)
class Servers:
    """An OpenSSH server on all addresses of the loopback interface, and its keys."""

    folder: Path
    port: int

    def address(self, number: int) -> str:
        """Return the address of a host."""
        return f"127.0.2.{number + 1}"

    def hosts(self, count: int) -> list[dict[str, Any]]:
        """Return hosts as in a spec."""
        return [
            {"name": f"host{n}", "address": self.address(n), "port": self.port, "vars": _VARIABLES}
            for n in range(count)
        ]

    @property
    def known_hosts(self) -> str:
        """Lines for all of them."""
        key = (self.folder / "host_key.pub").read_text()
        return f"[127.0.2.*]:{self.port} {key}"

    @property
    def key(self) -> Path:
        """The private key of the user."""
        return self.folder / "user_key"


@contextmanager
def _servers(folder: Path) -> Iterator[Servers]:
    """Start the server as the user of this process."""
    folder.mkdir()
    ssh_hosts.new_key(folder / "host_key")
    ssh_hosts.new_key(folder / "user_key")
    found = Servers(folder, ports.probe())
    settings = {
        "ListenAddress": f"0.0.0.0:{found.port}",
        "HostKey": folder / "host_key",
        "AuthorizedKeysFile": folder / "user_key.pub",
        "StrictModes": "no",
        "UsePAM": "no",
        "UseDNS": "no",
        "PermitRootLogin": "prohibit-password",
        "PidFile": "none",
        "MaxStartups": "500",
        "Subsystem": "sftp internal-sftp",
    }
    (folder / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    log = folder / "log"
    with log.open("wb") as output:
        command = [ssh_hosts.find("sshd"), "-D", "-e", "-f", str(folder / "sshd_config")]
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        wait_for_program(lambda: ssh_hosts.has_banner(found.address(0), found.port), process, log)
        yield found
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Measure on a control plane of its own."""
    sizes = [int(each) for each in os.environ.get("BENCH_HOSTS", "1,10,50").split(",")]
    repeats = int(os.environ.get("BENCH_REPEATS", "3"))
    with (
        devcluster.start(name="bench", progress=sys.stderr) as cluster,
        tempfile.TemporaryDirectory(prefix="ansible-operator-bench-") as folder,
        _servers(Path(folder, "servers")) as servers,
    ):
        asyncio.run(_measure(Path(cluster.kubeconfig), Path(folder), servers, sizes, repeats))


async def _measure(kubeconfig: Path, folder: Path, servers: Servers, sizes: list[int], repeats: int) -> None:
    credentials = await auth.load(str(kubeconfig), None, auth.HostEnvironment.of_process())
    async with Client(credentials) as client, AsyncExitStack() as stack:
        beds = {}
        for number, (more, fields) in enumerate(_WATCHES.items()):
            namespace = f"bench-hosts-{number}"
            await objects.install(client, (namespace,))
            await client.request("POST", f"/api/v1/namespaces/{namespace}/secrets", body=_secret(servers))
            inventory = {"hosts": "spec.hosts", "credentials": "spec.login", "allow": ["127.0.2.0/24"], **fields}
            own = {"inventory": inventory, "allowAnsibleVariables": list(_VARIABLES), "reconcilePeriod": "off"}
            project = Project.make(folder / namespace, kubeconfig, _TASK, playbook="play.yml", **own)
            (project.folder / "play.yml").write_text(json.dumps([{"hosts": "hosts", **_PLAY}]))
            operator = await stack.enter_async_context(running(project, namespace))
            await operator.await_line("Watching")
            beds[more] = Bed(client, operator, namespace, servers)
            await beds[more].run("warm-up", 1)
        for count in sizes:
            await _compare(beds, servers, folder, count, repeats)


@dataclass(frozen=True, slots=True)
class Bed:
    """An operator, and the hosts."""

    client: Client
    operator: OperatorProcess
    namespace: str
    servers: Servers

    async def run(self, name: str, count: int) -> float:
        """Create an object with so many hosts, return the seconds until its run ended."""
        body = objects.body(name)
        body["spec"] |= {"hosts": self.servers.hosts(count), "login": "login"}
        began = time.time()
        await self.client.request("POST", objects.path(self.namespace), body=body)
        return await self._ended(name, 1, began)

    async def run_again(self, name: str) -> float:
        """Request one more run of an object; return the seconds until it ended."""
        began = time.time()
        change = {"metadata": {"annotations": {_REQUEST: str(began)}}}
        path = objects.path(self.namespace, name)
        await self.client.request("PATCH", path, body=change, content_type=PatchType.MERGE.value)
        return await self._ended(name, 2, began)

    async def _ended(self, name: str, runs: int, began: float) -> float:
        ended = (await self.operator.await_lines(runs, "Run ended", name=name))[-1]
        if ended["outcome"] != "succeeded":
            raise RuntimeError(f"the run of {name} failed:\n{self.operator.operator.log[-4000:]}")
        return moment(ended) - began


async def _compare(beds: Mapping[str, Bed], servers: Servers, folder: Path, count: int, repeats: int) -> None:
    """Show the figures of one number of hosts."""
    plain: list[float] = []
    first: dict[str, list[float]] = {more: [] for more in beds}
    again: dict[str, list[float]] = {more: [] for more in beds}
    memory: dict[str, list[float]] = {"plain": [], "operator": []}
    for number in range(repeats):
        tell(f"{count} hosts, {number + 1} of {repeats}")
        name = f"fleet-{count}-{number}"
        plain.append(await asyncio.to_thread(_plain, servers, count, folder / name, memory))
        for more, bed in beds.items():
            with _Memory(bed.operator.pid) as used:
                first[more].append(await bed.run(name, count))
            again[more].append(await bed.run_again(name))
            memory["operator"].append(used.fork)
    base = statistics.median(plain)
    show(Result(_CASE, f"ansible-playbook on {count} hosts", base, "s"))
    seconds = statistics.median(first[""])
    show(Result(_CASE, f"first run on {count} hosts", seconds, "s"))
    show(Result(_CASE, f"first run on {count} hosts, in times of ansible-playbook", seconds / base, "ratio", _FIRST))
    for more, values in again.items():
        ratio = statistics.median(values) / base
        show(Result(_CASE, f"second run on {count} hosts{more}, in times of ansible-playbook", ratio, "ratio", _AGAIN))
    for side, values in memory.items():
        show(Result(_CASE, f"memory of a fork on {count} hosts, {side}", statistics.median(values), "MiB"))


def _plain(servers: Servers, count: int, folder: Path, memory: dict[str, list[float]]) -> float:
    """Run `ansible-playbook` as a user does, with connections of its own; return the seconds."""
    folder.mkdir()
    (folder / "known_hosts").write_text(servers.known_hosts)
    options = "-F /dev/null -o ControlMaster=auto -o ControlPersist=60s -o IdentitiesOnly=yes -o IdentityAgent=none"
    variables = {
        "ansible_port": servers.port,
        "ansible_ssh_private_key_file": str(servers.key),
        "ansible_ssh_args": f"-C {options} -o UserKnownHostsFile={folder / 'known_hosts'}",
        "ansible_control_path_dir": str(folder / "cp"),
    }
    hosts = {each["name"]: {"ansible_host": each["address"], **each["vars"]} for each in servers.hosts(count)}
    inventory = {"all": {"hosts": hosts, "vars": variables}}
    (folder / "inventory.yml").write_text(json.dumps(inventory))
    (folder / "play.yml").write_text(json.dumps([{"hosts": "all", **_PLAY}]))
    command = [str(BIN / "ansible-playbook"), "-i", "inventory.yml", "play.yml"]
    began = time.monotonic()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=operators_environment(), stdout=log, stderr=log)
        with _Memory(process.pid) as used:
            code = process.wait()
    seconds = time.monotonic() - began
    if code:
        raise RuntimeError(f"ansible-playbook failed:\n{(folder / 'log').read_text()[-4000:]}")
    memory["plain"].append(used.fork)
    for socket in (folder / "cp").glob("*"):  # masters would stay for a minute
        command = [ssh_hosts.find("ssh"), "-F", "/dev/null", "-o", f"ControlPath={socket}", "-O", "exit", "any"]
        subprocess.run(command, check=True, capture_output=True)
    return seconds


@dataclass(slots=True)
class _Memory:
    """Memory of Ansible's forks below a process, while a block runs."""

    pid: int
    samples: list[float] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def fork(self) -> float:
        """Mean of the proportional memory of a fork, at its highest in MiB; 0 if a run was too short to measure."""
        return max(self.samples, default=0.0)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(_BETWEEN):
            if found := list(_sizes_of_forks(self.pid)):
                self.samples.append(statistics.mean(found))


def _sizes_of_forks(root: int) -> Iterator[float]:
    """Yield the memory of each process that executes a task: a fork that has no fork itself, and has not ended."""
    forks = {pid: parent for pid in tree(root) if (parent := _forked_from(pid)) is not None}
    for pid in forks.keys() - forks.values():
        with suppress(OSError, ValueError):
            yield proportional(pid)


def _forked_from(pid: int) -> int | None:
    """Return the parent of a process; None if it executes another program, or has ended."""
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        own, above = (Path(f"/proc/{each}/cmdline").read_bytes() for each in (pid, parent))
    except OSError:
        return None
    return parent if own and own == above else None


def _secret(servers: Servers) -> dict[str, Any]:
    """Return the Secret with the key, lent to the kind."""
    values: Mapping[str, str] = {
        "ssh-privatekey": servers.key.read_text(),
        "username": getpass.getuser(),
        "known_hosts": servers.known_hosts,
    }
    data = {name: base64.b64encode(text.encode()).decode() for name, text in values.items()}
    labels = {f"{objects.GROUP}/lend-to-{objects.KIND.lower()}": "true"}
    return {"metadata": {"name": "login", "labels": labels}, "data": data}


if __name__ == "__main__":
    main()
