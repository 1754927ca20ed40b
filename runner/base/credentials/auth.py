"""Credentials: search, load and refresh.

Owns the search order: the given kubeconfig; the files of `KUBECONFIG`; the pod's service account; `~/.kube/config`. The
service account is skipped if a context is given.

Promises: `headers()` can be used at once. `refresh()` reads everything again, so that renewed certificates, authorities
and tokens are used without a restart. Must not import: the client.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from multidict import CIMultiDict

from runner.base import log
from runner.base.credentials import kubeconfig, tls
from runner.base.credentials.exec_plugin import ExecPlugin
from runner.base.credentials.kubeconfig import KubeConfig
from runner.base.credentials.tls import AuthorizationSource, FixedAuthorization, TokenFile
from runner.values.errors import ApiUnavailableError, ConfigError

_REFRESH_INTERVAL = 5.0
_OF_TOKENS = "!#$&'*+-.^_`|~"
"""Characters besides letters and digits that the name of a header permits (RFC 9110, 5.6.2), without the percent."""
_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class HostEnvironment:
    """Parts of the process and its machine that credentials are loaded from."""

    environ: Mapping[str, str]
    home: Path
    service_account: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount")

    @classmethod
    def of_process(cls) -> HostEnvironment:
        """Return those of this process."""
        # Not `Path.home`, which fails for a user without HOME and without an entry in /etc/passwd.
        return cls(dict(os.environ), Path(os.path.expanduser("~")))  # noqa: PTH111 - see above


def pod_namespace(host: HostEnvironment) -> str | None:
    """Return the namespace of this process's pod; None outside a pod."""
    try:
        return (host.service_account / "namespace").read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class OwnNamespaces:
    """Namespaces of the operator's own objects; empty if they are unknown."""

    pod: str
    """That of its pod; empty outside a cluster."""
    leases: str
    others: str
    """For Secrets and Jobs: that of its pod, or, outside a cluster, that of the Leases."""

    @classmethod
    def of_process(cls, of_leases: str) -> OwnNamespaces:
        """Return those of this process. `of_leases` is `--leader-election-namespace`, or empty."""
        pod = pod_namespace(HostEnvironment.of_process()) or ""
        return cls(pod, of_leases or pod, pod or of_leases)


class Credentials:
    """Address of one API server, and the identity for it."""

    base_url: str
    """URL of the server, possibly with a path, without a trailing slash."""
    ssl: ssl.SSLContext | None
    """None for a server without TLS."""
    server_hostname: str | None
    """Name in the server's certificate if it differs from the URL's."""
    proxy: str | None
    namespace: str
    """Default namespace of a request."""
    origin: str
    """File or folder that contains them."""
    context: str
    """Context of the kubeconfig; empty for the service account of a pod."""

    def __init__(self, source: Callable[[], KubeConfig], environ: Mapping[str, str]) -> None:
        self._source = source
        self._environ = environ
        self._refreshing = asyncio.Lock()
        self._refreshed_at = float("-inf")
        self._shown = ""
        self._adopt(source())

    def _adopt(self, config: KubeConfig) -> None:
        # What can fail comes first, so that all is replaced or nothing.
        context = tls.context(config.cluster, config.user, config.origin)
        proxy, token = choose_proxy(config.cluster, self._environ), _token_source(config, self._environ)
        self._config, self.ssl, self.proxy, self._token = config, context, proxy, token
        self.base_url = str(config.cluster["server"]).rstrip("/")
        self.server_hostname = config.cluster.get("tls-server-name") or None
        self.namespace = config.namespace
        self.origin, self.context = config.origin, config.context

    async def headers(self) -> CIMultiDict[str]:
        """Return the headers that identify the client.

        Raises ApiUnavailableError if a credential plugin failed.
        """
        headers: CIMultiDict[str] = CIMultiDict()
        authorization = await self._token.authorization()
        if authorization:
            headers["Authorization"] = self._shown = authorization
        if isinstance(self._token, ExecPlugin):
            try:
                self._use_plugin_certificate(self._token)
            except ConfigError as error:
                # Not the user's doing: the plugin's next answer may be better.
                self._token.forget()
                raise ApiUnavailableError(f"credential plugin: {error}") from error
        _impersonate(self._config.user, headers)
        return headers

    async def refresh(self) -> None:
        """Read everything again after the API server refused the credentials or its certificate was rejected.

        Several callers may notice that at once, and a refusal may last. Within a few seconds only the first call has an
        effect.
        """
        async with self._refreshing:
            if time.monotonic() - self._refreshed_at < _REFRESH_INTERVAL:
                return
            await self._reload()
            self._refreshed_at = time.monotonic()

    async def _reload(self) -> None:
        self._token.forget()
        try:
            config = await asyncio.to_thread(self._source)
            if config != self._config:
                self._adopt(config)
        except ConfigError as error:
            # Another process may be writing the file; the current credentials may still be valid.
            _log.warning("Cannot reload the credentials; the previous ones stay in use", error=str(error))

    def secret_values(self) -> list[str]:
        """Return the secrets of these credentials that are in use, without renewing any."""
        user = self._config.user
        values = [user.get("token"), user.get("password"), self._shown.partition(" ")[2]]
        values.append(tls.decode(user, "client-key", self._config.origin).decode(errors="replace"))
        return [str(value) for value in values if value]

    def _use_plugin_certificate(self, plugin: ExecPlugin) -> None:
        fresh = plugin.take_certificate()
        if fresh is None:
            return
        made = tls.context(self._config.cluster, {}, self._config.origin)
        if made is not None:
            tls.add_client_certificate(made, *fresh, self._config.origin)
            self.ssl = made


async def load(path: str | None, context: str | None, host: HostEnvironment) -> Credentials:
    """Find and load credentials. Raises ConfigError if there are none or they are invalid."""
    return await asyncio.to_thread(lambda: Credentials(_find(path, context, host), host.environ))


def _find(path: str | None, context: str | None, host: HostEnvironment) -> Callable[[], KubeConfig]:
    if path:
        return lambda: kubeconfig.read([Path(path).expanduser()], context)
    named = [Path(p).expanduser() for p in host.environ.get("KUBECONFIG", "").split(os.pathsep) if p]
    files = [file for file in named if file.exists()]
    if files:
        return lambda: kubeconfig.read(files, context)
    if not context and host.environ.get("KUBERNETES_SERVICE_HOST") and (host.service_account / "token").exists():
        return lambda: _in_cluster(host)
    default = host.home / ".kube" / "config"
    if default.exists():
        return lambda: kubeconfig.read([default], context)
    tried = [f"--kubeconfig (not given), KUBECONFIG ({', '.join(map(str, named)) or 'not set'})"]
    tried += [f"the service account of a pod ({host.service_account})", str(default)]
    raise ConfigError(f"no credentials for a cluster in {'; '.join(tried)}; set --kubeconfig")


def _in_cluster(host: HostEnvironment) -> KubeConfig:
    """Read the pod's service account
    (https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/#directly-accessing-the-rest-api).
    """  # noqa: D205 - the address is one word
    address = host.environ["KUBERNETES_SERVICE_HOST"]
    port = host.environ.get("KUBERNETES_SERVICE_PORT") or "443"
    folder = host.service_account
    try:
        authority = (folder / "ca.crt").read_bytes()
    except OSError as error:
        raise ConfigError(f"{folder / 'ca.crt'}: cannot be read: {error.strerror}; is the token mounted?") from error
    return KubeConfig(
        cluster={
            "server": f"https://[{address}]:{port}" if ":" in address else f"https://{address}:{port}",
            "certificate-authority-data": base64.b64encode(authority).decode(),
        },
        user={"tokenFile": str(folder / "token")},
        namespace=pod_namespace(host) or "default",
        origin=str(folder),
    )


def _token_source(config: KubeConfig, environ: Mapping[str, str]) -> AuthorizationSource:
    user = config.user
    if user.get("exec"):
        return ExecPlugin(config, environ)
    if provider := user.get("auth-provider"):
        name = provider.get("name") if isinstance(provider, dict) else provider
        raise ConfigError(
            f"{config.origin}: auth-provider {name!r} is not supported: use a credential plugin (exec), such as "
            "kubelogin for oidc"
        )
    if user.get("tokenFile"):
        return TokenFile(Path(user["tokenFile"]))
    return FixedAuthorization(user)


def _impersonate(user: Mapping[str, object], headers: CIMultiDict[str]) -> None:
    """https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/."""
    if user.get("as"):
        headers["Impersonate-User"] = str(user["as"])
    if user.get("as-uid"):
        headers["Impersonate-Uid"] = str(user["as-uid"])
    groups, extra = user.get("as-groups"), user.get("as-user-extra")
    for group in groups if isinstance(groups, list) else []:
        headers.add("Impersonate-Group", str(group))
    for name, values in extra.items() if isinstance(extra, dict) else []:
        for value in values:
            headers.add(f"Impersonate-Extra-{quote(str(name), safe=_OF_TOKENS)}", str(value))


def choose_proxy(cluster: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    """Return the URL of the HTTP proxy, from the kubeconfig or the environment; None for a direct connection.

    `NO_PROXY` has the meaning of kubectl and client-go (golang.org/x/net/http/httpproxy): names with their subdomains,
    addresses, and networks in CIDR notation. The standard library does not support networks.
    """
    server = urlsplit(str(cluster["server"]))
    proxy = str(cluster.get("proxy-url") or "")
    if not proxy and not _bypassed(server.hostname or "", server.port, environ):
        proxy = _variable(environ, f"{server.scheme}_proxy")
    if not proxy:
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    if not kubeconfig.is_http(proxy):
        shown = proxy.rpartition("@")[2]  # without a password
        raise ConfigError(f"proxy {shown!r} of {server.geturl()} is not supported; use an http:// or https:// proxy")
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
