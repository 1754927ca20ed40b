"""Certificates of the port on which agents connect.

The operator has an authority of its own. Agents trust only this authority, so no other server can give them an order.
"""

from __future__ import annotations

import datetime as dt
import ssl
from collections.abc import Sequence

from runner.monitoring.certificates import load
from runner.pki import Authority, KeyPair
from runner.pods.agent import ALPN_HTTP, ALPN_LINK

_AUTHORITY = "ansible-operator pods authority"
_SERVER = "ansible-operator pods"
"""Different, because a certificate with its own name as issuer counts as self-signed."""
_VALID = dt.timedelta(days=3650)


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
    context.set_alpn_protocols([ALPN_LINK, ALPN_HTTP])
    context.num_tickets = 0  # agents do not resume TLS sessions
    load(context, certificate, key)
    return context
