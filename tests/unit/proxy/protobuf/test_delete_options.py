"""`DeleteOptions` in protobuf, and objects that the API server decodes under another name."""

from __future__ import annotations

import pytest

from runner.core.proxy.protobuf import owners, wire
from runner.core.proxy.protobuf.wire import flag, message, text, varint

TYPE = message(1, text(1, "v1") + text(2, "DeleteOptions"))


def encoded(raw: bytes) -> bytes:
    return b"k8s\0" + TYPE + message(2, raw)


def test_all_fields_are_read() -> None:
    raw = varint(1 << 3) + varint(30) + message(2, text(1, "u") + text(2, "7")) + flag(3, value=True)
    raw += text(4, "Foreground") + text(5, "All") + text(5, "None")
    assert wire.read(encoded(raw)) == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "gracePeriodSeconds": 30,
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "orphanDependents": True,
        "propagationPolicy": "Foreground",
        "dryRun": ["All", "None"],
    }
    assert wire.read(encoded(b"")) == {"kind": "DeleteOptions", "apiVersion": "v1"}


@pytest.mark.parametrize(
    "data", [b"{}", b"k8s\0\xff", encoded(b"\x0a"), encoded(flag(9, value=True)), encoded(text(1, ""))[:-1]]
)
def test_invalid_options_are_errors(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        wire.read(data)


def test_an_object_gets_another_name_and_no_version() -> None:
    kind = message(1, text(1, "v1") + text(2, "ConfigMap"))
    data = b"k8s\0" + kind + message(2, message(1, text(1, "a") + text(3, "ns") + text(6, "5")))
    renamed = owners.renamed(data, "b", "other")
    found = owners.read(renamed)
    assert found is not None
    assert found["metadata"] == {"name": "b", "namespace": "other"}
    assert renamed.endswith(text(6, ""))
