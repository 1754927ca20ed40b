from __future__ import annotations

import socket
import ssl

import pytest

from runner.sdk.devcluster.api import Api


@pytest.fixture
def unreachable() -> Api:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return Api(port, ssl.create_default_context())


def test_a_server_that_does_not_listen_is_not_ready(unreachable: Api) -> None:
    assert not unreachable.ready()


def test_a_server_that_does_not_listen_has_no_objects(unreachable: Api) -> None:
    assert unreachable.get("/api/v1/nodes") is None
    assert not unreachable.exists("/api/v1/nodes")
