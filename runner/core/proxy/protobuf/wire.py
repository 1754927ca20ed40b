"""Wire format of Protocol Buffers, for messages without a schema, and `DeleteOptions`. Pure.

Source: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from runner.values.objects import Object

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LARGEST_SHIFT = 63

Field: TypeAlias = tuple[int, int | bytes]
"""Number and value of a field; fixed-size numbers are bytes."""


def fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of a message in their order. Raises ValueError."""
    at = 0
    while at < len(data):
        tag, at = _number(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _number(data, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _number(data, at)
        elif kind in {_FIXED64, _FIXED32}:
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"unknown wire type {kind}")
        if number == 0 or at + size > len(data):
            raise ValueError("invalid or truncated field")
        yield number, data[at : at + size]
        at += size


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a varint and the position after it."""
    value = shift = 0
    while at < len(data) and shift <= _LARGEST_SHIFT:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:  # noqa: PLR2004 - the bit that says that more comes
            return value, at
        shift += 7
    raise ValueError("unterminated varint")


def varint(value: int) -> bytes:
    """Encode a varint."""
    encoded = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - seven bits go into a byte
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def flag(number: int, value: bool) -> bytes:  # noqa: FBT001 - the value itself
    """Encode a boolean field."""
    return varint(number << 3 | _VARINT) + varint(int(value))


def message(number: int, content: bytes) -> bytes:
    """Encode a field of bytes, a string or a message."""
    return varint(number << 3 | _BYTES) + varint(len(content)) + content


def text(number: int, content: str) -> bytes:
    """Encode a string field."""
    return message(number, content.encode())


def octets(value: int | bytes) -> bytes:
    """Return the bytes of a length-delimited field. Raises ValueError."""
    if isinstance(value, int):
        raise ValueError("expected a length-delimited field")  # noqa: TRY004 - the input is invalid, not the program
    return value


def string(value: int | bytes | None) -> str:
    """Return the string of a field; empty if it is missing."""
    return "" if value is None else octets(value).decode()


MAGIC = b"k8s\0"
"""Beginning of an object."""
TYPE_META, RAW = 1, 2
"""Fields of the message `Unknown`: the type of an object, and the object."""
_GRACE, _PRECONDITIONS, _ORPHAN, _PROPAGATION, _DRY_RUN = 1, 2, 3, 4, 5
_PRECONDITION_TEXTS = {1: "uid", 2: "resourceVersion"}
_KNOWN = frozenset({_GRACE, _PRECONDITIONS, _ORPHAN, _PROPAGATION, _DRY_RUN})


def unknown(data: bytes) -> dict[int, bytes]:
    """Return the fields of the message `Unknown`, which contains each object. Raises ValueError."""
    if not data.startswith(MAGIC):
        raise ValueError("not Kubernetes protobuf")
    return {number: octets(value) for number, value in fields(data[len(MAGIC) :])}


def read(data: bytes) -> Object:
    """Parse the options as in JSON. Raises ValueError, also for unknown fields."""
    raw = unknown(data).get(RAW, b"")
    options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
    for number, value in fields(raw):
        if number not in _KNOWN:
            raise ValueError(f"unknown field {number} of DeleteOptions")
        if number == _GRACE:
            options["gracePeriodSeconds"] = value
        elif number == _PRECONDITIONS:
            conditions = dict(fields(octets(value)))
            options["preconditions"] = {
                name: string(conditions[field]) for field, name in _PRECONDITION_TEXTS.items() if field in conditions
            }
        elif number == _ORPHAN:
            options["orphanDependents"] = bool(value)
        elif number == _PROPAGATION:
            options["propagationPolicy"] = string(value)
        else:
            options.setdefault("dryRun", []).append(string(value))
    return options
