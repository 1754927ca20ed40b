"""A small DNS service with an HTTP API, to try and test the operator with: its API is real, names it answers none.

`PUT`, `GET` and `DELETE` of `/zones/ZONE/records/HOST/TYPE` set, read and remove what a name stands for. Each request
brings `Authorization: Bearer TOKEN`. Records live in a file, so that they outlast the server; each request is a line in
another.
"""

# ruff: noqa: INP001 - a program of its own, in no package

from __future__ import annotations

import argparse
import hmac
import ipaddress
import json
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import unquote

Answer = tuple[HTTPStatus, dict[str, Any] | None]

_TOO_LONG = 60
"""Seconds of silence after which a connection is given up."""


class RefusedError(Exception):
    """A request that cannot be served: its status, and a sentence for the client."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class Records:
    """Zones and their records, kept in `folder`; whoever changes one holds the lock."""

    def __init__(self, folder: Path, zones: list[str]) -> None:
        self.lock = Lock()
        self._zones = frozenset(zones)
        self._file = folder / "records.json"
        self._log = folder / "requests.log"
        self._records: dict[str, dict[str, Any]] = (
            json.loads(self._file.read_text(encoding="utf-8")) if self._file.exists() else {}
        )

    def note(self, method: str, path: str, status: HTTPStatus) -> None:
        """Write a line about a request."""
        with self._log.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"method": method, "path": path, "status": int(status)}) + "\n")

    def get(self, key: str) -> Answer:
        """Return a record by `ZONE/HOST/TYPE`. Raises RefusedError."""
        if key not in self._records:
            raise RefusedError(HTTPStatus.NOT_FOUND, f"no record {key}")
        return HTTPStatus.OK, self._records[key]

    def put(self, key: str, wanted: Any) -> Answer:
        """Make or change a record. Raises RefusedError."""
        zone, _, kind = key.split("/")
        if zone not in self._zones:
            raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, f"no zone {zone}")
        record = _checked(kind, wanted)
        status = HTTPStatus.OK if key in self._records else HTTPStatus.CREATED
        self._records[key] = record
        self._save()
        return status, record

    def delete(self, key: str) -> Answer:
        """Remove a record. Raises RefusedError."""
        self.get(key)
        del self._records[key]
        self._save()
        return HTTPStatus.NO_CONTENT, None

    def _save(self) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self._records, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        new.replace(self._file)


def _checked(kind: str, wanted: Any) -> dict[str, Any]:
    """Return the record that is wanted, of known fields only. Raises RefusedError for what no name can stand for."""
    match wanted:
        case {"values": [str(), *_] as values, "ttl": int() as ttl, "owner": str() as owner}:
            for value in values:
                _check_value(kind, value)
            return {"values": values, "ttl": ttl, "owner": owner}
    raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, "a record has values, ttl and owner")


def _check_value(kind: str, value: object) -> None:
    versions = {"A": ipaddress.IPv4Address, "AAAA": ipaddress.IPv6Address}
    if kind in versions:
        try:
            versions[kind](str(value))
        except ValueError:
            why = f"{value} is no address that {kind} can hold"
            raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, why) from None


class Handler(BaseHTTPRequestHandler):
    """Serves the requests of one connection."""

    protocol_version = "HTTP/1.1"
    timeout = _TOO_LONG
    records: Records
    token: Path

    def do_GET(self) -> None:
        """Say what a name stands for."""
        self._serve()

    def do_PUT(self) -> None:
        """Set what a name stands for."""
        self._serve()

    def do_DELETE(self) -> None:
        """Remove a record."""
        self._serve()

    def log_message(self, *_args: object) -> None:
        """Say nothing: requests.log tells of each request."""

    def _serve(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.records.lock:
            try:
                status, body = self._answer(content)
            except RefusedError as refused:
                status, body = refused.status, {"error": str(refused)}
            self.records.note(self.command, self.path, status)
        self._send(status, body)

    def _answer(self, content: bytes) -> Answer:
        # Read each time, so that a token can be replaced while the server runs.
        expected = f"Bearer {self.token.read_text(encoding='utf-8').strip()}"
        if not hmac.compare_digest(self.headers.get("Authorization", "").encode(), expected.encode()):
            raise RefusedError(HTTPStatus.UNAUTHORIZED, "the token is not known")
        match [unquote(part) for part in self.path.split("/")]:
            case ["", "zones", zone, "records", host, kind]:
                return self._of_record(f"{zone}/{host}/{kind}", content)
        raise RefusedError(HTTPStatus.NOT_FOUND, f"nothing is at {self.path}")

    def _of_record(self, key: str, content: bytes) -> Answer:
        if self.command == "GET":
            return self.records.get(key)
        if self.command == "DELETE":
            return self.records.delete(key)
        try:
            wanted = json.loads(content)
        except ValueError:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "the record is not JSON") from None
        return self.records.put(key, wanted)

    def _send(self, status: HTTPStatus, body: dict[str, Any] | None) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        if body is not None:
            self.send_header("Content-Type", "application/json")
        if status != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class Server(ThreadingHTTPServer):
    """A thread for each connection; a new server may take the port of one that ends."""

    allow_reuse_port = True
    daemon_threads = True


def main() -> None:
    """Serve until somebody ends it; the first line that is printed is the address."""
    parser = argparse.ArgumentParser(description="A small DNS service with an HTTP API.")
    parser.add_argument("--port", type=int, default=8053, help="on loopback; 0: any that is free [8053]")
    parser.add_argument("--folder", type=Path, required=True, help="where records.json and requests.log are kept")
    parser.add_argument("--token-file", type=Path, required=True, help="holds the token that requests must bring")
    parser.add_argument("--zone", action="append", required=True, help="a zone that it serves; repeatable")
    options = parser.parse_args()
    handler = type("BoundHandler", (Handler,), {})
    handler.records, handler.token = Records(options.folder, options.zone), options.token_file
    with Server(("127.0.0.1", options.port), handler) as server:
        sys.stdout.write(f"http://127.0.0.1:{server.server_address[1]}\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    main()
