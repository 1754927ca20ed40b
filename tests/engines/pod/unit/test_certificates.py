"""Certificates of the port, which are renewed while the operator runs."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from runner.agent import frames
from runner.base.pki import Authority, expiry
from runner.engines.pod import certificates
from runner.engines.pod.certificates import Certificates
from runner.engines.pod.setup import _issued
from runner.values.errors import ConfigError
from tests.kit.agents import NAME, Operator, Pod
from tests.kit.wait import until

DAY = dt.timedelta(days=1)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.passed = dt.timedelta()

    def __call__(self) -> dt.datetime:
        return certificates.now() + self.passed


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def issued(authority: tuple[bytes, bytes], clock: Clock) -> Certificates:
    return Certificates(authority, [NAME], clock)


def test_an_invalid_authority_is_an_error_that_names_its_secret() -> None:
    with pytest.raises(ConfigError, match=r"shop-pods-ca: invalid ca.crt or ca.key \(.*\); delete it"):
        _issued((b"no certificate", b"no key"), "shop-pods-ca")


@pytest.fixture
async def operator(tmp_path: Path, issued: Certificates) -> AsyncIterator[Operator]:
    made = Operator(tmp_path, issued.context, issued.authority.encode())
    await made.start()
    yield made
    await made.links.close()


async def _served(port: int, authority: str) -> bytes:
    """Return the certificate that a new connection gets; it must be valid for this authority."""
    context = ssl.create_default_context(cadata=authority)
    context.set_alpn_protocols([frames.ALPN_HTTP])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=NAME)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return found


async def test_new_connections_get_a_renewed_certificate_and_older_ones_remain(
    operator: Operator, issued: Certificates, clock: Clock, pod: Callable[..., Pod]
) -> None:
    link = operator.open()
    pod()
    await until(lambda: link.is_connected)
    first = await _served(operator.port, issued.authority)
    clock.passed = 200 * DAY
    issued.renew()
    assert await _served(operator.port, issued.authority) == first
    clock.passed = 300 * DAY
    issued.renew()
    assert await _served(operator.port, issued.authority) != first
    assert (link.connects, link.is_connected) == (1, True)


async def test_an_authority_is_renewed_and_agents_with_the_older_certificate_still_connect(
    clock: Clock, pod: Callable[..., Pod], tmp_path: Path
) -> None:
    pair = Authority.create("ansible-operator pods authority", 800 * DAY).pair
    issued = Certificates((pair.certificate, pair.key), [NAME], clock)
    older = issued.authority
    assert older == pair.certificate.decode()
    clock.passed = 100 * DAY
    issued.renew()
    assert issued.authority != older
    assert expiry(issued.authority.encode()) > certificates.now() + 3000 * DAY
    assert issued.key == pair.key
    operator = Operator(tmp_path, issued.context, older.encode())
    await operator.start()
    try:
        link = operator.open()
        pod(operator.settings())
        await until(lambda: link.is_connected)
        newer = await _served(operator.port, issued.authority)
        clock.passed = 400 * DAY
        issued.renew()
        assert newer != await _served(operator.port, issued.authority)
        await _served(operator.port, older)
    finally:
        await operator.links.close()


def test_an_authority_that_was_stored_long_ago_is_renewed_at_start(clock: Clock) -> None:
    pair = Authority.create("ansible-operator pods authority", 30 * DAY).pair
    issued = Certificates((pair.certificate, pair.key), [NAME], clock)
    assert issued.authority != pair.certificate.decode()
    assert expiry(issued.authority.encode()) > certificates.now() + 3000 * DAY


@pytest.mark.virtual_time
async def test_certificates_are_renewed_while_the_operator_runs_also_after_an_error(
    issued: Certificates, clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    following = asyncio.create_task(issued.follow())
    before = issued._server
    clock.passed = 300 * DAY
    with monkeypatch.context() as broken:
        broken.setattr("tempfile.tempdir", str(tmp_path / "missing"))
        await asyncio.sleep(2 * 3600)
    assert issued._server == before
    await asyncio.sleep(3600)
    assert issued._server != before
    assert not following.done()
    following.cancel()
