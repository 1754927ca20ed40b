"""What tests of hosts share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.features.hosts.integration.lending import Lend, lending
from tests.kit import ssh_hosts
from tests.kit.objects import Api


@pytest.fixture
def network(tmp_path: Path) -> Iterator[ssh_hosts.Network]:
    """A network of its own, in which the test starts hosts."""
    with ssh_hosts.running(tmp_path / "network") as network:
        yield network


@pytest.fixture
def lend(api: Api, namespace: str) -> Lend:
    return lending(api, namespace)
