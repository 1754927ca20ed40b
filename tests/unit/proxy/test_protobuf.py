"""Reading what a `Status` in protobuf says."""

from __future__ import annotations

import pytest

from runner.proxy import protobuf


def field(number: int, content: bytes) -> bytes:
    size = len(content)
    return (
        bytes([number << 3 | 2]) + (bytes([size]) if size < 0x80 else bytes([size & 0x7F | 0x80, size >> 7])) + content
    )


def unknown(status: bytes) -> bytes:
    return b"k8s\0" + field(1, field(1, b"v1") + field(2, b"Status")) + field(2, status) + field(3, b"") + field(4, b"")


@pytest.mark.parametrize("said", ["no", "ä" * 100])
def test_the_message_is_found_among_the_other_fields(said: str) -> None:
    before = field(1, b"\x0a\x00") + field(2, b"Failure") + b"\x31" + bytes(8) + b"\x3d" + bytes(4)
    after = field(4, b"Forbidden") + b"\x30\x93\x03"
    assert protobuf.status_message(unknown(before + field(3, said.encode()) + after)) == said
    assert protobuf.status_message(unknown(b"\x30\x93\x03" + field(3, said.encode()))) == said
    assert not protobuf.status_message(unknown(before + after))


@pytest.mark.parametrize(
    "data",
    [b"", b"k8s\0", b"{}", b"k8s\0\x0b\x0c", b"k8s\0" + b"\xff" * 40, b"k8s\0\x12\x7f", unknown(b"\x1a\xff\x7fcut")],
)
def test_what_is_no_message_is_read_as_none_or_in_part(data: bytes) -> None:
    assert protobuf.status_message(data) in {"", "cut"}
