"""`inventory` of a watch."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

import pytest

from runner.core.watches.spec_paths import SpecPath
from runner.features.hosts.fields import INVENTORY, AllowedHosts, InventoryPolicy
from tests.unit.watches.sample import HEAD, Errors, Load, One

WHOLE = """
  inventory:
    hosts: spec.hosts
    group: webservers
    file: playbooks/site.yml
    credentials: spec.credentials
    allow: [10.20.0.0/16, "fd00:1::/64", "*.Lab.example.com", db.example.com]
    groups: [north]
    vars: [httpPort]
    hostKeys: first
    factCache: 10m
"""


def test_all_fields_are_read(one: One, project: Path) -> None:
    watch = one(WHOLE)
    assert watch.more.get(INVENTORY) == InventoryPolicy(
        SpecPath.parse("spec.hosts"),
        "webservers",
        project / "playbooks/site.yml",
        SpecPath.parse("spec.credentials"),
        AllowedHosts(
            (IPv4Network("10.20.0.0/16"), IPv6Network("fd00:1::/64")), ("*.lab.example.com", "db.example.com")
        ),
        first_use=True,
        fact_cache=600.0,
        groups=("north",),
        vars=("httpPort",),
    )
    small = one("  inventory: {hosts: spec.hosts, allow: [10.0.0.1]}\n").more.get(INVENTORY)
    assert small is not None
    assert (small.group, small.file, small.credentials, small.first_use, small.fact_cache) == (
        *("hosts", None, None, False, 0.0),
    )
    assert small.allow == AllowedHosts((IPv4Network("10.0.0.1/32"),), ())
    assert one("").more.get(INVENTORY) is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("allow: [10.0.0.0/8]", "inventory.hosts: missing or empty: set the path of the list of hosts"),
        ("hosts: hosts, allow: [10.0.0.0/8]", "inventory.hosts: invalid path 'hosts'"),
        ("hosts: spec.hosts", "inventory.allow: missing or empty: list the networks and names"),
        ("hosts: spec.hosts, allow: []", "inventory.allow: empty: list the networks and names"),
        ("hosts: spec.hosts, allow: [10.0.0.1/8]", "inventory.allow: 10.0.0.1/8 has host bits set: use a network"),
        ("hosts: spec.hosts, allow: ['*']", "inventory.allow: invalid entry '*': use a network"),
        ("hosts: spec.hosts, allow: ['web-*.example.com']", "inventory.allow: invalid entry 'web-*.example.com'"),
        ("hosts: spec.hosts, allow: [10.0.0.300]", "inventory.allow: invalid entry '10.0.0.300'"),
        ("hosts: spec.hosts, allow: [a.b], group: all", "inventory.group: invalid group 'all'"),
        ("hosts: spec.hosts, allow: [a.b], group: 'web:!db'", "inventory.group: invalid group 'web:!db'"),
        ("hosts: spec.hosts, allow: [a.b], groups: [all]", "inventory.groups: invalid group 'all'"),
        ("hosts: spec.hosts, allow: [a.b], groups: ['a:b']", "inventory.groups: invalid group 'a:b'"),
        ("hosts: spec.hosts, allow: [a.b], vars: size", "inventory.vars: found text ('size'), expected a list"),
        ("hosts: spec.hosts, allow: [a.b], hostKeys: no", "inventory.hostKeys: invalid value 'no'"),
        ("hosts: spec.hosts, allow: [a.b], file: none.yml", "inventory.file: 'none.yml' not found; searched"),
        ("hosts: spec.hosts, allow: [a.b], factCache: soon", "inventory.factCache: invalid duration 'soon'"),
    ],
)
def test_invalid_fields_are_errors(errors: Errors, fields: str, message: str) -> None:
    first, _, rest = fields.partition("\n")
    found = errors(f"{HEAD}  inventory: {{{first}}}\n{rest}\n")
    assert any(message in line for line in found), found


def test_variables_without_effect_on_a_role_are_named(load: Load, project: Path) -> None:
    for name in ("group_vars", "inventories/host_vars", "playbooks/group_vars"):
        (project / name).mkdir(parents=True)
    (project / "inventories/all.yml").write_text("all: {}")
    role, inventory = HEAD, "  inventory: {hosts: spec.hosts, allow: [a.b]%s}\n"
    found = load(role + inventory % "").warnings
    assert [line for line in found if f"{project}/group_vars has no effect on runs of the role: move it" in line]
    assert any("inventories/host_vars has no effect" in line for line in found)
    assert not any("host_vars" in line for line in load(role + inventory % ", file: inventories/all.yml").warnings)
    assert not any("playbooks" in line for line in found)


@pytest.mark.parametrize("field", ["hostKeys: first", "factCache: 10m"])
def test_pods_keep_nothing_for_the_next_run(errors: Errors, one: One, field: str) -> None:
    inventory = "  inventory: {hosts: spec.hosts, allow: [a.b], %s}\n"
    pods = "  isolation: pod\n  podTemplate: {image: ee:1}\n"
    (error,) = errors(f"{HEAD}{inventory % field}{pods}")
    assert f"inventory.{field.partition(':')[0]}: keeps data for the next run" in error
    assert one(f"{inventory % 'hostKeys: strict'}{pods}").more.get(INVENTORY) is not None
