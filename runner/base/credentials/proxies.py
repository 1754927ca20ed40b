"""Choice of the HTTP proxy for the API server, from the kubeconfig or the environment. Pure.

Promises: `NO_PROXY` has the meaning of kubectl and client-go (golang.org/x/net/http/httpproxy): names with their
subdomains, addresses, and networks in CIDR notation. The standard library does not support networks.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from runner.values.errors import ConfigError


def choose(cluster: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    """Return the proxy's URL, or None for a direct connection."""
    server = urlsplit(str(cluster["server"]))
    proxy = str(cluster.get("proxy-url") or "")
    if not proxy and not _bypassed(server.hostname or "", server.port, environ):
        proxy = _variable(environ, f"{server.scheme}_proxy")
    if not proxy:
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    if not proxy.startswith(("http://", "https://")):
        raise ConfigError(f"proxy {proxy!r} of {server.geturl()} is not supported; use an http:// or https:// proxy")
    return proxy


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper()) or environ.get(name) or ""


def _bypassed(host: str, port: int | None, environ: Mapping[str, str]) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    rules = (rule.strip().lower() for rule in _variable(environ, "no_proxy").split(","))
    return any(_covers(rule, host.lower(), address, port) for rule in rules if rule)


def _covers(
    rule: str, host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None, port: int | None
) -> bool:
    if rule == "*":
        return True
    if address is not None and "/" in rule:
        try:
            return address in ipaddress.ip_network(rule, strict=False)
        except ValueError:
            return False
    name, colon, only_port = rule.rpartition(":")
    if colon and only_port.isdigit() and _address(rule) is None:
        if int(only_port) != port:
            return False
        rule = name
    if address is not None:
        return _address(rule.strip("[]")) == address
    domain = rule.removeprefix("*").lstrip(".")
    return host.endswith(f".{domain}") or (host == domain and not rule.startswith((".", "*")))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
