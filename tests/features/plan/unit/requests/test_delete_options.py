"""DeleteOptions in protobuf, byte for byte as `generated.proto` of k8s.io/apimachinery says."""

from __future__ import annotations

import pytest

from runner.core.proxy.protobuf import flag, message, text, varint
from runner.features.plan.requests.deletions import _options

TYPE = message(1, text(1, "v1") + text(2, "DeleteOptions"))


def encoded(raw: bytes) -> bytes:
    return b"k8s\0" + TYPE + message(2, raw)


def test_all_fields_are_read() -> None:
    raw = varint(1 << 3) + varint(30) + message(2, text(1, "u") + text(2, "7")) + flag(3, value=True)
    raw += text(4, "Foreground") + text(5, "All") + text(5, "None")
    assert _options(encoded(raw)) == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "gracePeriodSeconds": 30,
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "orphanDependents": True,
        "propagationPolicy": "Foreground",
        "dryRun": ["All", "None"],
    }
    assert _options(encoded(b"")) == {"kind": "DeleteOptions", "apiVersion": "v1"}


@pytest.mark.parametrize(
    "data", [b"{}", b"k8s\0\xff", encoded(b"\x0a"), encoded(flag(9, value=True)), encoded(text(1, ""))[:-1]]
)
def test_invalid_options_are_errors(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        _options(data)
