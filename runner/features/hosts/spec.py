"""Hosts in the spec of a custom resource. Pure.

Rule: a host of a resource has only the groups and variables that the watch permits, and no name that the project's own
inventory uses. Names and groups cannot be patterns or options of a command. Variables that Ansible itself interprets
are dropped. Only Ansible can read the project's inventory, so `callbacks/ansible_operator_hosts.py` checks names
in the run.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from runner.core.engine import params
from runner.core.watches.watch import Watch
from runner.features.hosts import fields as inventory_fields
from runner.features.hosts.addresses import parsed
from runner.features.hosts.fields import InventoryPolicy
from runner.features.hosts.inventory import Host
from runner.values.errors import TerminalError

MOST_HOSTS = 500
"""Maximum number of hosts of an object, with removed ones."""
_FIELDS = ("name", "address", "port", "user", "vars", "groups")
_MOST_GROUPS = 50
_HIGHEST_PORT = 65535
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}")
_LONGEST = 80
"""Characters of a value in a message."""


@dataclass(frozen=True, slots=True)
class SpecHosts:
    """Hosts of a spec, without checked addresses."""

    hosts: tuple[Host, ...]
    ignored: tuple[str, ...]
    """Variables that the run does not receive, each with its host."""


def read(spec: Any, policy: InventoryPolicy, watch: Watch) -> SpecHosts:
    """Return the hosts of a spec; `address` is the written one.

    Raises:
        TerminalError: a host is invalid.
    """
    hosts: dict[str, Host] = {}
    ignored: list[str] = []
    permitted = params.variables(dict.fromkeys(policy.vars), watch).keys() | watch.allow_ansible_variables
    for value in policy.hosts.find(spec):
        for number, item in enumerate(value if isinstance(value, list) else [] if value is None else [value]):
            place = f"{policy.hosts.text}[{number}]"
            host = _host(item, place)
            variables = _variables(host.vars, host.name, place, watch, ignored)
            _check_permitted(f"{place}.vars", "variable", variables, permitted)
            _check_permitted(f"{place}.groups", "group", host.groups, {*policy.groups, policy.group})
            host = replace(host, vars=variables)
            if host.name in hosts:
                raise _error(place, f"duplicate host {host.name!r}", "give each host another name")
            hosts[host.name] = host
            if len(hosts) > MOST_HOSTS:
                raise _error(policy.hosts.text, f"more than {MOST_HOSTS} hosts", "use several objects")
    for name in sorted({policy.group, *policy.groups} & hosts.keys()):
        raise _error(policy.hosts.text, f"{name!r} is a host and a group", "give the host another name")
    return SpecHosts(tuple(hosts.values()), tuple(ignored))


def _check_permitted(place: str, what: str, names: Iterable[str], permitted: Collection[str]) -> None:
    for name in names:
        if name not in permitted:
            field = place.rpartition(".")[2]
            advice = f"remove it, or let the administrator add it to inventory.{field} in watches.yaml"
            raise _error(place, f"{what} {_cut(name)} is not permitted", advice)


def plain_host(item: Any) -> Host | None:
    """Return a host without variables; None if it is invalid."""
    try:
        return _host(item, "")
    except TerminalError:
        return None


def _host(item: Any, place: str) -> Host:
    fields = {"address": item} if isinstance(item, str) else item
    if not isinstance(fields, dict):
        raise _error(place, f"invalid host {_cut(item)}", "write an address, or a mapping with name and address")
    for unknown in fields.keys() - set(_FIELDS):
        raise _error(place, f"unknown field {_cut(unknown)}", f"use {', '.join(_FIELDS)}")
    written = fields.get("address", fields.get("name"))
    address = parsed(written) if isinstance(written, str) else None
    if not isinstance(written, str) or (address is None and not _NAME.fullmatch(written)):
        raise _error(f"{place}.address", f"invalid address {_cut(written)}", "use an IP address or a DNS name")
    written = str(address or written)
    name = fields.get("name", _name_of(written))
    if not is_name(name):
        raise _error(f"{place}.name", f"invalid name {_cut(name)}", "use letters, digits, '.', '_' and '-'")
    return Host(
        name=name,
        written=written,
        address=written,
        port=_port(fields.get("port"), f"{place}.port"),
        user=_user(fields.get("user", ""), f"{place}.user"),
        vars=fields.get("vars") or {},
        groups=tuple(_groups(fields.get("groups") or [], f"{place}.groups")),
    )


def _name_of(written: str) -> str:
    """Return the default name of a host. An IPv6 address can begin or end with colons, and a name with no `-`."""
    name = written.replace(":", "-")
    return f"{'0' * name.startswith('-')}{name}{'0' * name.endswith('-')}"


def is_name(name: Any) -> bool:
    """Return whether `name` can be a host: no pattern, and no name with a meaning of its own in Ansible."""
    is_plain = isinstance(name, str) and _NAME.fullmatch(name) is not None
    return is_plain and name.lower() not in {*inventory_fields.ANSIBLE_GROUPS, "127.0.0.1"}


def _port(value: Any, place: str) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _HIGHEST_PORT):
        raise _error(place, f"invalid port {_cut(value)}", f"use a number from 1 to {_HIGHEST_PORT}")
    return value


def _user(value: Any, place: str) -> str:
    if value and not (isinstance(value, str) and _USER.fullmatch(value)):
        raise _error(place, f"invalid user {_cut(value)}", "use letters, digits, '.', '_', '@', '+' and '-'")
    return value or ""


def _variables(value: Any, host: str, place: str, watch: Watch, ignored: list[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _error(f"{place}.vars", f"invalid variables {_cut(value)}", "use a mapping")
    variables = params.variables(value, watch)
    reserved = sorted(name for name in variables if params.is_reserved(name, watch.allow_ansible_variables))
    ignored += [f"{name} of host {host}" for name in reserved]
    return {name: content for name, content in variables.items() if name not in reserved}


def _groups(value: Any, place: str) -> Iterator[str]:
    if not isinstance(value, list) or len(value) > _MOST_GROUPS:
        raise _error(place, f"invalid groups {_cut(value)}", f"use a list of at most {_MOST_GROUPS} names")
    for name in value:
        if not (isinstance(name, str) and inventory_fields.is_group(name)):
            advice = "use letters, digits and '_', but no name that Ansible defines"
            raise _error(place, f"invalid group {_cut(name)}", advice)
        yield name


def _error(place: str, what: str, advice: str) -> TerminalError:
    return TerminalError(f"{place}: {what}; {advice}. The object is not run until it changes")


def _cut(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
