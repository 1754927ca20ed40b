"""`inventory` of a watch, and the hosts of a spec."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any

import pytest

from runner.core.watches.spec_paths import SpecPath
from runner.core.watches.watch import Watch
from runner.features.hosts import spec
from runner.features.hosts.fields import INVENTORY, AllowedHosts, InventoryPolicy
from runner.values.errors import TerminalError
from tests.kit.watch_values import watch_value
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


POLICY = InventoryPolicy(
    SpecPath.parse("spec.hosts"),
    "web",
    Path("/i"),
    None,
    AllowedHosts((), ()),
    first_use=False,
    fact_cache=0.0,
    groups=("north", "db_main"),
    vars=("httpPort", "ansibleHost"),
)


def read(hosts: Any, watch: Watch | None = None) -> spec.SpecHosts:
    return spec.read({"hosts": hosts}, POLICY, watch or watch_value())


def test_a_host_is_an_address_or_a_mapping() -> None:
    whole = {"name": "db", "address": "DB.example.com", "port": 2222, "user": "ops", "groups": ["north", "db_main"]}
    found = read(["10.0.0.1", "web.example.com", "fd00::1", whole, {"name": "named.example.com"}]).hosts
    assert [(each.name, each.written) for each in found] == [
        ("10.0.0.1", "10.0.0.1"),
        ("web.example.com", "web.example.com"),
        ("fd00--1", "fd00::1"),
        ("db", "DB.example.com"),
        ("named.example.com", "named.example.com"),
    ]
    assert (found[3].port, found[3].user, found[3].groups) == (2222, "ops", ("north", "db_main"))
    assert read(None).hosts == read([]).hosts == ()


def test_variables_are_those_of_a_run_without_the_ones_that_ansible_interprets() -> None:
    hostile: dict[str, Any] = {
        "ansible_connection": "local",
        "ansible_ssh_common_args": "-o ProxyCommand=id",
        "ansible_python_interpreter": "/tmp/evil",
        "discovered_interpreter_python": "/tmp/evil",
        "ansibleHost": "10.9.9.9",
        "groups": {},
        "httpPort": {"innerKey": 80},
    }
    found = read([{"address": "10.0.0.1", "vars": hostile}])
    assert found.hosts[0].vars == {"http_port": {"inner_key": 80}}
    assert "ansible_host of host 10.0.0.1" in found.ignored
    assert len(found.ignored) == 6
    allowed = watch_value(
        allow_ansible_variables=frozenset({"ansible_python_interpreter"}), snake_case_parameters=False
    )
    found = read([{"address": "10.0.0.1", "vars": hostile}], allowed)
    assert found.hosts[0].vars == {
        "ansible_python_interpreter": "/tmp/evil",
        "ansibleHost": "10.9.9.9",
        "httpPort": {"innerKey": 80},
    }


@pytest.mark.parametrize(
    ("different", "message"),
    [
        ({"groups": ["infra"]}, "spec.hosts[0].groups: group 'infra' is not permitted; remove it, or let the "),
        ({"groups": ["north", "DB_main"]}, "group 'DB_main' is not permitted"),
        ({"vars": {"gateSetting": 1}}, "spec.hosts[0].vars: variable 'gate_setting' is not permitted; remove it, or "),
        ({"vars": {"http_port": 1, "x" * 99: 1}}, f"variable '{'x' * 79}… is not permitted"),
        ({"name": "north"}, "'north' is a host and a group"),
    ],
)
def test_a_spec_chooses_only_groups_and_variables_that_the_watch_permits(
    different: dict[str, Any], message: str
) -> None:
    with pytest.raises(TerminalError) as error:
        read([{"address": "10.0.0.1", **different}])
    assert message in str(error.value)
    (host,) = read([{"address": "10.0.0.1", "groups": ["north", "web"], "vars": {"http_port": 80}}]).hosts
    assert (host.groups, host.vars) == (("north", "web"), {"http_port": 80})


def test_an_ipv6_address_that_begins_or_ends_with_colons_gives_a_name() -> None:
    assert [each.name for each in read(["::5", "fd00::", "fd00::1"]).hosts] == ["0--5", "fd00--0", "fd00--1"]


@pytest.mark.parametrize(
    ("host", "message"),
    [
        (7, "spec.hosts[0]: invalid host 7; write an address"),
        ("-oProxyCommand=id", "spec.hosts[0].address: invalid address '-oProxyCommand=id'"),
        ("web1,web2", "invalid address"),
        ("fe80::1%eth0", "invalid address"),
        ("web;id", "invalid address"),
        ("a" * 300, "invalid address"),
        ("localhost", "spec.hosts[0].name: invalid name 'localhost'"),
        ("127.0.0.1", "spec.hosts[0].name: invalid name '127.0.0.1'"),
        ({}, "spec.hosts[0].address: invalid address None"),
        ({"address": "10.0.0.1", "name": "all"}, "invalid name 'all'"),
        ({"address": "10.0.0.1", "name": "web[1:9]"}, "invalid name"),
        ({"address": "10.0.0.1", "name": "!web"}, "invalid name"),
        ({"address": "10.0.0.1", "name": "{{ x }}"}, "invalid name"),
        ({"address": "10.0.0.1", "name": ""}, "invalid name"),
        ({"address": "10.0.0.1", "name": "a\n"}, "invalid name"),
        ({"address": "10.0.0.1", "port": "22"}, "spec.hosts[0].port: invalid port '22'"),
        ({"address": "10.0.0.1", "port": 0}, "invalid port 0"),
        ({"address": "10.0.0.1", "port": True}, "invalid port True"),
        ({"address": "10.0.0.1", "user": '-o"x'}, "spec.hosts[0].user: invalid user"),
        ({"address": "10.0.0.1", "user": "{{ lookup('pipe', 'id') }}"}, "invalid user"),
        ({"address": "10.0.0.1", "vars": []}, ""),
        ({"address": "10.0.0.1", "vars": ["x"]}, "spec.hosts[0].vars: invalid variables"),
        ({"address": "10.0.0.1", "groups": "web"}, "spec.hosts[0].groups: invalid groups"),
        ({"address": "10.0.0.1", "groups": ["web:&db"]}, "invalid group 'web:&db'"),
        ({"address": "10.0.0.1", "groups": ["removed"]}, "invalid group 'removed'"),
        ({"address": "10.0.0.1", "connection": "local"}, "unknown field 'connection'"),
        ({"address": "10.0.0.1", "name": "web"}, "'web' is a host and a group"),
    ],
)
def test_a_host_that_is_no_host_is_refused(host: Any, message: str) -> None:
    if not message:
        assert read([host]).hosts[0].vars == {}
        return
    with pytest.raises(TerminalError) as error:
        read([host])
    assert message in str(error.value)


def test_names_are_unique_and_their_number_is_limited() -> None:
    with pytest.raises(TerminalError, match="duplicate host 'a'"):
        read([{"name": "a", "address": "10.0.0.1"}, {"name": "a", "address": "10.0.0.2"}])
    many = [f"10.0.{number // 256}.{number % 256}" for number in range(spec.MOST_HOSTS + 1)]
    assert len(read(many[:-1]).hosts) == spec.MOST_HOSTS
    with pytest.raises(TerminalError, match=r"spec.hosts: more than 500 hosts"):
        read(many)
