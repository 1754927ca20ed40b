"""Addresses to which the operator connects for a user who may only write a custom resource.

An address is checked after the name was resolved, and Ansible connects to the checked address. Addresses that reach the
operator itself, its node or the cluster's control plane are refused, unless an entry of `allow` is for such addresses
only: `0.0.0.0/0` does not allow loopback, `127.0.0.0/8` does.

Sources: https://www.iana.org/assignments/iana-ipv4-special-registry and iana-ipv6-special-registry
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TypeAlias

from runner.features.hosts.fields import AllowedHosts, Network
from runner.values.errors import ApiUnavailableError, TerminalError

Address: TypeAlias = IPv4Address | IPv6Address

_PATIENCE = 10.0
"""Seconds for all names of a resource."""
_SPECIAL: tuple[tuple[str, tuple[Network, ...]], ...] = tuple(
    (what, tuple(map(ip_network, networks)))
    for what, networks in (
        (
            "an address of a cloud's metadata",
            (
                *("169.254.169.254/32", "169.254.170.2/32", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"),
                *("fd00:ec2::254/128", "fd20:ce::254/128", "fd00:c1::a9fe:a9fe/128"),
            ),
        ),
        ("an address of a translation to IPv4", ("64:ff9b:1::/48", "2001::/32", "::ffff:0:0:0/96")),
        ("a loopback address", ("127.0.0.0/8", "::1/128")),
        ("an unspecified address", ("0.0.0.0/8", "::/128")),
        ("a link-local address", ("169.254.0.0/16", "fe80::/10")),
        ("a multicast or broadcast address", ("224.0.0.0/4", "255.255.255.255/32", "ff00::/8")),
    )
)
_NAT64 = ip_network("64:ff9b::/96")
_THREADS = 8


def plain(address: Address) -> Address:
    """Return the IPv4 address in an IPv6 address that stands for it (mapped, compatible, 6to4, NAT64), or itself."""
    if isinstance(address, IPv4Address):
        return address
    packed = address.packed
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64 or (packed[:12] == bytes(12) and int(address) > 1):
        return IPv4Address(packed[12:])
    return address.sixtofour or address


def parsed(text: str) -> Address | None:
    """Return an address; None for a name, or an address with a zone."""
    try:
        return ip_address(text) if "%" not in text else None
    except ValueError:
        return None


class AddressCheck:
    """Check of addresses against `allow`."""

    def __init__(self, allow: AllowedHosts, api_server: Iterable[Address]) -> None:
        """`api_server` are the addresses of the API server."""
        self._allow = allow
        own = tuple(ip_network(plain(server)) for server in api_server)
        self._special = (("an address of the API server", own), *_SPECIAL)

    def choose(self, written: str, resolved: Sequence[Address]) -> Address | str:
        """Return the address to connect to for an address or name in a resource, or why there is none.

        Empty: the name does not resolve. No reason contains an address of a name: the operator's DNS may know names
        that the user of the resource must not look up.
        """
        is_name = parsed(written) is None
        named = is_name and self._has_name(written.lower().rstrip("."))
        if is_name and not named and not self._allow.networks:
            return "the name is not in inventory.allow of watches.yaml"
        reasons = []
        for candidate in resolved:
            address = plain(candidate)
            reason = self._refused(address, named=named)
            if not reason:
                return address
            shown = "it resolves to an address that" if is_name else "it" if str(address) == written else address
            reasons.append(f"{shown} is {reason}")
        return "; ".join(dict.fromkeys(reasons))

    def _refused(self, address: Address, *, named: bool) -> str:
        allowed = [net for net in self._allow.networks if address.version == net.version and address in net]
        for what, networks in self._special:
            special = [net for net in networks if address.version == net.version and address in net]
            # An entry for addresses of this kind only.
            if special and not any(_is_within(entry, net) for entry in allowed for net in special):
                return f"{what}, and no entry of inventory.allow is for such addresses only"
        return "" if named or allowed else "not in inventory.allow of watches.yaml"

    def _has_name(self, name: str) -> bool:
        return any(
            name.endswith(allowed[1:]) and name != allowed[2:] if allowed.startswith("*.") else name == allowed
            for allowed in self._allow.names
        )


def _is_within(inner: Network, outer: Network) -> bool:
    return inner.version == outer.version and inner.subnet_of(outer)  # type: ignore[arg-type]  # the same version


class Resolver:
    """Resolves names in threads of each call: names of one resource with a slow server delay no other resource."""

    def __init__(self) -> None:
        self._servers: dict[str, Sequence[Address]] = {}
        """Addresses of servers, as known last."""

    async def servers(self, names: Iterable[str], *, direct: bool) -> list[Address]:
        """Return the addresses of servers.

        Raises:
            ApiUnavailableError: those of a server were never known. Without `direct`, a proxy resolves the names.
        """
        resolved = await self.resolve(names)
        self._servers |= {name: found for name, found in resolved.items() if found}
        if direct and (unknown := resolved.keys() - self._servers.keys()):
            raise ApiUnavailableError(f"no address of the API server is known: {min(unknown)} does not resolve")
        return [address for name in resolved for address in self._servers.get(name, ())]

    async def resolve(self, names: Iterable[str]) -> Mapping[str, Sequence[Address]]:
        """Return the addresses of names; none for a name that does not resolve in time."""
        unique = dict.fromkeys(names)
        literal = {name: [address] for name in unique if (address := parsed(name)) is not None}
        others = [name for name in unique if name not in literal]
        loop, threads = asyncio.get_running_loop(), ThreadPoolExecutor(_THREADS, thread_name_prefix="resolver")
        try:
            tasks = [loop.run_in_executor(threads, _lookup, name) for name in others]
            if tasks:
                await asyncio.wait(tasks, timeout=_PATIENCE)
            return literal | {
                name: task.result() if task.done() else [] for name, task in zip(others, tasks, strict=True)
            }
        finally:
            threads.shutdown(wait=False, cancel_futures=True)


def _lookup(name: str) -> list[Address]:
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(address for *_, sockaddr in answers if (address := parsed(str(sockaddr[0])))))


def refusal(host: str, written: str, reason: str) -> TerminalError:
    """Return the error about a host whose address is refused."""
    which = host if host == written else f"{host} ({written})"
    return TerminalError(
        f"host {which}: {reason}. Use another host, or let the administrator add it to inventory.allow. "
        "The object is not run until it changes"
    )
