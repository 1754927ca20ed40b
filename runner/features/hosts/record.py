"""`status.hosts`: results of the hosts of an object, and what the next run must know about them. Pure.

Rule: no machine is forgotten before it is clean. An entry is about a machine, which is an address with a port. It
remains after the resource names this machine no more, under any name, until a run has reached the machine and did not
fail there. The status also keeps the first key of a machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from runner.core.engine.job import HostRecap, RunResult
from runner.features.hosts import spec
from runner.features.hosts.feature import FIELD
from runner.features.hosts.inventory import HOST_KEYS, Host, Hosts
from runner.values.errors import TerminalError
from runner.values.objects import Object, mapping, maps

Entry: TypeAlias = Mapping[str, Any]

_LONGEST_NAME = 100
"""Characters of each part of the name of a removed host whose own name another host has."""
_COUNTS = ("ok", "changed", "failures", "unreachable")


def entries(obj: Object) -> dict[str, Entry]:
    """Return the valid entries of an object's status by name."""
    listed = maps(mapping(obj.get("status")).get(FIELD))
    # As many as `all_hosts` permits, with the removed ones.
    return {entry["name"]: entry for entry in listed[: 2 * spec.MOST_HOSTS] if _host(entry) is not None}


def all_hosts(named: Iterable[Host], before: Mapping[str, Entry], *, tries_dead: bool = True) -> tuple[Host, ...]:
    """Return the hosts of a spec with their kept keys, and the removed ones.

    `tries_dead`: whether the run tries to reach removed hosts that the last one could not reach.

    Raises:
        TerminalError: too many removed hosts are not clean.
    """
    entry_of = _by_machine(before)
    present = [_with_key(host, entry_of.get(host.machine)) for host in named]
    machines, names = {host.machine for host in present}, {host.name for host in present}
    removed = []
    for machine, entry in entry_of.items():
        host = _host(entry)
        if host is None or machine in machines:
            continue
        name = _free(host, names)
        names.add(name)
        is_dead = bool(entry.get("removed") and entry.get("unreachable"))
        removed.append(replace(host, name=name, is_removed=True, is_left_out=is_dead and not tries_dead))
    if len(removed) > spec.MOST_HOSTS:
        raise TerminalError(
            f"status.hosts: more than {spec.MOST_HOSTS} removed hosts are not clean yet; name some of them again, or "
            "remove entries from status.hosts. The object is not run until it changes"
        )
    return (*present, *removed)


def _free(host: Host, taken: Collection[str]) -> str:
    """Return the name of a removed host: its own, or one with its address if another host has that."""
    if host.name not in taken:
        return host.name
    address = host.written.replace(":", "-")[:_LONGEST_NAME].rstrip("-._")  # no name ends with these
    name = f"{host.name[:_LONGEST_NAME]}-{address}"
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(candidate for candidate in itertools.chain((name,), numbered) if candidate not in taken)


def _by_machine(before: Mapping[str, Entry]) -> dict[str, Entry]:
    hosts = ((_host(entry), entry) for entry in before.values())
    return {host.machine: entry for host, entry in hosts if host is not None}


def with_keys(hosts: Hosts, keys: Mapping[str, str]) -> Hosts:
    """Return the hosts with keys that a run accepted, by the name of the host in `known_hosts`."""
    return replace(
        hosts, hosts=tuple(replace(host, key=host.key or keys.get(host.known_as, "")) for host in hosts.hosts)
    )


def at_start(hosts: Hosts, before: Mapping[str, Entry]) -> list[Entry]:
    """Return the entries at the start of a run: new hosts have no results."""
    entry_of = _by_machine(before)
    return _sorted(_entry(host, None, entry_of.get(host.machine)) for host in hosts.hosts)


def after_run(hosts: Hosts, before: Mapping[str, Entry], result: RunResult) -> list[Entry]:
    """Return the entries after a run: hosts that failed first, then by name."""
    recaps, entry_of = {recap.name: recap for recap in result.hosts}, _by_machine(before)
    return _sorted(
        # A run without results keeps those of the last one.
        _entry(host, recaps.get(host.name), None if recaps and not host.is_left_out else entry_of.get(host.machine))
        for host in with_keys(hosts, result.more.get(HOST_KEYS)).hosts
        if not (host.is_removed and _is_clean(recaps.get(host.name)))
    )


def _sorted(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: (not (entry.get("failures") or entry.get("unreachable")), entry["name"]))


def _is_clean(recap: HostRecap | None) -> bool:
    return recap is not None and not (recap.failures or recap.unreachable)


def _entry(host: Host, recap: HostRecap | None, before: Entry | None) -> Entry:
    """Return an entry, with the results of the run or of the entry before."""
    entry: dict[str, Any] = {"name": host.name, "address": host.written}
    if host.port is not None:
        entry["port"] = host.port
    if host.user:
        entry["user"] = host.user
    if recap is not None:
        entry |= {name: getattr(recap, name) for name in _COUNTS}
    elif before is not None:
        entry |= {name: before[name] for name in _COUNTS if name in before}
    if host.key:
        entry["hostKey"] = host.key
    return entry | ({"removed": True} if host.is_removed else {})


def _host(entry: Entry) -> Host | None:
    """Return the host of an entry, None if it is invalid. Another client can have written the status."""
    name, address, port, user = (entry.get(field) for field in ("name", "address", "port", "user"))
    host = spec.plain_host({"name": name, "address": address, "port": port, "user": user})
    return _with_key(host, entry) if host is not None else None


def _with_key(host: Host, entry: Entry | None) -> Host:
    """Add the key of an entry of the same machine."""
    key = str((entry or {}).get("hostKey") or "")
    return replace(host, key=key) if len(key.split()) > 1 and "\n" not in key else host
