from __future__ import annotations

import socket
import ssl

import pytest

from runner.devcluster.api import Api


@pytest.fixture
def nobody() -> Api:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return Api(port, ssl.create_default_context())


def test_a_server_that_does_not_listen_is_not_ready(nobody: Api) -> None:
    assert not nobody.ready()


def test_of_a_server_that_does_not_listen_nothing_is_known(nobody: Api) -> None:
    assert nobody.get("/api/v1/nodes") is None
    assert not nobody.exists("/api/v1/nodes")
