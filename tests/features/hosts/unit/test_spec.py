"""Hosts of a spec, also hostile ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runner.core.watches.spec_paths import SpecPath
from runner.core.watches.watch import Watch
from runner.features.hosts import spec
from runner.features.hosts.fields import AllowedHosts, InventoryPolicy
from runner.values.errors import TerminalError
from tests.kit.watch_values import watch_value

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
