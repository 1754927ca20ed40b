"""`status.hosts`: results of the hosts of an object, and what the next run must know about them. Pure.

An entry remains after the resource names its host no more, until a run has reached the host and did not fail there. The
status also keeps the first key of a host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from runner.engine.hosts import Host, HostRecap, Hosts
from runner.engine.job import RunResult
from runner.hosts import spec
from runner.objects import Object

Entry: TypeAlias = Mapping[str, Any]

FIELD = "hosts"
_COUNTS = ("ok", "changed", "failures", "unreachable")


def entries(obj: Object) -> dict[str, Entry]:
    """Return the valid entries of an object's status by name."""
    status = obj.get("status")
    found = status.get(FIELD) if isinstance(status, dict) else None
    listed = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    return {each["name"]: each for each in listed[: spec.MOST_HOSTS] if _host(each) is not None}


def all_hosts(named: Iterable[Host], before: Mapping[str, Entry]) -> tuple[Host, ...]:
    """Return the hosts of a spec with their kept keys, and the removed ones."""
    present = {host.name: _with_key(host, before.get(host.name)) for host in named}
    gone = [_host(entry) for name, entry in before.items() if name not in present]
    return (*present.values(), *(replace(host, is_removed=True) for host in gone if host is not None))


def at_start(hosts: Hosts, before: Mapping[str, Entry]) -> list[Entry]:
    """Return the entries at the start of a run: new hosts have no results."""
    return _sorted(_entry(host, None, before.get(host.name), {}, keeps=True) for host in hosts.hosts)


def after_run(hosts: Hosts, before: Mapping[str, Entry], result: RunResult) -> list[Entry]:
    """Return the entries after a run: hosts that failed first, then by name."""
    recaps = {each.name: each for each in result.hosts}
    found = [
        _entry(host, recaps.get(host.name), before.get(host.name), result.host_keys, keeps=not recaps)
        for host in hosts.hosts
        if not (host.is_removed and _is_clean(recaps.get(host.name)))
    ]
    return _sorted(found)


def _sorted(found: Iterable[Entry]) -> list[Entry]:
    return sorted(found, key=lambda each: (not (each.get("failures") or each.get("unreachable")), each["name"]))


def _is_clean(recap: HostRecap | None) -> bool:
    return recap is not None and not (recap.failures or recap.unreachable)


def _entry(host: Host, recap: HostRecap | None, before: Entry | None, keys: Mapping[str, str], *, keeps: bool) -> Entry:
    """Return an entry. `keeps`: the run has no results, so that those of the last one stay."""
    entry: dict[str, Any] = {"name": host.name, "address": host.written}
    if host.port is not None:
        entry["port"] = host.port
    if host.user:
        entry["user"] = host.user
    if recap is not None:
        entry |= {name: getattr(recap, name) for name in _COUNTS}
    elif before is not None and keeps:
        entry |= {name: before[name] for name in _COUNTS if name in before}
    if key := host.key or keys.get(host.known_as, ""):
        entry["hostKey"] = key
    return entry | ({"removed": True} if host.is_removed else {})


def _host(entry: Entry) -> Host | None:
    """Return the host of an entry, None if it is invalid. Another client can have written the status."""
    name, address, port, user = (entry.get(each) for each in ("name", "address", "port", "user"))
    host = spec.plain_host({"name": name, "address": address, "port": port, "user": user})
    return _with_key(host, entry) if host is not None else None


def _with_key(host: Host, entry: Entry | None) -> Host:
    """Add the key of an entry, if it is for the same machine."""
    key = str((entry or {}).get("hostKey") or "")
    is_same = entry is not None and (entry.get("address"), entry.get("port")) == (host.written, host.port)
    return replace(host, key=key) if is_same and len(key.split()) > 1 and "\n" not in key else host
