"""Credential plugins: a command that prints a token or a client certificate.

Owns the protocol (https://kubernetes.io/docs/reference/access-authn-authz/authentication/, "client-go credential
plugins"). Promises: at most one plugin process at a time, with a timeout; its result is used until it expires.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
from collections.abc import Mapping
from typing import Any

from runner.base.credentials.kubeconfig import KubeConfig
from runner.values.errors import ApiUnavailableError, ConfigError

_VERSIONS = {"client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"}
_TIMEOUT = 60.0
_EARLY = dt.timedelta(seconds=10)
"""A credential is renewed this long before it expires."""


class ExecPlugin:
    """The `exec` section of a kubeconfig's user."""

    def __init__(self, config: KubeConfig, environ: Mapping[str, str]) -> None:
        plugin = config.user["exec"]
        self._origin = config.origin
        if not isinstance(plugin, dict) or not plugin.get("command"):
            raise ConfigError(f"{self._origin}: exec has no command")
        if plugin.get("apiVersion") not in _VERSIONS:
            raise ConfigError(
                f"{self._origin}: exec apiVersion {plugin.get('apiVersion')!r} is not supported; "
                f"update the plugin to one of {', '.join(sorted(_VERSIONS))}"
            )
        if plugin.get("interactiveMode") == "Always":
            raise ConfigError(f"{self._origin}: exec {plugin['command']} needs a terminal; an operator has none")
        self._api_version = str(plugin["apiVersion"])
        self._command = [str(plugin["command"]), *map(str, plugin.get("args") or [])]
        self._hint = str(plugin.get("installHint") or "install it, or choose another user")
        extra = self._extra_environment(plugin)
        self._environ = {**environ, **extra, "KUBERNETES_EXEC_INFO": json.dumps(self._info(plugin, config.cluster))}
        self._lock = asyncio.Lock()
        self._token = ""
        self._certificate: tuple[bytes, bytes] | None = None
        self._has_answer = False
        self._expires: dt.datetime | None = None

    async def authorization(self) -> str:
        """Return the plugin's token; empty if it provides none."""
        async with self._lock:
            if not self._has_answer or (self._expires and dt.datetime.now(dt.UTC) >= self._expires):
                await self._renew()
        return f"Bearer {self._token}" if self._token else ""

    def take_certificate(self) -> tuple[bytes, bytes] | None:
        """Return certificate and key of the last result once; None if they are not new."""
        taken, self._certificate = self._certificate, None
        return taken

    def forget(self) -> None:
        """Run the plugin again next time."""
        self._has_answer = False

    def _extra_environment(self, plugin: Mapping[str, Any]) -> dict[str, str]:
        try:
            return {str(item["name"]): str(item["value"]) for item in plugin.get("env") or []}
        except (KeyError, TypeError) as error:
            raise ConfigError(f"{self._origin}: exec env must be a list of entries with name and value") from error

    def _info(self, plugin: Mapping[str, Any], cluster: Mapping[str, Any]) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": False}
        if plugin.get("provideClusterInfo"):
            known = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
            spec["cluster"] = {name: cluster[name] for name in known if cluster.get(name)}
            for extension in cluster.get("extensions") or []:
                if extension.get("name") == "client.authentication.k8s.io/exec":
                    spec["cluster"]["config"] = extension.get("extension")
        return {"apiVersion": self._api_version, "kind": "ExecCredential", "spec": spec}

    async def _run(self) -> Mapping[str, Any]:
        what = f"{self._origin}: credential plugin {self._command[0]}"
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env=self._environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise ApiUnavailableError(f"{what} cannot be started: {error.strerror}; {self._hint}") from error
        try:
            async with asyncio.timeout(_TIMEOUT):
                out, err = await process.communicate()
        except TimeoutError as error:
            raise ApiUnavailableError(f"{what} did not finish within {_TIMEOUT:.0f} s") from error
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):  # it ended by itself just now
                    process.kill()
                await process.wait()
        if process.returncode != 0:
            output = err.decode(errors="replace").strip()[-500:]
            raise ApiUnavailableError(f"{what} failed with exit code {process.returncode}: {output}")
        return self._status(out, what)

    def _status(self, out: bytes, what: str) -> Mapping[str, Any]:
        try:
            answer = json.loads(out)
            status: Mapping[str, Any] = answer["status"]
            known = answer["apiVersion"] == self._api_version and isinstance(status, dict)
        except (ValueError, KeyError, TypeError) as error:
            raise ApiUnavailableError(f"{what} did not print an ExecCredential with a status") from error
        if not known or not (status.get("token") or status.get("clientCertificateData")):
            raise ApiUnavailableError(f"{what} did not print a credential of {self._api_version}")
        return status

    async def _renew(self) -> None:
        status = await self._run()
        stamp = status.get("expirationTimestamp")
        try:
            expires = dt.datetime.fromisoformat(str(stamp)) if stamp else None
        except ValueError as error:
            raise ApiUnavailableError(
                f"{self._origin}: credential plugin {self._command[0]}: expirationTimestamp {stamp!r} is not a time"
            ) from error
        if expires is not None and expires.tzinfo is None:
            expires = expires.replace(tzinfo=dt.UTC)
        self._expires = expires - _EARLY if expires is not None else None
        self._token = str(status.get("token") or "").strip()
        if status.get("clientCertificateData"):
            self._certificate = (
                str(status["clientCertificateData"]).encode(),
                str(status.get("clientKeyData") or "").encode(),
            )
        self._has_answer = True
