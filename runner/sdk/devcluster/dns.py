"""DNS server of a cluster with a real node: names of Services and their pods.

Runs as `python -P -m runner.sdk.devcluster.dns ADDRESS PORT` in the cluster's folder, and listens on ADDRESS. For each
question it reads from the API server on PORT, so that answers are never stale. It serves the records of the DNS
specification of Kubernetes (https://github.com/kubernetes/dns/blob/master/docs/specification.md), except those of IP
addresses. All other names do not exist, because nothing outside of the cluster is reachable.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socketserver
import struct
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from runner.sdk.devcluster.api import Api
from runner.sdk.devcluster.node import DOMAIN

A, CNAME, SRV = 1, 5, 33
NO_ERROR, MALFORMED, FAILURE, NO_NAME = 0, 1, 2, 3
_INTERNET = 1
_TTL = 5
_HEADER = struct.Struct(">HHHHHH")
_RESPONSE, _AUTHORITATIVE, _OPERATION, _DESIRED = 0x8000, 0x0400, 0x7800, 0x0100
_POINTER = 0xC0
_UDP_SIZE = 512
_PORT = 53


class Lookup(Protocol):
    """Source of objects."""

    def __call__(self, path: str, /) -> Any:
        """Return the object, None if it does not exist. Raises OSError if the API server does not answer."""


@dataclass(frozen=True, slots=True)
class Record:
    """An answer: its name, type and data."""

    name: str
    type: int
    data: bytes


class Names:
    """Names of Services, from the API."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def find(self, name: str) -> list[Record] | None:
        """Return all records of a name; None if it does not exist."""
        suffix = f".svc.{DOMAIN}"
        if not name.endswith(suffix):
            return None
        match name.removesuffix(suffix).split("."):
            case [service, namespace]:
                return self._service(name, namespace, service)
            case [host, service, namespace]:
                return self._addresses(name, namespace, service, host) or None
            case [port, protocol, service, namespace] if port[:1] == protocol[:1] == "_":
                return self._port(name, namespace, service, (port[1:], protocol[1:]))
            case _:
                return None

    def _service(self, name: str, namespace: str, service: str) -> list[Record] | None:
        obj = self._lookup(f"/api/v1/namespaces/{namespace}/services/{service}")
        if obj is None:
            return None
        spec = obj["spec"]
        if spec.get("type") == "ExternalName":
            return [Record(name, CNAME, encode(spec["externalName"]))]
        if spec.get("clusterIP") == "None":
            return self._addresses(name, namespace, service)
        return [Record(name, A, ipaddress.ip_address(spec["clusterIP"]).packed)]

    def _addresses(self, name: str, namespace: str, service: str, host: str = "") -> list[Record]:
        addresses = [
            address
            for endpoint in self._endpoints(namespace, service)
            if not host or endpoint.get("hostname") == host
            for address in endpoint["addresses"]
        ]
        return [Record(name, A, ipaddress.ip_address(address).packed) for address in sorted(set(addresses))]

    def _endpoints(self, namespace: str, service: str) -> Iterator[Any]:
        selector = f"labelSelector=kubernetes.io%2Fservice-name%3D{service}"
        slices = self._lookup(f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?{selector}")
        obj = self._lookup(f"/api/v1/namespaces/{namespace}/services/{service}")
        publishes = bool(obj and obj["spec"].get("publishNotReadyAddresses"))
        for endpoint_slice in slices["items"] if slices else ():
            for endpoint in endpoint_slice.get("endpoints") or ():
                if publishes or endpoint.get("conditions", {}).get("ready", True):
                    yield endpoint

    def _port(self, name: str, namespace: str, service: str, name_and_protocol: tuple[str, str]) -> list[Record] | None:
        obj = self._lookup(f"/api/v1/namespaces/{namespace}/services/{service}")
        ports = obj["spec"].get("ports", []) if obj else []
        target = encode(f"{service}.{namespace}.svc.{DOMAIN}")
        return [
            Record(name, SRV, struct.pack(">HHH", 0, 100, port["port"]) + target)
            for port in ports
            if (port.get("name"), port.get("protocol", "TCP").lower()) == name_and_protocol
        ] or None


def answer(request: bytes, names: Names) -> bytes:
    """Return the response to a message, see RFC 1035, section 4."""
    try:
        identity, flags, questions, *_ = _HEADER.unpack_from(request)
        if flags & _RESPONSE or flags & _OPERATION or questions != 1:
            return _response(identity, flags, MALFORMED)
        name, end = decode(request, _HEADER.size)
        record_type, network = struct.unpack_from(">HH", request, end)
    except (struct.error, IndexError, UnicodeDecodeError):
        return _response(int.from_bytes(request[:2], "big"), 0, MALFORMED)
    question = request[_HEADER.size : end + 4]
    try:
        records = names.find(name.lower()) if network == _INTERNET else None
    except OSError as error:
        sys.stderr.write(f"{name}: the API server does not answer: {error}\n")
        return _response(identity, flags, FAILURE, question)
    if records is None:
        return _response(identity, flags, NO_NAME, question)
    matching = [record for record in records if record.type in {record_type, CNAME}]
    return _response(identity, flags, NO_ERROR, question, matching)


def _response(identity: int, flags: int, code: int, question: bytes = b"", records: Sequence[Record] = ()) -> bytes:
    kept = flags & (_OPERATION | _DESIRED)
    message = _HEADER.pack(identity, _RESPONSE | _AUTHORITATIVE | kept | code, 1 if question else 0, len(records), 0, 0)
    message += question
    for record in records:
        fields = struct.pack(">HHIH", record.type, _INTERNET, _TTL, len(record.data))
        message += encode(record.name) + fields + record.data
    return message


def encode(name: str) -> bytes:
    """Return a name as labels with their lengths."""
    labels = [label.encode("ascii") for label in name.rstrip(".").split(".")]
    return b"".join(bytes((len(label),)) + label for label in labels) + b"\0"


def decode(message: bytes, start: int) -> tuple[str, int]:
    """Return the name at `start`, and the position after it. Raises IndexError or UnicodeDecodeError."""
    labels = []
    while length := message[start]:
        if length & _POINTER or start + length >= len(message):
            raise IndexError("a question has no compressed name")
        labels.append(message[start + 1 : start + 1 + length].decode("ascii"))
        start += 1 + length
    return ".".join(labels), start + 1


class _Datagrams(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        """Answer one datagram; a long answer is truncated, so that the client repeats it by TCP."""
        data, sender = self.request
        response = answer(data, _names(self.server))
        if len(response) > _UDP_SIZE:
            response = truncated(response)
        sender.sendto(response, self.client_address)


class _Streams(socketserver.StreamRequestHandler):
    timeout = 10

    def handle(self) -> None:
        """Answer the messages of one connection."""
        with contextlib.suppress(OSError):
            while len(head := self.rfile.read(2)) == struct.calcsize(">H"):
                response = answer(self.rfile.read(*struct.unpack(">H", head)), _names(self.server))
                self.wfile.write(struct.pack(">H", len(response)) + response)


def truncated(message: bytes) -> bytes:
    """Return a response without records, and with the flag that they are missing."""
    identity, flags, questions, *_ = _HEADER.unpack_from(message)
    _, end = decode(message, _HEADER.size)
    head = _HEADER.pack(identity, flags | 0x0200, questions, 0, 0, 0)
    return head + message[_HEADER.size : end + 4]


class _UdpServer(socketserver.ThreadingUDPServer):
    daemon_threads = True
    names: Names


class _TcpServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    names: Names


def _names(server: socketserver.BaseServer) -> Names:
    names: Names = server.names  # type: ignore[attr-defined]
    return names


def main(address: str, port: int) -> None:
    """Serve UDP and TCP forever."""
    api = Api.from_run_folder(Path(), port)

    def lookup(path: str) -> Any:
        status, body = api.call("GET", path)
        if status not in {http.client.OK, http.client.NOT_FOUND, http.client.BAD_REQUEST}:
            raise OSError(f"status {status}")
        return body if status == http.client.OK else None

    names = Names(lookup)
    with _UdpServer((address, _PORT), _Datagrams) as datagrams, _TcpServer((address, _PORT), _Streams) as streams:
        datagrams.names = streams.names = names
        threading.Thread(target=streams.serve_forever, daemon=True).start()
        datagrams.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
