from __future__ import annotations

import struct
from typing import Any

import pytest

from runner.sdk.devcluster import dns
from runner.sdk.devcluster.dns import CNAME, FAILURE, MALFORMED, NO_ERROR, NO_NAME, SRV, A, Names, answer

_AAAA = 28
_SERVICES = "/api/v1/namespaces/shop/services/"
_SLICES = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D"
_OBJECTS: dict[str, Any] = {
    f"{_SERVICES}web": {
        "spec": {
            "clusterIP": "10.96.0.7",
            "ports": [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}],
        }
    },
    f"{_SERVICES}db": {"spec": {"clusterIP": "None"}},
    f"{_SLICES}db": {
        "items": [
            {
                "endpoints": [
                    {"addresses": ["10.244.0.5"], "hostname": "db-1", "conditions": {"ready": True}},
                    {"addresses": ["10.244.0.4"], "hostname": "db-0"},
                    {"addresses": ["10.244.0.6"], "hostname": "db-2", "conditions": {"ready": False}},
                ]
            }
        ]
    },
    f"{_SERVICES}peers": {"spec": {"clusterIP": "None", "publishNotReadyAddresses": True}},
    f"{_SLICES}peers": {
        "items": [{"endpoints": [{"addresses": ["10.244.0.9"], "conditions": {"ready": False}}]}, {"endpoints": None}]
    },
    f"{_SERVICES}mirror": {"spec": {"type": "ExternalName", "externalName": "web.shop.svc.cluster.local"}},
}


def _question(name: str, kind: int = A) -> bytes:
    return struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + dns.encode(name) + struct.pack(">HH", kind, 1)


def _ask(name: str, kind: int = A) -> tuple[int, list[bytes]]:
    """Return the code and the data of the records."""
    request = _question(name, kind)
    made = answer(request, Names(_OBJECTS.get))
    identity, flags, questions, count, *_ = struct.unpack_from(">HHHHHH", made)
    assert (identity, questions, flags & 0x8100) == (7, 1, 0x8100)
    assert made[12 : len(request)] == request[12:]
    position, found = len(request), []
    for _ in range(count):
        owner, position = dns.decode(made, position)
        assert owner == name.lower()
        length = struct.unpack_from(">HHIH", made, position)[3]
        found.append(made[position + 10 : position + 10 + length])
        position += 10 + length
    assert position == len(made)
    return flags & 0xF, found


def _packed(*addresses: str) -> list[bytes]:
    return [bytes(map(int, address.split("."))) for address in addresses]


@pytest.mark.parametrize(
    ("name", "addresses"),
    [
        pytest.param("web.shop", ["10.96.0.7"], id="a service has its address"),
        pytest.param("db.shop", ["10.244.0.4", "10.244.0.5"], id="a headless service has those of its ready pods"),
        pytest.param("peers.shop", ["10.244.0.9"], id="a headless service can publish pods that are not ready"),
        pytest.param("db-1.db.shop", ["10.244.0.5"], id="a pod of a headless service has its host name"),
        pytest.param("Web.Shop", ["10.96.0.7"], id="letter case does not matter"),
    ],
)
def test_names_of_services_and_pods_have_addresses(name: str, addresses: list[str]) -> None:
    assert _ask(f"{name}.svc.cluster.local") == (NO_ERROR, _packed(*addresses))


def test_an_external_name_is_an_alias() -> None:
    expected = (NO_ERROR, [dns.encode("web.shop.svc.cluster.local")])
    assert _ask("mirror.shop.svc.cluster.local", A) == _ask("mirror.shop.svc.cluster.local", CNAME) == expected


def test_a_named_port_has_a_service_record() -> None:
    target = dns.encode("web.shop.svc.cluster.local")
    assert _ask("_http._tcp.web.shop.svc.cluster.local", SRV) == (NO_ERROR, [struct.pack(">HHH", 0, 100, 80) + target])
    assert _ask("_dns._udp.web.shop.svc.cluster.local", SRV) == (NO_ERROR, [struct.pack(">HHH", 0, 100, 53) + target])
    assert _ask("_http._udp.web.shop.svc.cluster.local", SRV) == (NO_NAME, [])


def test_a_name_without_records_of_the_type_exists() -> None:
    # A resolver that gets "no such name" for AAAA gives up on A too.
    assert _ask("web.shop.svc.cluster.local", _AAAA) == (NO_ERROR, [])


@pytest.mark.parametrize(
    "name",
    [
        "other.shop.svc.cluster.local",
        "db-2.db.shop.svc.cluster.local",
        "web.shop.svc.shop.svc.cluster.local",
        "svc.cluster.local",
        "example.com",
        "web.shop.svc.example.com",
    ],
)
def test_other_names_do_not_exist(name: str) -> None:
    assert _ask(name) == (NO_NAME, [])


def test_an_api_server_that_does_not_answer_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    def unreachable(_path: str) -> Any:
        raise ConnectionRefusedError("refused")

    made = answer(_question("web.shop.svc.cluster.local"), Names(unreachable))
    assert made[3] & 0xF == FAILURE
    assert "refused" in capsys.readouterr().err


@pytest.mark.parametrize(
    "request_",
    [
        b"",
        b"\0\7",
        _question("web.shop.svc.cluster.local")[:-1],
        _question("web.shop.svc.cluster.local")[:20],
        struct.pack(">HHHHHH", 7, 0, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1",
        struct.pack(">HHHHHH", 7, 0, 1, 0, 0, 0) + b"\1\xff\0\0\1\0\1",
        struct.pack(">HHHHHH", 7, 0, 0, 0, 0, 0),
        struct.pack(">HHHHHH", 7, 0x8000, 1, 0, 0, 0) + dns.encode("a.b") + b"\0\1\0\1",
    ],
)
def test_an_invalid_message_is_answered_with_an_error(request_: bytes) -> None:
    made = answer(request_, Names(_OBJECTS.get))
    assert len(made) == 12
    assert made[3] & 0xF == MALFORMED
    assert made[2] & 0x80


def test_a_long_answer_is_truncated_for_datagrams() -> None:
    objects = {
        **_OBJECTS,
        f"{_SLICES}db": {"items": [{"endpoints": [{"addresses": [f"10.244.0.{each}"]} for each in range(100)]}]},
    }
    full = answer(_question("db.shop.svc.cluster.local"), Names(objects.get))
    short = dns.truncated(full)
    assert len(full) > 512 > len(short)
    assert short[2] & 0x02
    assert short[12:] == _question("db.shop.svc.cluster.local")[12:]
