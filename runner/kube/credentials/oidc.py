"""The kubeconfig's `auth-provider: oidc`: an ID token, renewed by a refresh token.

Owns the two requests of OpenID Connect (Discovery 1.0, section 4; Core 1.0, section 12). Promises: the login server's
certificate is always verified; renewed tokens are written to the kubeconfig, as kubectl does.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus

import aiohttp
import yaml

from runner import log
from runner.errors import ApiUnavailableError, ConfigError
from runner.kube.credentials import kubeconfig, tls
from runner.kube.credentials.kubeconfig import KubeConfig

_EARLY = 10.0
"""Seconds before the expiry at which a token is renewed."""
_TIMEOUT = aiohttp.ClientTimeout(total=30)
_log = log.get(__name__)


class OidcLogin:
    """Login at an OpenID Connect provider."""

    def __init__(self, config: KubeConfig) -> None:
        provider = config.user["auth-provider"]
        if provider.get("name") != "oidc":
            raise ConfigError(
                f"{config.origin}: auth-provider {provider.get('name')!r} is not supported, as in kubectl; "
                "use the provider's credential plugin (exec)"
            )
        self._config = config
        self._settings: dict[str, Any] = dict(provider["config"])
        self._refused = False
        self._lock = asyncio.Lock()

    @property
    def token(self) -> str:
        """Current ID token; empty before the first."""
        return str(self._settings.get("id-token") or "")

    async def authorization(self) -> str:
        """Return the ID token, renewed if it expires within seconds or was refused."""
        async with self._lock:
            if self._refused or time.time() >= _expiry(self.token) - _EARLY:
                await self._renew()
        return f"Bearer {self.token}"

    def forget(self) -> None:
        """Renew the token before its next use."""
        self._refused = True

    async def _renew(self) -> None:
        issuer = str(self._settings.get("idp-issuer-url") or "").rstrip("/")
        if not self._settings.get("refresh-token") or not issuer:
            raise ApiUnavailableError(
                f"{self._config.origin}: the ID token has expired and cannot be renewed; log in again"
            )
        try:
            tokens = await self._request(issuer)
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError) as error:
            raise ApiUnavailableError(f"{issuer}: the ID token cannot be renewed: {error!r}; log in again") from error
        self._settings.update(tokens)
        self._refused = False
        await asyncio.to_thread(self._save, tokens)

    async def _request(self, issuer: str) -> dict[str, str]:
        client_id, secret = str(self._settings["client-id"]), str(self._settings.get("client-secret") or "")
        form = {"grant_type": "refresh_token", "refresh_token": str(self._settings["refresh-token"])}
        headers: dict[str, str] = {}
        if secret:
            # RFC 6749, section 2.3.1
            pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        else:
            form["client_id"] = client_id
        connector = aiohttp.TCPConnector(ssl=self._tls())
        async with aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT, raise_for_status=True) as session:
            async with session.get(f"{issuer}/.well-known/openid-configuration") as answer:
                endpoint = str((await answer.json())["token_endpoint"])
            async with session.post(endpoint, data=form, headers=headers) as answer:
                found: Mapping[str, str] = await answer.json()
        tokens = {"id-token": found["id_token"]}
        if found.get("refresh_token"):
            tokens["refresh-token"] = found["refresh_token"]
        return tokens

    def _tls(self) -> ssl.SSLContext:
        bundle = tls.decode(self._settings, "idp-certificate-authority", self._config.origin)
        return ssl.create_default_context(cadata=bundle.decode("ascii", "replace") if bundle else None)

    def _save(self, tokens: Mapping[str, str]) -> None:
        if self._config.user_file is None:
            return
        try:
            kubeconfig.save_tokens(self._config.user_file, self._config.user_name, tokens)
        except (OSError, ConfigError, yaml.YAMLError, KeyError, TypeError) as error:
            _log.warning(
                "Cannot write renewed tokens to the kubeconfig; other programs may have to log in again",
                kubeconfig=str(self._config.user_file),
                error=str(error),
            )


def _expiry(token: str) -> float:
    """Return the expiry of a JSON Web Token (RFC 7519, `exp`); 0 if it is invalid."""
    try:
        claims = token.split(".")[1]
        decoded = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        return float(decoded.get("exp", float("inf")))
    except (IndexError, ValueError, TypeError, AttributeError):
        return 0.0
