"""Linux hosts with OpenSSH's server, each in namespaces of its own, for Ansible to connect to.

`with running(folder) as network:` makes a network; `network.host("web1")` starts a host in it. A host has the
machine's programs, but its own network, users, processes and name. It keeps in memory what is written to its /etc,
/home, /opt, /root, /run, /srv, /tmp and /var. All of it ends with this process, also if that is killed.

Each network has 250 addresses of 10.213.0.0/16. No two processes have the same. Only root can make one: see
`hindrance`. `python -m tests.kit.ssh_hosts` is the relay of a slow host.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import random
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from runner.sdk.devcluster.leash import ENTER, JOIN
from runner.sdk.devcluster.processes import leashed
from tests.kit.processes import captured
from tests.kit.wait import wait_until
from tests.kit.wire import Wire

USER, PASSWORD, BECOME_PASSWORD = "deploy", "the deployer's own", "what makes root"
PROGRAMS = ("sshd", "ssh", "sshpass", "sudo", "ip", "pkill", "useradd")
_SCRIPT = Path(__file__).with_name("ssh_machine.py")
_GATEWAY_MAC, _HOST_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
_BEHIND_RELAY = 2022


def find(program: str) -> str:
    """Where the program is: Debian puts servers where only root's PATH leads; empty if there is none."""
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])) or ""


def missing() -> list[str]:
    """Return the programs that hosts need and this machine does not have."""
    return [name for name in PROGRAMS if not find(name)]


def has_banner(address: str, port: int = 22) -> bool:
    """True if an SSH server sends its banner. Raises OSError if it does not listen."""
    with socket.create_connection((address, port), timeout=5) as client:
        return client.recv(4) == b"SSH-"


@functools.cache
def hindrance() -> str:
    """Return why this machine cannot run hosts; empty if it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "only root on Linux makes hosts with networks of their own"
    if lacking := missing():
        return f"hosts need {', '.join(lacking)}: run `make test-programs`"
    tried = subprocess.run(["unshare", "--mount", "--net", "--pid", "--uts", "true"], check=False, capture_output=True)
    return f"root may not make namespaces here: {tried.stderr.decode().strip()}" if tried.returncode else ""


def new_key(file: Path, passphrase: str = "", kind: str = "ed25519") -> Path:
    """Make a key pair: `file`, and `file`.pub beside it."""
    _run("ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", file.name, "-f", str(file))
    return file


def sign(authority: Path, key: Path, user: str = USER, valid: str = "-1h:+1h") -> Path:
    """Return the certificate by which an authority lets the owner of a key in as `user`."""
    _run("ssh-keygen", "-q", "-s", str(authority), "-I", key.name, "-n", user, "-V", valid, f"{key}.pub")
    return key.with_name(f"{key.name}-cert.pub")


@dataclass
class Host:
    """A host that runs."""

    name: str
    address: str
    key: Path
    """Its private host key."""
    log: Path
    """What its server logs."""
    _interface: str
    _process: subprocess.Popen[bytes]

    def known_hosts(self, name: str = "") -> str:
        """Return the line of known_hosts by which a client recognizes it under a name, else under its address."""
        kind, key = Path(f"{self.key}.pub").read_text().split()[:2]
        return f"{name or self.address} {kind} {key}\n"

    def run(self, command: str) -> str:
        """Run a shell command on the host as root, not through SSH; return its output. Its failure fails the test."""
        done = subprocess.run(
            leashed(f"{ENTER}{self._process.pid}", "/bin/sh", "-c", command),
            cwd="/",  # another folder may not exist on the host
            check=False,
            text=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        assert done.returncode == 0, f"{self.name}: {command}: {done.stdout}{done.stderr}"
        return done.stdout

    def cut(self) -> None:
        """Cut its cable: nothing arrives any more, no connection is closed, and new ones get no answer."""
        self._ip("link", "set", "eth0", "down")

    def mend(self) -> None:
        """Mend the cable; connections that have not timed out meanwhile go on."""
        self._ip("link", "set", "eth0", "up")
        self._ip("neighbour", "replace", self._gateway, "lladdr", _GATEWAY_MAC, "dev", "eth0", "nud", "permanent")
        self.await_ready()

    def reset(self) -> None:
        """Break its connections: both sides notice at once. New ones work."""
        self.run(f"pkill -KILL -f '^sshd: {USER}'")

    def takes_over(self, other: Host) -> None:
        """Answer in the place of another host, under its address and with the own host key."""
        other.cut()
        self._ip("address", "add", f"{other.address}/32", "dev", "lo")
        route = ("ip", "route", "replace", f"{other.address}/32", "dev", self._interface)
        _run(*route)
        _run(*_neighbour(other.address, self._interface))

    def await_ready(self) -> None:
        """Wait until the server sends its banner."""

        def is_ready() -> bool:
            assert self._process.poll() is None, f"{self.name} ended:\n{self.log.read_text()[-3000:]}"
            try:
                return has_banner(self.address)
            except OSError:
                return False

        wait_until(is_ready, lambda: f"the server of {self.name}, which logged:\n{self.log.read_text()[-3000:]}")

    @property
    def _gateway(self) -> str:
        return f"{self.address.rpartition('.')[0]}.254"

    def _ip(self, *arguments: str) -> None:
        _run(*leashed(f"{JOIN}{self._process.pid}", find("ip"), *arguments))


class Network:
    """Hosts that this machine reaches, and the keys that open them."""

    def __init__(self, folder: Path, number: int, stack: ExitStack) -> None:
        self._folder, self._number, self._stack = folder, number, stack
        self._count = 0
        self.user_key = new_key(folder / "user_key")
        """The private key whose public one each host has in authorized_keys."""
        self.authority = new_key(folder / "authority")
        """The key of the certification authority for users that each host trusts."""

    @property
    def addresses(self) -> str:
        """The network that contains all of its hosts."""
        return f"10.213.{self._number}.0/24"

    def host(
        self, name: str, *, keys: bool = True, passwords: bool = True, delay: float = 0, host_key: Path | None = None
    ) -> Host:
        """Start a host and wait until it answers.

        It lets `USER` in by certificate, by key if `keys`, and by password if `passwords`. Data takes `delay` seconds
        in each direction.
        """
        host = self._link(name, host_key or new_key(self._folder / f"{name}_host_key"))
        machine = {
            "name": name,
            "address": host.address,
            "gateway": host._gateway,
            "gateway_mac": _GATEWAY_MAC,
            "user": USER,
            "password": PASSWORD,
            "become_password": BECOME_PASSWORD,
            "password_login": "yes" if passwords else "no",
            "authorized_keys": Path(f"{self.user_key}.pub").read_text() if keys else "",
            "host_key": host.key.read_text(),
            "user_ca.pub": Path(f"{self.authority}.pub").read_text(),
            "listen": f"127.0.0.1:{_BEHIND_RELAY}" if delay else "0.0.0.0",  # noqa: S104 - of its own network
        }
        tell = host._process.stdin
        assert tell is not None
        tell.write(json.dumps(machine).encode() + b"\n")
        tell.flush()
        if delay:
            relay = leashed(f"{JOIN}{host._process.pid}", sys.executable, "-m", __name__, str(delay))
            self._start(relay, host.log)
        host.await_ready()
        return host

    def black_hole(self) -> str:
        """Return an address that never answers: packets to it are dropped without a message."""
        return self._link("nobody", self.user_key).address

    def _link(self, name: str, key: Path) -> Host:
        """Make the namespaces of a host, and an interface between them and this machine; nothing listens yet."""
        self._count += 1
        address = f"10.213.{self._number}.{self._count}"
        interface = f"ssh{self._number}-{self._count}"
        log = self._folder / f"{interface}.log"
        process = self._start(leashed(sys.executable, "-I", "-S", str(_SCRIPT)), log)
        made = process.stdout
        assert made is not None
        assert made.readline() == b"made\n", log.read_text()
        host = Host(name, address, key, log, interface, process)
        peer = ("peer", "name", "eth0", "address", _HOST_MAC, "netns", str(process.pid))
        _run("ip", "link", "add", interface, "address", _GATEWAY_MAC, "type", "veth", *peer)
        _run("ip", "address", "add", host._gateway, "peer", f"{address}/32", "dev", interface)
        _run("ip", "link", "set", interface, "up")
        # Permanent, so that an address without a host is silent: without that, the kernel reports it as unreachable.
        _run(*_neighbour(address, interface))
        return host

    def _start(self, command: list[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output)
        self._stack.callback(_end, process)
        return process


@contextmanager
def running(folder: Path) -> Iterator[Network]:
    """Make a network whose keys and logs are in `folder`, which must be new. At the end, all hosts end."""
    folder.mkdir()
    with ExitStack() as stack:
        yield Network(folder, stack.enter_context(_number()), stack)


@contextmanager
def _number() -> Iterator[int]:
    """Reserve the addresses of one network, until the end of this process at most."""
    for number in random.SystemRandom().sample(range(1, 255), 254):
        with socket.socket(socket.AF_UNIX) as holder:
            try:
                holder.bind(f"\0ansible-operator-ssh-hosts-{number}")
            except OSError:
                continue
            # The kernel removes the interfaces of a killed process a moment after it.
            if not any(name.startswith(f"ssh{number}-") for _, name in socket.if_nameindex()):
                yield number
                return
    raise AssertionError("254 networks of hosts exist already")


def _neighbour(address: str, interface: str) -> tuple[str, ...]:
    return ("ip", "neighbour", "replace", address, "lladdr", _HOST_MAC, "dev", interface, "nud", "permanent")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with process:
        process.wait()


def _run(*command: str) -> None:
    done = captured(*command, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"


async def _relay(delay: float) -> None:
    await Wire(f"ssh://127.0.0.1:{_BEHIND_RELAY}", delay=delay).start("0.0.0.0", 22)  # noqa: S104 - of the host's network
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_relay(float(sys.argv[1])))
