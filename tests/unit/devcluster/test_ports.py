from __future__ import annotations

import socket

import pytest

from runner.sdk.devcluster import ports
from runner.values.errors import ClusterError
from tests.kit.wait import patience


@pytest.fixture
def taken() -> socket.socket:
    holder = socket.socket()
    holder.bind((ports.LOOPBACK, 0))
    return holder


def test_a_reserved_port_is_never_given_twice() -> None:
    reserved = [ports.reserve() for _ in range(50)]
    try:
        assert len({port.number for port in reserved}) == 50
    finally:
        for port in reserved:
            port.close()


def test_a_server_that_shares_can_listen_on_a_reserved_port() -> None:
    reserved = ports.reserve()
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind((ports.LOOPBACK, reserved.number))
        server.listen()
        with socket.create_connection((ports.LOOPBACK, reserved.number), timeout=patience()):
            pass
    reserved.close()


def test_a_reserved_port_cannot_be_bound_again() -> None:
    reserved = ports.reserve()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((ports.LOOPBACK, reserved.number))
    reserved.close()


def test_a_reserved_port_without_its_server_refuses_connections() -> None:
    reserved = ports.reserve()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((ports.LOOPBACK, reserved.number), timeout=patience())
    reserved.close()


def test_a_closed_port_is_free_again() -> None:
    reserved = ports.reserve()
    reserved.close()
    with socket.socket() as other:
        other.bind((ports.LOOPBACK, reserved.number))


def test_a_probed_port_can_be_bound() -> None:
    with socket.socket() as server:
        server.bind((ports.LOOPBACK, ports.probe()))


def test_reserved_ports_are_outside_of_the_range_of_outgoing_connections() -> None:
    reserved = ports.reserve()
    assert ports.FIRST <= reserved.number <= ports.LAST < 32_768
    reserved.close()


def test_if_all_ports_are_taken_the_error_names_the_command_to_run(
    monkeypatch: pytest.MonkeyPatch,
    taken: socket.socket,
) -> None:
    number = taken.getsockname()[1]
    monkeypatch.setattr(ports, "candidates", lambda _dice: iter([number]))
    with taken, pytest.raises(ClusterError, match="cluster status"):
        ports.reserve()
