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


def test_only_a_server_that_shares_can_listen_on_a_reserved_port_until_it_is_closed() -> None:
    reserved = ports.reserve()
    assert ports.FIRST <= reserved.number <= ports.LAST < 32_768, "the kernel gives outgoing connections higher ones"
    address = (ports.LOOPBACK, reserved.number)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(address)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=patience())
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(address)
        server.listen()
        with socket.create_connection(address, timeout=patience()):
            pass
    reserved.close()
    with socket.socket() as other:
        other.bind(address)


def test_a_probed_port_can_be_bound() -> None:
    with socket.socket() as server:
        server.bind((ports.LOOPBACK, ports.probe()))


def test_if_all_ports_are_taken_the_error_names_the_command_to_run(
    monkeypatch: pytest.MonkeyPatch,
    taken: socket.socket,
) -> None:
    number = taken.getsockname()[1]
    monkeypatch.setattr(ports, "candidates", lambda _dice: iter([number]))
    with taken, pytest.raises(ClusterError, match="cluster status"):
        ports.reserve()
