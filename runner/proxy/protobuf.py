"""The little that is read of protobuf: what a `Status` says. Pure; imports nothing of this package.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding (four bytes, then an `Unknown`
whose field 2 holds the object), https://protobuf.dev/programming-guides/encoding/, and the field numbers of
`meta/v1.Status`.
"""

from __future__ import annotations

_MAGIC = b"k8s\x00"
_RAW = 2
_MESSAGE = 3
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_LONGEST = 64
"""Bits of a number."""
_SIZES = {_EIGHT: 8, _FOUR: 4}


def status_message(data: bytes) -> str:
    """The message of a `Status`; empty when `data` is none."""
    if not data.startswith(_MAGIC):
        return ""
    return _field(_field(data[len(_MAGIC) :], _RAW), _MESSAGE).decode(errors="replace")


def _field(data: bytes, number: int) -> bytes:
    """The bytes of a field; empty when there is none, or `data` is no message."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        length = _SIZES.get(tag & 7, 0)
        if tag & 7 in {_VARINT, _BYTES}:
            length, at = _varint(data, at)
        elif not length:
            break
        if tag == number << 3 | _BYTES:
            return data[at : at + length]
        at += length if tag & 7 != _VARINT else 0
    return b""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number; return it and where it ends."""
    value = shift = 0
    while at < len(data) and shift < _LONGEST:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
            break
    return value, at
