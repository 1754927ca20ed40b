"""Field `inventory` of a watch. Pure, but for the search of the inventory file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, TypeAlias

from runner.base.config.paths import ImageFiles, find_file
from runner.base.yamlfile.fields import Fields
from runner.core.watches import field, policy, selectors
from runner.core.watches.field import Entry, FeatureFields
from runner.core.watches.spec_paths import SpecPath
from runner.core.watches.watch import INPUTS, INVENTORIES
from runner.features.references.fields import REFERENCES, WatchReference, referring
from runner.values.objects import GVK
from runner.values.slots import EMPTY, Slot, Slots

Network: TypeAlias = IPv4Network | IPv6Network

HOST_KEYS = ("strict", "first")
ANSIBLE_GROUPS = frozenset({"all", "ungrouped", "localhost", "removed"})
"""Names with a meaning of their own in the inventory of a run."""
_DEFAULT_GROUP = "hosts"
_GROUP = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """Hosts that a spec may name."""

    networks: tuple[Network, ...]
    names: tuple[str, ...]
    """Names in lower case; `*.` at the start stands for any name below."""


@dataclass(frozen=True, slots=True)
class InventoryPolicy:
    """Hosts of the runs of a watch."""

    hosts: SpecPath
    group: str
    file: Path | None
    """Inventory of the project, which is merged."""
    credentials: SpecPath | None
    """Field of the spec that contains the name of the Secret."""
    allow: AllowedHosts
    first_use: bool
    """Whether the first key of a host is trusted and kept."""
    fact_cache: float
    """Seconds for which facts are kept; 0: only during a run."""
    groups: tuple[str, ...] = ()
    """Further groups that a spec may give its hosts."""
    vars: tuple[str, ...] = ()
    """Variables that a spec may give its hosts, as written in the spec or as the role reads them."""


def is_group(name: str) -> bool:
    """Return whether `name` can be a group: an identifier, so it is no pattern of hosts."""
    return _GROUP.fullmatch(name) is not None and name not in ANSIBLE_GROUPS


INVENTORY: Slot[InventoryPolicy | None] = Slot("inventory", None)
"""Slot of a watch: hosts of the runs; None: only localhost."""


def with_hosts(policy: InventoryPolicy, more: Slots = EMPTY) -> Slots:
    """Return the values of a watch whose runs have hosts."""
    inputs: Mapping[str, Any] = more.get(INPUTS)
    more = more.having(INPUTS, {**inputs, "inventory": policy}).having(INVENTORY, policy)
    return more if policy.file is None else more.having(INVENTORIES, (policy.file,))


_ENTRY = field.section(
    "",
    "%s",
    field.mapping(
        "inventory",
        "hosts of the runs, see below ([hosts.md](hosts.md))",
        "{hosts: spec.hosts, allow: [10.20.0.0/16]}",
    ),
)
_FIELDS = field.section(
    "inventory",
    "inventory: {hosts: spec.hosts, allow: [10.20.0.0/16], %s}",
    field.text(
        "hosts",
        "path of the list of hosts: addresses, or mappings with `name`, `address`, `port`, `user`, `vars` and `groups`",
        "spec.hosts",
        required=True,
        frame="inventory: {%s, allow: [10.20.0.0/16]}",
    ),
    field.text("group", "group of these hosts, and with `role` the hosts of the play; default: `hosts`", "webservers"),
    field.text(
        "file", "path of an inventory or plugin configuration of the project, which is merged", "playbooks/site.yml"
    ),
    field.text("credentials", "path of the name of a Secret, which its owner lends to this kind", "spec.credentials"),
    field.listing(
        "allow",
        "networks, addresses and names (`*.example.com`) that a spec may contain",
        '[10.20.0.0/16, "*.lab.example.com"]',
        required=True,
        frame="inventory: {hosts: spec.hosts, %s}",
    ),
    field.listing(
        "groups",
        "groups that a spec may give its hosts, with their `group_vars`; no group of the project's own inventory; "
        "default: none",
        "[databases]",
    ),
    field.listing("vars", "variables that a spec may give its hosts; default: none", "[size]"),
    field.text(
        "hostKeys",
        "`strict` (the default): only host keys in `known_hosts` of the Secret; `first`: the first key of a host is "
        "trusted and kept",
        "first",
        values=("strict", "first"),
    ),
    field.duration("factCache", "time for which facts of a host are kept between runs; default: none", "10m"),
)


def _read(entry: Entry, values: Slots) -> Slots:
    """Add the inventory, and the Secret with credentials as a reference: its changes run the object."""
    inventory = _inventory(entry.fields, entry.cwd, entry.image)
    if inventory is None:
        return values
    if inventory.credentials is not None:
        secret = WatchReference(GVK("", "v1", "Secret"), inventory.credentials, "", "", "")
        values = referring((*values.get(REFERENCES), secret), values)
    return with_hosts(inventory, values)


def _inventory(fields: Fields, cwd: Path, image: ImageFiles) -> InventoryPolicy | None:
    """Return the inventory of a watch; None if its runs have no hosts, or with errors."""
    given = fields.fields("inventory", field.names(_FIELDS))
    if given is None:
        return None
    if not fields.boolean("manageStatus", default=True):
        fields.error("inventory", "it needs status.hosts, which remembers hosts: remove manageStatus: false")
    given.require("hosts", "set the path of the list of hosts, such as spec.hosts")
    given.require("allow", "list the networks and names that a spec may contain, such as 10.20.0.0/16")
    hosts, credentials = _path(given, "hosts"), _path(given, "credentials")
    group, keys = given.text("group") or _DEFAULT_GROUP, given.text("hostKeys").lower() or HOST_KEYS[0]
    if not is_group(group):
        given.error("group", f"invalid group {group!r}: use letters, digits and '_', but no name that Ansible defines")
    if keys not in HOST_KEYS:
        given.error("hostKeys", f"invalid value {keys!r}: use strict (known_hosts of the Secret) or first (trust once)")
    if fields.text("isolation").lower() == "pod":
        for name in (["hostKeys"] if keys == "first" else []) + (
            ["factCache"] if given.is_present("factCache") else []
        ):
            given.error(name, "keeps data for the next run, but a pod and its files end with the run: remove it")
    facts, allowed, file = policy.span(given, "factCache", off=False), _allowed(given), _file(given, cwd, image)
    if not fields.text("playbook"):
        _warn_of_variables(given, cwd, file)
    if hosts is None:
        return None
    return InventoryPolicy(
        hosts,
        group,
        file,
        credentials,
        allowed,
        keys == "first",
        facts or 0.0,
        _groups(given),
        tuple(given.texts("vars")),
    )


def _path(fields: Fields, name: str) -> SpecPath | None:
    """Return a path in the spec; None if it is absent or, with an error, invalid."""
    if not fields.text(name):
        return None
    try:
        return SpecPath.parse(fields.text(name))
    except ValueError as error:
        fields.error(name, str(error))
        return None


def _groups(given: Fields) -> tuple[str, ...]:
    names = given.texts("groups")
    for name in names:
        if not is_group(name):
            given.error("groups", f"invalid group {name!r}: use letters, digits and '_', no name that Ansible defines")
    return tuple(names)


def _warn_of_variables(given: Fields, cwd: Path, file: Path | None) -> None:
    """Warn about files with variables that the run of a role does not read: it has no playbook beside them."""
    read = None if file is None else file if file.is_dir() else file.parent
    for folder in (cwd, *(cwd / name for name in ("inventory", "inventories"))):
        for name in ("group_vars", "host_vars"):
            if folder != read and (folder / name).is_dir():
                advice = "move it beside inventory.file, or use a playbook and move it there"
                given.warn("", f"{folder / name} has no effect on runs of the role: {advice}")


def _file(given: Fields, cwd: Path, image: ImageFiles) -> Path | None:
    name = given.text("file")
    if not name:
        return None
    search = find_file(name, cwd, image)
    if search.path is None:
        given.error("file", f"{name!r} not found; searched {', '.join(map(str, search.searched))}")
    return search.path


def _allowed(given: Fields) -> AllowedHosts:
    networks: list[Network] = []
    names: list[str] = []
    for text in given.texts("allow"):
        try:
            networks.append(ip_network(text))
        except ValueError as error:
            name = text.lower().rstrip(".")
            if not selectors.is_subdomain(name.removeprefix("*.")) or name.replace(".", "").isdigit():
                reason = str(error) if "host bits" in str(error) else f"invalid entry {text!r}"
                given.error("allow", f"{reason}: use a network (10.20.0.0/16), an address, or a name (*.example.com)")
            names.append(name)
    if given.node("allow") is not None and not (networks or names):
        given.error("allow", "empty: list the networks and names that a spec may contain, such as 10.20.0.0/16")
    return AllowedHosts(tuple(networks), tuple(names))


FIELDS = FeatureFields((_ENTRY, _FIELDS), _read)
