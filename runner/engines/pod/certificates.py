"""Certificates of the port on which agents connect.

The operator has an authority of its own. Agents trust only this authority, so no other server can give them an order.

Promises: a running operator renews both certificates before they expire. New connections use the new ones. The key of
the authority remains, so agents with its older certificate can connect until that expires.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from collections.abc import Callable, Sequence

from runner.agent.frames import ALPN_HTTP, ALPN_LINK, ALPN_METRICS
from runner.base import log
from runner.base.monitoring.certificates import load
from runner.base.pki import Authority, KeyPair, expiry

_AUTHORITY = "ansible-operator pods authority"
_SERVER = "ansible-operator pods"
"""Different, because a certificate with its own name as issuer counts as self-signed."""
_VALID = dt.timedelta(days=3650)
_SERVER_MARGIN = dt.timedelta(days=90)
"""Remaining validity at which the server's certificate is renewed."""
_AUTHORITY_MARGIN = dt.timedelta(days=730)
"""The same for the authority's. It is longer than a server's certificate is valid, and than a run takes."""
_CHECK_INTERVAL = 3600.0
_log = log.get(__name__)


def now() -> dt.datetime:
    """Return the time of the certificates' clock."""
    return dt.datetime.now(dt.UTC)


def make_authority() -> tuple[bytes, bytes]:
    """Return certificate and key of a new authority, both PEM. It expires after ten years."""
    pair = Authority.create(_AUTHORITY, _VALID).pair
    return pair.certificate, pair.key


def issue(authority: tuple[bytes, bytes], names: Sequence[str]) -> tuple[bytes, bytes]:
    """Return certificate and key of a server, both PEM, for these DNS names or IP addresses. It expires after a year.

    Raises ValueError if `authority` is not the result of `make_authority`.
    """
    pair = Authority.load(KeyPair(*authority)).issue(_SERVER, hosts=names)
    return pair.certificate, pair.key


def server_context(certificate: bytes, key: bytes) -> ssl.SSLContext:
    """Return the TLS context of the port. Both arguments are PEM. Raises ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([ALPN_LINK, ALPN_HTTP, ALPN_METRICS])
    context.num_tickets = 0  # agents do not resume TLS sessions
    load(context, certificate, key)
    return context


class Certificates:
    """Certificates of a running operator: that of the port, and that of the authority, which new runs get."""

    def __init__(
        self, authority: tuple[bytes, bytes], names: Sequence[str], clock: Callable[[], dt.datetime] = now
    ) -> None:
        """`authority` is the result of `make_authority`; `names` as for `issue`. Raises ValueError."""
        self._clock = clock
        self._names = names
        self._certificate, self._key = authority
        pair = issue(authority, names)
        self._server = pair[0]
        self.context = server_context(*pair)
        """TLS context of the port; it changes with the certificate."""
        self.renew()

    @property
    def authority(self) -> str:
        """Certificate of the authority, PEM."""
        return self._certificate.decode()

    @property
    def key(self) -> bytes:
        """Key of the authority, PEM. It remains the same."""
        return self._key

    def renew(self) -> None:
        """Renew the certificates that will expire."""
        if self._is_due(self._certificate, _AUTHORITY_MARGIN):
            old = Authority.load(KeyPair(self._certificate, self._key))
            self._certificate = old.renewed(_VALID).pair.certificate
            _log.info("Renewed the certificate of the authority for pods", expires=str(expiry(self._certificate)))
        if self._is_due(self._server, _SERVER_MARGIN):
            pair = issue((self._certificate, self._key), self._names)
            load(self.context, *pair)
            self._server = pair[0]
            _log.info("Renewed the certificate for pods", expires=str(expiry(self._server)))

    async def follow(self) -> None:
        """Renew until canceled. An error, such as of a full disk, has time until the next attempts."""
        while True:
            await asyncio.sleep(_CHECK_INTERVAL)
            try:
                self.renew()
            except OSError as error:
                _log.warning("Cannot renew the certificate for pods; retrying", error=str(error))

    def _is_due(self, certificate: bytes, margin: dt.timedelta) -> bool:
        return expiry(certificate) - self._clock() < margin
