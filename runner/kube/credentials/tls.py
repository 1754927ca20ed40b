"""TLS contexts from the certificates of a kubeconfig.

Promises: keys are on disk only for a moment, in a private directory. Must not import: anything that talks to a cluster.
"""

from __future__ import annotations

import base64
import binascii
import re
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.errors import ConfigError

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def context(cluster: Mapping[str, Any], user: Mapping[str, Any], origin: str) -> ssl.SSLContext | None:
    """Build the context for a kubeconfig's cluster and user; None for a server without TLS."""
    if not str(cluster["server"]).startswith("https://"):
        return None
    made = ssl.create_default_context(cadata=_authorities(cluster, origin))
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
    with tempfile.TemporaryDirectory(prefix="ansible-operator-") as folder:
        # The ssl module reads keys from files only.
        pair = Path(folder) / "pair.pem"
        pair.touch(0o600)
        pair.write_bytes(certificate + b"\n" + key)
        try:
            made.load_cert_chain(pair, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
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
    found = b"\n".join(_CERTIFICATE.findall(bundle))
    if not found:
        raise ConfigError(f"{origin}: certificate-authority contains no PEM certificate")
    return found.decode("ascii", "replace")


def _no_password() -> bytes:
    """Prevent a password prompt of OpenSSL; kubeconfigs do not support encrypted keys."""
    raise ValueError("the key is encrypted; use an unencrypted key")
