r"""Owners in the API's protobuf: Go programs write the API server's own kinds in it.

A content is `k8s\0` and a message `Unknown` of type and raw object; in each kind's message the metadata are field 1.
What is added is appended: a message that stands there twice is read as both merged (Protocol Buffers' "Last One Wins").
Sources: `generated.proto` of k8s.io/apimachinery in pkg/runtime and pkg/apis/meta/v1, and
https://protobuf.dev/programming-guides/encoding/. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from runner.objects import Object, annotations_of
from runner.ownership import references_of

_MAGIC = b"k8s\0"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_TYPE_META, _RAW, _ENCODING = 1, 2, 3
_API_VERSION, _KIND = 1, 2
_METADATA = 1
_TEXTS = {1: "name", 2: "generateName", 3: "namespace"}
_ANNOTATIONS, _REFERENCES = 12, 13
_REFERENCE_TEXTS = {1: "kind", 3: "name", 4: "uid", 5: "apiVersion"}
_REFERENCE_FLAGS = {6: "controller", 7: "blockOwnerDeletion"}
_LARGEST_SHIFT = 63

Field: TypeAlias = tuple[int, int | bytes]
"""Number and value of a field; numbers of a fixed size come as their bytes."""


def read(data: bytes) -> Object | None:
    """Read an object's type, name and owners; None where this is no object."""
    try:
        return _read(data)
    except ValueError:
        return None


def add(data: bytes, obj: Object) -> bytes:
    """Add the references and annotations of `obj` that an object lacks. `data` is one that `read` has read."""
    found = _read(data)
    names = {reference.get("uid") for reference in references_of(found)}
    theirs = annotations_of(found)
    more = b"".join(
        _message(_REFERENCES, _reference(reference))
        for reference in references_of(obj)
        if reference.get("uid") not in names
    ) + b"".join(
        _message(_ANNOTATIONS, _text(1, name) + _text(2, value))
        for name, value in annotations_of(obj).items()
        if theirs.get(name) != value
    )
    if not more:
        return data
    unknown = _unknown(data)
    return _enclosed({**unknown, _RAW: unknown.get(_RAW, b"") + _message(_METADATA, more)})


def _enclosed(unknown: Mapping[int, bytes]) -> bytes:
    return _MAGIC + b"".join(_message(number, value) for number, value in unknown.items())


def _unknown(data: bytes) -> dict[int, bytes]:
    """The fields around the object. What is not written as every client writes it is left to the API server."""
    found = {number: _bytes(value) for number, value in _fields(data[len(_MAGIC) :])}
    if _enclosed(found) != data or found.get(_ENCODING):
        raise ValueError("this is not the API's protobuf, or not in its usual form")
    return found


def _read(data: bytes) -> Object:
    unknown = _unknown(data)
    kind = dict(_fields(unknown.get(_TYPE_META, b"")))
    found: Object = {}
    annotations: dict[str, str] = {}
    references: list[Object] = []
    for number, value in _fields(unknown.get(_RAW, b"")):
        if number == _METADATA:
            _read_metadata(_bytes(value), found, annotations, references)
    if annotations:
        found["annotations"] = annotations
    if references:
        found["ownerReferences"] = references
    return {"apiVersion": _string(kind.get(_API_VERSION)), "kind": _string(kind.get(_KIND)), "metadata": found}


def _read_metadata(data: bytes, found: Object, annotations: dict[str, str], references: list[Object]) -> None:
    for number, value in _fields(data):
        if number in _TEXTS:
            found[_TEXTS[number]] = _string(value)
        elif number == _ANNOTATIONS:
            entry = dict(_fields(_bytes(value)))
            annotations[_string(entry.get(1))] = _string(entry.get(2))
        elif number == _REFERENCES:
            references.append(_read_reference(_bytes(value)))


def _read_reference(data: bytes) -> Object:
    found: Object = {}
    for number, value in _fields(data):
        if number in _REFERENCE_TEXTS:
            found[_REFERENCE_TEXTS[number]] = _string(value)
        elif number in _REFERENCE_FLAGS:
            found[_REFERENCE_FLAGS[number]] = bool(value)
    return found


def _reference(reference: Mapping[str, object]) -> bytes:
    texts = [_text(number, str(reference.get(name, ""))) for number, name in _REFERENCE_TEXTS.items()]
    flags = [
        _varint(number << 3 | _VARINT) + _varint(int(reference[name] is True))
        for number, name in _REFERENCE_FLAGS.items()
        if reference.get(name) is not None
    ]
    return b"".join(texts + flags)


# The wire format.


def _fields(data: bytes) -> Iterator[Field]:
    """The fields of a message in their order. ValueError where it is none."""
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
            raise ValueError(f"no such wire type: {kind}")
        if number == 0 or at + size > len(data):
            raise ValueError("a field that is none, or is not all there")
        yield number, data[at : at + size]
        at += size


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A base 128 number and where the next thing begins."""
    found = shift = 0
    while at < len(data) and shift <= _LARGEST_SHIFT:
        found |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:  # noqa: PLR2004 - the bit that says that more comes
            return found, at
        shift += 7
    raise ValueError("a number without end")


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - seven bits go into a byte
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _text(number: int, text: str) -> bytes:
    return _message(number, text.encode())


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where a message is due")  # noqa: TRY004 - what was sent is wrong, not the program
    return value


def _string(value: int | bytes | None) -> str:
    return "" if value is None else _bytes(value).decode()
