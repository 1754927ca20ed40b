"""Parts of credentials: TLS contexts from the certificates of a kubeconfig, and plain sources of `Authorization`.

Keys are on disk only for a moment, in a private directory. The other source is `exec_plugin`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import ssl
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from runner.values.errors import ApiUnavailableError, ConfigError

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def context(cluster: Mapping[str, Any], user: Mapping[str, Any], origin: str) -> ssl.SSLContext | None:
    """Build the context for a kubeconfig's cluster and user; None for a server without TLS."""
    if not str(cluster["server"]).startswith("https://"):
        return None
    try:
        made = ssl.create_default_context(cadata=_authorities(cluster, origin))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{origin}: certificate-authority contains an invalid certificate: {error}") from error
    # Python 3.13 began to refuse authorities without an Authority Key Identifier. RFC 5280 requires one, but
    # many clusters have none, and Go's clients accept them.
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if cluster.get("insecure-skip-tls-verify"):
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    certificate, key = decode(user, "client-certificate", origin), decode(user, "client-key", origin)
    if bool(certificate) != bool(key):
        raise ConfigError(f"{origin}: client-certificate and client-key must be given together")
    if certificate:
        add_client_certificate(made, certificate, key, origin)
    return made


def add_client_certificate(made: ssl.SSLContext, certificate: bytes, key: bytes, origin: str) -> None:
    """Load a client certificate and its key, both in PEM."""
    try:
        with tempfile.TemporaryDirectory(prefix="ansible-operator-") as folder:
            # The ssl module reads keys from files only.
            pair = Path(folder) / "pair.pem"
            pair.touch(0o600)
            pair.write_bytes(certificate + b"\n" + key)
            made.load_cert_chain(pair, password=_no_password)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{origin}: the client certificate or its key cannot be used: {error}") from error


def decode(section: Mapping[str, Any], field: str, origin: str) -> bytes:
    """Decode `<field>-data`; empty when it is not there."""
    try:
        # Line breaks are fine, as in Go; anything else that is no base64 is a mistake.
        return base64.b64decode("".join(str(section.get(f"{field}-data") or "").split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(f"{origin}: {field}-data is not valid base64: {error}") from error


def _authorities(cluster: Mapping[str, Any], origin: str) -> str | None:
    """Return the cluster's certificate authorities for the ssl module: certificates alone, without comments."""
    bundle = decode(cluster, "certificate-authority", origin)
    if not bundle or cluster.get("insecure-skip-tls-verify"):
        return None
    certificates = b"\n".join(_CERTIFICATE.findall(bundle))
    if not certificates:
        raise ConfigError(f"{origin}: certificate-authority contains no PEM certificate")
    return certificates.decode("ascii", "replace")


def _no_password() -> bytes:
    """Prevent a password prompt of OpenSSL; kubeconfigs do not support encrypted keys."""
    raise ValueError("the key is encrypted; use an unencrypted key")


_REREAD_AFTER = 60.0
"""Seconds; a projected service account token is renewed long before it expires, clients are to reread it once a minute
(https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/)."""


class AuthorizationSource(Protocol):
    """Source of the `Authorization` header."""

    async def authorization(self) -> str:
        """Return the header's value, renewed if it is due; empty for none.

        Raises ApiUnavailableError if a token is not available now, ConfigError if it never will be.
        """
        ...

    def forget(self) -> None:
        """Renew the token before its next use, because the API server refused it."""
        ...


class FixedAuthorization:
    """A token or password of the kubeconfig, or none."""

    def __init__(self, user: Mapping[str, Any]) -> None:
        self._value = ""
        if user.get("token"):
            self._value = f"Bearer {str(user['token']).strip()}"
        elif user.get("username"):
            pair = f"{user['username']}:{user.get('password') or ''}"
            self._value = "Basic " + base64.b64encode(pair.encode()).decode()

    async def authorization(self) -> str:
        """Return the header's value."""
        return self._value

    def forget(self) -> None:
        """Do nothing: there is no other value."""


class TokenFile:
    """A file that another process renews, such as the kubelet for a service account."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._value = ""
        self._read_at = float("-inf")

    async def authorization(self) -> str:
        """Return the file's content, at most a minute old. If the file is missing, the last content is used."""
        if time.monotonic() - self._read_at < _REREAD_AFTER:
            return self._value
        try:
            token = (await asyncio.to_thread(self._path.read_text, encoding="utf-8")).strip()
        except (OSError, UnicodeDecodeError) as error:
            if self._value:
                return self._value
            raise ApiUnavailableError(f"{self._path}: the token cannot be read: {error}") from error
        if not token and not self._value:
            raise ApiUnavailableError(f"{self._path}: the token file is empty")
        if token:
            self._value = f"Bearer {token}"
            self._read_at = time.monotonic()
        return self._value

    def forget(self) -> None:
        """Read the file again next time."""
        self._read_at = float("-inf")
