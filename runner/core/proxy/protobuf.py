r"""Kubernetes protobuf, which Go clients use for built-in kinds: messages without a schema, metadata, and owners.

The content is `k8s\0` and a message `Unknown` with type and raw object; the metadata is field 1 of each kind's message.
Additions are appended, because parsers merge repeated messages (Protocol Buffers' "Last One Wins").
Sources: `generated.proto` of k8s.io/apimachinery in pkg/runtime and pkg/apis/meta/v1, and
https://protobuf.dev/programming-guides/encoding/. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import repeat
from typing import TypeAlias

from runner.values.objects import Object, annotations_of, references_of

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LARGEST_SHIFT = 63
_ENDLESS = repeat(None)
_MOST_FIELDS = 20_000
"""Fields that `read` needs. Each takes fifty times as much time as a value of JSON."""

Field: TypeAlias = tuple[int, int | bytes]
"""Number and value of a field; fixed-size numbers are bytes."""


def fields(data: bytes, left: Iterator[object] = _ENDLESS) -> Iterator[Field]:
    """Yield the fields of a message in their order, each of which takes an item of `left`. Raises ValueError."""
    at = 0
    while at < len(data):
        if next(left, left) is left:
            raise ValueError("too many fields")
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


def unknown(data: bytes) -> dict[int, bytes]:
    """Return the fields of the message `Unknown`, which contains each object. Raises ValueError."""
    if not data.startswith(MAGIC):
        raise ValueError("not Kubernetes protobuf")
    return {number: octets(value) for number, value in fields(data[len(MAGIC) :])}


_ENCODING = 3
_API_VERSION, _KIND = 1, 2
_METADATA = 1
_NAME, _NAMESPACE, _VERSION = 1, 3, 6
_TEXTS = {_NAME: "name", 2: "generateName", _NAMESPACE: "namespace", 5: "uid", _VERSION: "resourceVersion"}
_TIMES = {8: "creationTimestamp", 9: "deletionTimestamp"}
_GENERATION, _LABELS, _ANNOTATIONS, _REFERENCES, _FINALIZERS = 7, 11, 12, 13, 14
_MAPS = {_LABELS: "labels", _ANNOTATIONS: "annotations"}
_ITEMS, _MESSAGE, _DETAILS, _UID_IN_DETAILS = 2, 3, 5, 6
_REFERENCE_TEXTS = {1: "kind", 3: "name", 4: "uid", 5: "apiVersion"}
_REFERENCE_FLAGS = {6: "controller", 7: "blockOwnerDeletion"}


def read(data: bytes) -> Object | None:
    """Parse an object's type and metadata, of a list those of its items; of a `Status` the message and UID.

    None if the content is invalid, or has too many fields.
    """
    try:
        return _read(data, repeat(None, _MOST_FIELDS))
    except ValueError:
        return None


def add(data: bytes, obj: Object) -> bytes:
    """Add the owner references and annotations of `obj` to an object that `read` accepted.

    An annotation that `obj` does not have gets an empty value, because what is appended cannot remove it.
    """
    current = _read(data)
    uids = {reference.get("uid") for reference in references_of(current)}
    annotations = annotations_of(current)
    wanted = {**dict.fromkeys(annotations, ""), **annotations_of(obj)}
    more = b"".join(
        message(_REFERENCES, _reference(reference))
        for reference in references_of(obj)
        if reference.get("uid") not in uids
    ) + b"".join(
        message(_ANNOTATIONS, text(1, name) + text(2, value))
        for name, value in wanted.items()
        if annotations.get(name) != value
    )
    if not more:
        return data
    parts = _unknown(data)
    return _enclosed({**parts, RAW: parts.get(RAW, b"") + message(_METADATA, more)})


def renamed(data: bytes, name: str, namespace: str) -> bytes:
    """Return an object that `read` accepted with another name and namespace, and without a resource version."""
    parts = _unknown(data)
    more = text(_NAME, name) + text(_NAMESPACE, namespace) + text(_VERSION, "")
    return _enclosed({**parts, RAW: parts.get(RAW, b"") + message(_METADATA, more)})


def _enclosed(parts: Mapping[int, bytes]) -> bytes:
    return MAGIC + b"".join(message(number, value) for number, value in parts.items())


def _unknown(data: bytes) -> dict[int, bytes]:
    """Return the fields of `Unknown`. An unusual encoding is rejected here, and left to the API server."""
    parts = unknown(data)
    if _enclosed(parts) != data or parts.get(_ENCODING):
        raise ValueError("not Kubernetes protobuf in its usual form")
    return parts


def _read(data: bytes, left: Iterator[object] = _ENDLESS) -> Object:
    parts = _unknown(data)
    type_meta = dict(fields(parts.get(TYPE_META, b""), left))
    kind, raw = string(type_meta.get(_KIND)), parts.get(RAW, b"")
    obj: Object = {"apiVersion": string(type_meta.get(_API_VERSION)), "kind": kind, **read_object(raw, left)}
    if kind.endswith("List"):
        obj["items"] = [read_object(octets(value), left) for number, value in fields(raw, left) if number == _ITEMS]
    elif kind == "Status":
        status = dict(fields(raw, left))
        details = dict(fields(octets(status.get(_DETAILS, b"")), left))
        obj["message"] = string(status.get(_MESSAGE))
        obj["details"] = {"uid": string(details.get(_UID_IN_DETAILS))}
    return obj


def read_object(raw: bytes, left: Iterator[object] = _ENDLESS) -> Object:
    """Parse the metadata in the message of an object; `left` is as for `fields`. Raises ValueError."""
    metadata: Object = {}
    for number, value in fields(raw, left):
        if number == _METADATA:
            _read_metadata(octets(value), metadata, left)
    return {"metadata": {name: value for name, value in metadata.items() if value}}


def _read_metadata(data: bytes, metadata: Object, left: Iterator[object]) -> None:
    for number, value in fields(data, left):
        if number in _TEXTS:
            metadata[_TEXTS[number]] = string(value)
        elif number in _MAPS:
            entry = dict(fields(octets(value), left))
            metadata.setdefault(_MAPS[number], {})[string(entry.get(1))] = string(entry.get(2))
        elif number in _TIMES:
            seconds = dict(fields(octets(value), left)).get(1)
            if isinstance(seconds, int):
                metadata[_TIMES[number]] = _time(seconds)
        elif number == _GENERATION:
            metadata["generation"] = value
        elif number == _FINALIZERS:
            metadata.setdefault("finalizers", []).append(string(value))
        elif number == _REFERENCES:
            metadata.setdefault("ownerReferences", []).append(_read_reference(octets(value), left))


def _time(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError) as error:
        raise ValueError(f"invalid time {seconds}") from error


def _read_reference(data: bytes, left: Iterator[object]) -> Object:
    reference: Object = {}
    for number, value in fields(data, left):
        if number in _REFERENCE_TEXTS:
            reference[_REFERENCE_TEXTS[number]] = string(value)
        elif number in _REFERENCE_FLAGS:
            reference[_REFERENCE_FLAGS[number]] = bool(value)
    return reference


def _reference(reference: Mapping[str, object]) -> bytes:
    texts = [text(number, str(reference.get(name, ""))) for number, name in _REFERENCE_TEXTS.items()]
    flags = [
        flag(number, reference[name] is True)
        for number, name in _REFERENCE_FLAGS.items()
        if reference.get(name) is not None
    ]
    return b"".join(texts + flags)
