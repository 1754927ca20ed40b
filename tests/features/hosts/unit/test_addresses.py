"""Addresses that a spec may name, with hostile spellings."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.features.hosts import addresses
from runner.features.hosts.addresses import AddressCheck, Resolver
from runner.features.hosts.fields import AllowedHosts
from runner.values.errors import ApiUnavailableError
from tests.kit.wait import patience

API_SERVER = ip_address("10.96.0.1")


def choose(written: str, *found: str, allow: tuple[str, ...]) -> str:
    networks = tuple(ip_network(each) for each in allow if each[0].isdigit() or ":" in each)
    names = tuple(each for each in allow if not (each[0].isdigit() or ":" in each))
    check = AddressCheck(AllowedHosts(networks, names), [API_SERVER])
    return str(check.choose(written, [ip_address(each) for each in found or (written,)]))


@pytest.mark.parametrize(
    ("written", "found", "allow"),
    [
        ("10.20.0.5", (), ("10.20.0.0/16",)),
        ("db.example.com", ("10.20.0.5",), ("10.20.0.0/16",)),
        ("db.example.com", ("192.168.7.5",), ("db.example.com",)),
        ("a.lab.example.com", ("192.168.7.5",), ("*.lab.example.com",)),
        ("A.B.Lab.Example.com.", ("192.168.7.5",), ("*.lab.example.com",)),
        ("127.0.0.9", (), ("127.0.0.0/8",)),
        ("169.254.3.4", (), ("169.254.3.0/24",)),
        ("10.96.0.1", (), ("10.96.0.1/32",)),
        ("fd00:1::7", (), ("fd00:1::/64",)),
    ],
)
def test_an_allowed_host_is_connected_to_by_its_checked_address(
    written: str, found: tuple[str, ...], allow: tuple[str, ...]
) -> None:
    assert choose(written, *found, allow=allow) == (found or (written,))[0]


EVERYTHING = ("0.0.0.0/0", "::/0", "*.example.com")


@pytest.mark.parametrize(
    ("written", "found", "why"),
    [
        ("127.0.0.1", "127.0.0.1", "it is a loopback address"),
        ("own.example.com", "127.0.0.53", "it resolves to an address that is a loopback address"),
        ("::1", "::1", "it is a loopback address"),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", "127.0.0.1 is a loopback address"),
        ("::7f00:1", "::7f00:1", "127.0.0.1 is a loopback address"),
        ("64:ff9b::7f00:1", "64:ff9b::7f00:1", "127.0.0.1 is a loopback address"),
        ("2002:7f00:1::", "2002:7f00:1::", "127.0.0.1 is a loopback address"),
        ("meta.example.com", "169.254.169.254", "it resolves to an address that is an address of a cloud's metadata"),
        ("fd00:ec2::254", "fd00:ec2::254", "it is an address of a cloud's metadata"),
        ("168.63.129.16", "168.63.129.16", "it is an address of a cloud's metadata"),
        ("192.0.0.192", "192.0.0.192", "it is an address of a cloud's metadata"),
        ("64:ff9b:1::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "it is an address of a translation to IPv4"),
        ("2001:0:a9fe:a9fe::1", "2001:0:a9fe:a9fe::1", "it is an address of a translation to IPv4"),
        ("::ffff:0:7f00:1", "::ffff:0:7f00:1", "it is an address of a translation to IPv4"),
        ("::ffff:a9fe:a9fe", "::ffff:a9fe:a9fe", "169.254.169.254 is an address of a cloud's metadata"),
        ("0.0.0.0", "0.0.0.0", "it is an unspecified address"),  # noqa: S104 - only compared
        ("::", "::", "it is an unspecified address"),
        ("169.254.0.9", "169.254.0.9", "it is a link-local address"),
        ("fe80::1", "fe80::1", "it is a link-local address"),
        ("239.1.2.3", "239.1.2.3", "it is a multicast"),
        ("ff02::1", "ff02::1", "it is a multicast"),
        ("255.255.255.255", "255.255.255.255", "it is a multicast or broadcast"),
        ("kubernetes.example.com", "10.96.0.1", "it resolves to an address that is an address of the API server"),
    ],
)
def test_no_wide_entry_and_no_name_allows_a_special_address(written: str, found: str, why: str) -> None:
    assert choose(written, found, allow=EVERYTHING).startswith(why)


def test_metadata_needs_an_entry_for_it_although_link_local_addresses_are_allowed() -> None:
    assert "cloud's metadata" in choose("169.254.169.254", allow=("169.254.0.0/16",))
    assert choose("169.254.169.254", allow=("169.254.169.254",)) == "169.254.169.254"


@pytest.mark.parametrize(
    ("written", "found", "allow"),
    [
        ("10.21.0.5", ("10.21.0.5",), ("10.20.0.0/16",)),
        ("lab.example.com", ("10.1.1.1",), ("*.lab.example.com",)),
        ("evillab.example.com", ("10.1.1.1",), ("*.lab.example.com",)),
        ("a.lab.example.com.evil.org", ("10.1.1.1",), ("*.lab.example.com",)),
        ("db.example.com", ("8.8.8.8",), ("10.20.0.0/16",)),
    ],
)
def test_another_host_is_refused(written: str, found: tuple[str, ...], allow: tuple[str, ...]) -> None:
    assert choose(written, *found, allow=allow).endswith("not in inventory.allow of watches.yaml")


def test_no_refusal_contains_an_address_that_the_operator_found_for_a_name() -> None:
    for found in ("10.1.1.1", "127.0.0.53", "10.96.0.1", "fd00::1"):
        for allow in (("10.20.0.0/16",), EVERYTHING, ("*.lab.example.com",)):
            why = choose("db.internal.org", found, allow=allow)
            assert why == found or found not in why


def test_a_name_that_does_not_resolve_is_refused_if_only_names_are_allowed_and_it_is_none_of_them() -> None:
    for networks, names, why in (
        ((), ("a.example.com",), "the name is not in"),
        ((API_SERVER,), (), ""),
        ((), ("b",), ""),
    ):
        check = AddressCheck(AllowedHosts(tuple(map(ip_network, networks)), names), [])
        assert str(check.choose("b", [])).startswith(why)
        assert bool(check.choose("b", [])) == bool(why)


def test_of_several_addresses_the_first_allowed_one_is_used() -> None:
    assert choose("db.example.com", "127.0.0.1", "10.20.0.5", allow=("10.20.0.0/16",)) == "10.20.0.5"


@given(st.integers(0, (1 << 32) - 1))
def test_each_spelling_of_an_address_in_ipv6_is_decided_as_the_address_itself(number: int) -> None:
    check = AddressCheck(AllowedHosts((ip_network("0.0.0.0/0"), ip_network("::/0")), ()), [API_SERVER])
    own = check.choose("", [ip_address(number)])
    for prefix in (0xFFFF << 32, 0x64FF9B << 96):
        assert check.choose("", [ip_address(prefix | number)]) == own


async def test_names_are_resolved_and_an_address_is_not() -> None:
    found = await Resolver().resolve(["localhost", "10.0.0.1", "none.invalid", "a" * 70])
    assert ip_address("127.0.0.1") in found["localhost"]
    assert (found["10.0.0.1"], found["none.invalid"], found["a" * 70]) == ([ip_address("10.0.0.1")], [], [])


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A name server that answers for `*.slow.example.com` only after this event."""
    ends, real = threading.Event(), socket.getaddrinfo

    def lookup(name: str, *args: Any, **options: Any) -> Any:
        if name.endswith(".slow.example.com"):
            ends.wait(patience())
        return real("127.0.0.1", *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    yield ends
    ends.set()


@pytest.mark.usefixtures("slow")
async def test_a_slow_name_server_delays_no_other_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_PATIENCE", 1.0)
    found = await Resolver().resolve(["a.slow.example.com", "quick.example.com"])
    assert found == {"a.slow.example.com": [], "quick.example.com": [ip_address("127.0.0.1")]}


async def test_a_resource_with_many_names_of_a_slow_server_delays_no_other_resource(slow: threading.Event) -> None:
    resolver = Resolver()
    slowly = asyncio.create_task(resolver.resolve(f"{number}.slow.example.com" for number in range(50)))
    await asyncio.sleep(0)
    found = await resolver.resolve(["quick.example.com"])
    assert found["quick.example.com"] == [ip_address("127.0.0.1")]
    slow.set()
    await slowly


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Names that resolve, with their addresses."""
    known: dict[str, str] = {}

    def lookup(name: str, *_: Any, **__: Any) -> Any:
        if name not in known:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (known[name], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    return known


async def test_while_the_name_of_the_api_server_does_not_resolve_its_last_addresses_are_refused(
    names: dict[str, str],
) -> None:
    resolver, servers = Resolver(), ("api.example.com", "10.96.0.1")
    with pytest.raises(ApiUnavailableError, match=r"api\.example\.com does not resolve"):
        await resolver.servers(servers, direct=True)
    assert await resolver.servers(servers, direct=False) == [ip_address("10.96.0.1")]
    names["api.example.com"] = "10.0.0.7"
    expected = [ip_address("10.0.0.7"), ip_address("10.96.0.1")]
    assert sorted(await resolver.servers(servers, direct=True)) == expected
    names.clear()
    assert sorted(await resolver.servers(servers, direct=True)) == expected
    names["api.example.com"] = "10.0.0.8"
    assert ip_address("10.0.0.8") in await resolver.servers(servers, direct=True)
