r"""Secrets in Kubernetes protobuf. Pure.

Returns the fields with secret values as in JSON, with `data` as bytes. Sources:
`generated.proto` of k8s.io/api in core/v1, and of k8s.io/apimachinery in pkg/runtime and pkg/apis/meta/v1.
"""

from __future__ import annotations

from typing import Any

from runner.core.proxy.protobuf import RAW, TYPE_META, fields, octets, read_object, string, unknown

_KIND = 2
_DATA, _STRING_DATA, _ITEMS = 2, 4, 2
_EVENT_OBJECT, _EVENT_RAW = 2, 1
_LENGTH = 4
"""Bytes of the length prefix of each watch event."""


def read(data: bytes) -> Any:
    """Parse content. Raises ValueError."""
    parts = unknown(data)
    kind, raw = string(dict(fields(parts.get(TYPE_META, b""))).get(_KIND)), parts.get(RAW, b"")
    if kind == "Secret":
        return _secret(raw)
    if kind.endswith("List"):
        items = [octets(value) for number, value in fields(raw) if number == _ITEMS]
        return {"items": [_secret(item) for item in items]}
    return {}


def split(stream: bytes) -> tuple[list[Any], bytes]:
    """Split the complete events from a watch's content; return their objects and the remaining bytes."""
    objects = []
    while len(stream) >= _LENGTH:
        end = _LENGTH + int.from_bytes(stream[:_LENGTH], "big")
        if len(stream) < end:
            break
        event = dict(fields(stream[_LENGTH:end]))
        extension = dict(fields(octets(event.get(_EVENT_OBJECT, b""))))
        objects.append(read(octets(extension.get(_EVENT_RAW, b""))))
        stream = stream[end:]
    return objects, stream


def _secret(raw: bytes) -> dict[str, Any]:
    secret: dict[str, Any] = {**read_object(raw), "data": {}, "stringData": {}}
    for number, value in fields(raw):
        if number in {_DATA, _STRING_DATA}:
            entry = dict(fields(octets(value)))
            of_map = secret["data" if number == _DATA else "stringData"]
            of_map[string(entry.get(1))] = octets(entry.get(2, b""))
    return secret
