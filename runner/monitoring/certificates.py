"""The certificate that metrics are served with: given as files, or made at start.

Owns: reading given files again when they change, so that a renewed certificate comes into use without a restart; new
connections get it, those that are open go on. A pair that cannot be used while it is being replaced leaves the last
one in use. A made one is self-signed, of this process alone, and never written where somebody could take it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import socket
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from runner import log
from runner.errors import ConfigError

_LOOK_INTERVAL = 2.0
_VALID = dt.timedelta(days=3650)
"""Longer than any pod lives: nobody checks who signed it, so its end would protect from nothing."""
_BACKDATED = dt.timedelta(minutes=5)
_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class Files:
    """A certificate (with those that lead to its authority) and its key, both PEM."""

    certificate: Path
    key: Path

    def read(self) -> tuple[bytes, bytes]:
        """Return both. A ConfigError names the one that cannot be read."""
        return _read(self.certificate), _read(self.key)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"--metrics-cert-path: {path}: {error.strerror}; name a folder that holds certificate and key, or leave "
            "the flag out to have one made"
        ) from error


class Certificates:
    """What a server shows to its clients."""

    def __init__(self, files: Files | None) -> None:
        """`files`: None has a certificate made. A ConfigError says why those that are given cannot be used."""
        self._files = files
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        """What a server is started with; it changes when the files do."""
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._loaded = files.read() if files else _made(socket.gethostname())
        try:
            _load(self.context, *self._loaded)
        except (ssl.SSLError, ValueError) as error:
            where = f"{files.certificate} and {files.key}" if files else "the certificate that was made"
            raise ConfigError(f"--metrics-cert-path: {where}: no certificate with its key, in PEM: {error}") from error

    async def follow(self) -> None:
        """Look for changes for ever."""
        while self._files is not None:
            await asyncio.sleep(_LOOK_INTERVAL)
            found = await asyncio.to_thread(self._changed)
            if found is not None:
                # Here, not in the thread: connections are being made with it in the event loop.
                _load(self.context, *found)
                self._loaded = found
                _log.info("Metrics are served with a renewed certificate")

    def _changed(self) -> tuple[bytes, bytes] | None:
        """Return what the files hold when it is something else that can be used."""
        try:
            found = self._files.read() if self._files else self._loaded
            if found == self._loaded:
                return None
            _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), *found)
        except (ConfigError, ssl.SSLError, ValueError) as error:
            _log.debug("The certificate for metrics cannot be used as it is now; the last one is", error=str(error))
            return None
        return found


def _load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a pair. The module takes files only, so it stands in one that nobody else may open, and only meanwhile."""
    handle, name = tempfile.mkstemp()
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(certificate + b"\n" + key)
        context.load_cert_chain(name)
    finally:
        Path(name).unlink()


def _made(host: str) -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host), x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
