"""TLS certificate of the metrics endpoint: from files, or self-signed at start.

Changed files are reloaded without a restart: new connections use the new certificate. An invalid pair of files, as
during a renewal, leaves the last one in use. The key of a self-signed certificate is never left on disk.
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

from runner.base import log, pki
from runner.values.errors import ConfigError

_POLL_INTERVAL = 2.0
_VALID = dt.timedelta(days=3650)
"""Longer than the life of a pod: clients do not verify the certificate, so expiry has no benefit."""
_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Files of a certificate chain and its key, both PEM."""

    certificate: Path
    key: Path

    def read(self) -> tuple[bytes, bytes]:
        """Return the contents. Raises ConfigError."""
        return _read(self.certificate), _read(self.key)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"--metrics-cert-path: {path}: {error.strerror}; use a folder with certificate and key, or remove the "
            "flag for a self-signed certificate"
        ) from error


class Certificates:
    """TLS context of a server."""

    def __init__(self, files: CertificateFiles | None) -> None:
        """`files`: None means self-signed. Raises ConfigError if the files are invalid."""
        self._files = files
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        """Context for the server; it changes with the files."""
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._loaded = files.read() if files else _self_signed(socket.gethostname())
        try:
            load(self.context, *self._loaded)
        except (ssl.SSLError, ValueError) as error:
            where = f"{files.certificate} and {files.key}" if files else "self-signed certificate"
            raise ConfigError(f"--metrics-cert-path: {where}: not a PEM certificate with its key: {error}") from error

    async def follow(self) -> None:
        """Reload changed files until canceled."""
        while self._files is not None:
            await asyncio.sleep(_POLL_INTERVAL)
            pair = await asyncio.to_thread(self._changed)
            if pair is not None:
                # Not in the thread: the event loop accepts connections with this context.
                load(self.context, *pair)
                self._loaded = pair
                _log.info("Reloaded the certificate of metrics")

    def _changed(self) -> tuple[bytes, bytes] | None:
        """Return the contents of the files if they changed and are valid."""
        try:
            pair = self._files.read() if self._files else self._loaded
            if pair == self._loaded:
                return None
            load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), *pair)
        except (ConfigError, ssl.SSLError, ValueError) as error:
            _log.debug("Cannot load the certificate of metrics, using the previous one", error=str(error))
            return None
        return pair


def load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a PEM pair. The ssl module reads files only, so it is in a private temporary file meanwhile."""
    handle, name = tempfile.mkstemp()
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(certificate + b"\n" + key)
        context.load_cert_chain(name)
    finally:
        Path(name).unlink()


def _self_signed(host: str) -> tuple[bytes, bytes]:
    pair = pki.self_signed(host[:64], (host, "localhost"), _VALID)
    return pair.certificate, pair.key
