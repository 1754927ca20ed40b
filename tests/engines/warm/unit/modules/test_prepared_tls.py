"""A default TLS context that was made before is given away only where a new one would be the same."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from runner.engines.warm.modules import libraries


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """The contexts that are made from now on; two are made before."""
    authorities = tmp_path / "authorities.pem"
    authorities.touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(authorities))
    seen: list[Any] = []
    make = ssl.create_default_context

    def noted(*args: Any, **kwargs: Any) -> ssl.SSLContext:
        seen.append((args, kwargs))
        return make() if not args and not any(kwargs.values()) else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    monkeypatch.setattr(ssl, "create_default_context", noted)
    monkeypatch.setattr(ssl, "_create_default_https_context", noted)
    libraries.prepare_tls()
    seen.clear()
    return seen


def test_each_context_is_given_once_also_to_connections_of_http_client(made: list[Any]) -> None:
    names: Any = ssl
    first, second = ssl.create_default_context(cafile=None), names._create_default_https_context()
    assert made == [], "they were created in advance"
    assert (first.verify_mode, first.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert ssl.create_default_context() not in {first, second}
    assert made == [((), {})]
    assert first is not second


@pytest.mark.parametrize(
    "given", [{"cadata": "authority"}, {"purpose": ssl.Purpose.CLIENT_AUTH}, {"cafile": "authorities.pem"}]
)
def test_a_context_with_other_arguments_is_a_new_one(given: dict[str, Any], made: list[Any]) -> None:
    ssl.create_default_context(**given)
    assert made == [((), given)]


@pytest.mark.parametrize("changed", ["SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE", "authorities"])
def test_a_changed_variable_or_authority_needs_a_new_context(
    changed: str, made: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if changed == "authorities":
        (tmp_path / "authorities.pem").write_text("\n", encoding="ascii")
    else:
        monkeypatch.setenv(changed, str(tmp_path / "other"))
    ssl.create_default_context()
    assert made == [((), {})]
