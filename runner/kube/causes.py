"""Causes of failed connections, in words for users. Pure."""

from __future__ import annotations

import errno
import os
import socket
import ssl

import aiohttp

_NETWORK = "check the network, firewalls, and the proxy variables of the environment"


def cause(error: BaseException) -> str:
    """Return why a connection failed, without types and representations of Python."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            text = _certificate(error.certificate_error)
        case aiohttp.ClientConnectorDNSError():
            text = "the host name cannot be resolved"
        case aiohttp.ClientProxyConnectionError():
            text = f"no connection to the proxy: {_system(error.os_error)}"
        case aiohttp.ClientConnectorError():
            text = _certificate(error.os_error) if isinstance(error.os_error, ssl.SSLError) else _system(error.os_error)
        case aiohttp.ServerDisconnectedError():
            text = "the server closed the connection"
        case aiohttp.ClientHttpProxyError():
            text = f"the proxy rejects the connection: {error.message} (HTTP {error.status})"
        case OSError():
            text = _system(error)
        case _:
            text = str(error) or type(error).__name__
    return text


def advice(error: BaseException | None) -> str:
    """Return the next step after a failed connection."""
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return "check the server's address and certificate-authority in the credentials"
        case aiohttp.ClientConnectorDNSError():
            return "check the server's address in the credentials, and the DNS"
        case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
            return "check proxy-url in the credentials, and the proxy variables of the environment"
        case aiohttp.ClientConnectorError() if error.os_error.errno == errno.ECONNREFUSED:
            return "check that the API server runs, and the server's address in the credentials"
        case None:
            return "see the error"
        case _:
            return _NETWORK


def _certificate(error: Exception) -> str:
    verification = getattr(error, "verify_message", "")
    return f"the certificate is not accepted: {verification or getattr(error, 'reason', '') or error}"


def _system(error: OSError) -> str:
    """Return the system's text: asyncio replaces it by one with a tuple of Python."""
    if isinstance(error, socket.gaierror) or not error.errno or error.errno < 0:
        return error.strerror or str(error)
    return os.strerror(error.errno).lower()
