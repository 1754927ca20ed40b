"""Hosts of a run beside localhost, and what Ansible needs to reach them.

Promises: files with secrets have mode 0600 and are in the temporary folder of the run, which is removed after it. No
argument and no environment variable contains a secret. Strings of a custom resource are never templated.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runner.base.config import atomic_file
from runner.core.engine import causes, extravars
from runner.core.engine.job import RunResult, TaskFailure
from runner.values.slots import Slot

REMOVED = "removed"
"""Group of the hosts that a former run had, and that the resource does not name any more."""
UNRESOLVED = "unresolved.invalid"
"""Address of a name that does not resolve. It never does (RFC 6761), so Ansible reports the host as unreachable."""
HOST_KEYS: Slot[Mapping[str, str]] = Slot("host keys", {})
"""Of a result: keys that hosts presented, by the name of the host in `known_hosts`."""
_NO_HOSTS = (
    "no play ran on a host of the resource: `hosts` of each play matches none of them; use the group that "
    "inventory.group in watches.yaml sets (default: hosts)"
)
_KEY_FAILED = "Host key verification failed"
_KEY, _KNOWN_HOSTS, _INVENTORY = "ssh_key", "known_hosts", "inventory.yml"
_ALIVE = 10
"""Seconds between two signs of life of a host. After three missing ones, the host counts as unreachable."""
_PERSIST = 60
"""Seconds for which an idle connection is kept; the end of the run closes it earlier."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host, with the address to which Ansible connects."""

    name: str
    written: str
    """Its address in the resource: an IP address or a DNS name."""
    address: str
    """The IP address, which was checked. If the name does not resolve, a name that never does."""
    port: int | None = None
    user: str = ""
    vars: Mapping[str, Any] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    is_removed: bool = False
    is_left_out: bool = False
    """Whether this run does not try to reach it: a removed host that the last one could not reach."""
    key: str = ""
    """The kept host key, as in `known_hosts` after the name; empty if there is none."""

    @property
    def machine(self) -> str:
        """Its identity: another address or port is another machine."""
        return self.known_as

    @property
    def known_as(self) -> str:
        """Its name in `known_hosts`: the address in the resource, as OpenSSH writes it, which is in lower case."""
        name = self.written.lower()
        return f"[{name}]:{self.port}" if self.port not in {None, 22} else name


@dataclass(frozen=True, slots=True)
class Credentials:
    """Values of a Secret, empty where it has none."""

    private_key: str = field(default="", repr=False)
    certificate: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    become_password: str = field(default="", repr=False)
    known_hosts: str = ""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values to mask."""
        return tuple(filter(None, (self.private_key, self.password, self.become_password)))


@dataclass(frozen=True, slots=True)
class Hosts:
    """All hosts of a run."""

    group: str
    hosts: tuple[Host, ...]
    file: Path | None
    """Inventory of the project, which is read after that of the resource."""
    credentials: Credentials
    first_use: bool
    """Whether the first key of a host is trusted."""
    finalizing: bool = False
    """Whether the removed hosts are in `group` too."""
    keeps_facts: bool = False
    """Whether facts of hosts are kept for the next run."""
    ignored_variables: tuple[str, ...] = ()
    """Variables of hosts that the run does not receive."""

    @property
    def removed(self) -> tuple[str, ...]:
        """Names of the removed hosts that this run reaches."""
        return tuple(host.name for host in self.reached if host.is_removed)

    @property
    def reached(self) -> tuple[Host, ...]:
        """The hosts that this run reaches."""
        return tuple(host for host in self.hosts if not host.is_left_out)

    @property
    def further(self) -> tuple[Path, ...]:
        """The inventory of the project, if there is one."""
        return () if self.file is None else (self.file,)

    @property
    def unmatched(self) -> str:
        """Why a run failed in which no play had any of the hosts; empty if the resource names none."""
        return "" if all(host.is_removed for host in self.hosts) else _NO_HOSTS

    def write(
        self, temporary: Path, sockets: Path, *, seen: Path | None = None, facts: Path | None = None
    ) -> tuple[Path, ...]:
        """Write the files about the hosts; see `job.Inventory`."""
        if self.keeps_facts and facts is not None:
            drop_facts(self, facts)
        folder = temporary / "hosts"
        folder.mkdir(mode=0o700)
        shown = (seen or temporary) / folder.name
        credentials = self.credentials
        atomic_file.write(folder / _KNOWN_HOSTS, "\n".join((credentials.known_hosts, *_kept_keys(self), "")))
        if credentials.private_key:
            atomic_file.write(folder / _KEY, credentials.private_key)
        if credentials.certificate:
            atomic_file.write(folder / f"{_KEY}-cert.pub", credentials.certificate)
        inventory = {"all": _inventory(self, shown, sockets)}
        atomic_file.write(folder / _INVENTORY, extravars.dump(inventory, frozenset(inventory)))
        return (shown / _INVENTORY,)

    def explain(self, result: RunResult) -> RunResult:
        """Replace messages of ssh, and name the hosts that the run did not reach before its end."""
        by_name = {host.name: host for host in self.reached}
        failures = tuple(
            replace(failure, message=_explained(failure, by_name.get(failure.host))) for failure in result.failures
        )
        recaps = {recap.name for recap in result.hosts}
        # A role has no play for removed hosts.
        missed = [name for name, host in by_name.items() if recaps and name not in recaps and not host.is_removed]
        return replace(result, failures=failures, missed=tuple(missed))

    def collect(self, result: RunResult, temporary: Path) -> RunResult:
        """Add the keys that hosts presented, if the first one is trusted."""
        if not self.first_use:
            return result
        return replace(result, more=result.more.having(HOST_KEYS, accepted_keys(temporary)))


def fact_environment(seconds: float) -> dict[str, str]:
    """Return the variables of runs that gather facts only if none are kept."""
    return {"ANSIBLE_GATHERING": "smart", "ANSIBLE_CACHE_PLUGIN_TIMEOUT": str(max(math.ceil(seconds), 1))}


def _kept_keys(hosts: Hosts) -> Iterator[str]:
    yield from (f"{host.known_as} {host.key}" for host in hosts.reached if host.key)


def _inventory(hosts: Hosts, folder: Path, sockets: Path) -> dict[str, Any]:
    """Return the group `all` of the inventory. Credentials are for the hosts of the resource only."""
    credentials, group = hosts.credentials, hosts.group
    login: dict[str, Any] = {
        "ansible_user": credentials.username,
        "ansible_password": credentials.password,
        "ansible_become_password": credentials.become_password,
        "ansible_ssh_private_key_file": str(folder / _KEY) if credentials.private_key else "",
    }
    # One connection for each module instead of five. It fails only where sudo requires a terminal.
    login = {name: value for name, value in login.items() if value} | {"ansible_pipelining": True}
    members: dict[str, dict[str, Any]] = {group: {}, REMOVED: {}}
    for host in hosts.reached:
        groups = [*host.groups] if not host.is_removed else []
        groups += [REMOVED] if host.is_removed else []
        groups += [group] if not host.is_removed or hosts.finalizing else []
        for name in groups:
            members.setdefault(name, {})[host.name] = {}
    children: dict[str, Any] = {name: {"hosts": listed} for name, listed in members.items()}
    for name in (group, REMOVED):
        children[name]["vars"] = login
    shared = _ssh_arguments(hosts, folder)
    # Without a key for the hosts of the resource, ssh would use those of the operator's own user.
    of_hosts = shared if credentials.private_key else f"{shared} -o IdentityFile=none"
    return {
        "hosts": {host.name: _variables(host, of_hosts) for host in hosts.reached},
        "children": children,
        "vars": {"ansible_ssh_args": shared, "ansible_control_path_dir": str(sockets)},
    }


def _variables(host: Host, ssh_arguments: str) -> dict[str, Any]:
    variables: dict[str, Any] = {
        **host.vars,
        "ansible_host": host.address,
        "ansible_ssh_args": f"{ssh_arguments} -o HostKeyAlias={shlex.quote(host.known_as)}",
    }
    if host.port is not None:
        variables["ansible_port"] = host.port
    return variables | ({"ansible_user": host.user} if host.user else {})


def _ssh_arguments(hosts: Hosts, folder: Path) -> str:
    """Return arguments of `ssh`, `scp` and `sftp`. The first value of an option counts, so no file changes these."""
    known = str(folder / _KNOWN_HOSTS).replace("%", "%%")
    options = {
        "ControlMaster": "auto",
        "ControlPersist": f"{_PERSIST}s",
        "ServerAliveInterval": str(_ALIVE),
        "ServerAliveCountMax": "3",
        "StrictHostKeyChecking": "accept-new" if hosts.first_use else "yes",
        "UserKnownHostsFile": f'"{known}"',
        "GlobalKnownHostsFile": "/dev/null",
        "UpdateHostKeys": "no",
        "HashKnownHosts": "no",
        "VerifyHostKeyDNS": "no",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "ForwardAgent": "no",
    }
    return " ".join(["-C -F /dev/null", *(f"-o {shlex.quote(f'{name}={value}')}" for name, value in options.items())])


def drop_facts(hosts: Hosts, folder: Path) -> None:
    """Remove kept facts of each name of a host whose machine or address differs from the last run's.

    `folder` is `run_dir.FACTS` in the run folder. Blocking I/O.
    """
    record = folder.with_suffix(".json")
    try:
        known = json.loads(record.read_bytes())
    except (OSError, ValueError):
        known = {}
    known = known if isinstance(known, dict) else {}
    now = {host.name: f"{host.machine} {host.address}" for host in hosts.reached}
    stale = {name for name, machine in now.items() if known.get(name) != machine}
    for file in folder.iterdir() if stale and folder.is_dir() else ():
        if not stale.isdisjoint({file.name, file.name.partition("_")[2]}):  # since ansible-core 2.19 with a prefix
            file.unlink()
    if stale:
        atomic_file.write(record, json.dumps(known | now))


def accepted_keys(temporary: Path) -> dict[str, str]:
    """Return the host keys in `known_hosts` of a run by the name of the host in it."""
    try:
        text = (temporary / "hosts" / _KNOWN_HOSTS).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.split(None, 1) for line in text.splitlines())
    return {parts[0]: parts[1] for parts in lines if len(parts) > 1}


def _explained(failure: TaskFailure, host: Host | None) -> str:
    message = failure.message
    if host is None:
        return message
    if failure.unreachable and _KEY_FAILED in message:
        return f"{_KEY_FAILED}: {_about_key(message, host)}"
    return message.replace("\r", "").replace(UNRESOLVED, host.written)


def _about_key(message: str, host: Host) -> str:
    """Return what a user can do about a key. ssh's own advice names a temporary file of the run."""
    if causes.ANOTHER_KEY not in message:
        return f"no key of {host.known_as} is known. Check its key and add it to known_hosts of the Secret"
    fingerprint = causes.FINGERPRINT.search(message)
    which = f" ({fingerprint[0]})" if fingerprint else ""
    remedy = "remove the entry of the host from status.hosts" if host.key else "correct known_hosts of the Secret"
    return f"{host.known_as} presents another key{which} than the known one. If the change was on purpose, {remedy}"
