"""Owners in protobuf. Messages stand here byte for byte as `generated.proto` of k8s.io/apimachinery says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.proxy import protobuf
from runner.core.proxy.protobuf import message, text, varint

NAMED = b"\n\x0a\n\x08settings"
"""Field 1, the metadata, with a name."""
DATA = b"\x12\x06\n\x01a\x12\x01b"
KIND = b"\n\x0f\n\x02v1\x12\x09ConfigMap"
REFERENCE = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
ADDED = b"j\x0f\n\x03Pod\x1a\x01p\x22\x01u*\x02v1"
"""Field 13 of the metadata."""
NOTED = b"b\x06\n\x01n\x12\x01v"
"""Field 12 of the metadata: an annotation."""


def enclosed(raw: bytes, *more: bytes) -> bytes:
    return b"".join([b"k8s\0", KIND, b"\x12", bytes([len(raw)]), raw, *more])


def described(**metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def test_an_objects_type_name_and_owners_are_read() -> None:
    assert protobuf.read(enclosed(NAMED + DATA)) == described(name="settings")
    owned = enclosed(NAMED + DATA + b"\n\x1dj\x13" + ADDED[2:] + b"\x30\x01\x38\x00" + NOTED)
    references = [{**REFERENCE, "controller": True, "blockOwnerDeletion": False}]
    expected = described(name="settings", ownerReferences=references, annotations={"n": "v"})
    assert protobuf.read(owned) == expected


def test_the_metadata_of_an_answer_is_read_as_in_json() -> None:
    time = message(8, b"\x08" + varint(1764417600))
    meta = text(1, "a") + text(3, "ns") + text(5, "uid") + text(6, "7") + b"\x38\x02" + time
    meta += message(11, text(1, "app") + text(2, "shop")) + text(14, "example.com/wait") + text(2, "")
    assert protobuf.read(enclosed(message(1, meta))) == described(
        name="a",
        namespace="ns",
        uid="uid",
        resourceVersion="7",
        generation=2,
        creationTimestamp="2025-11-29T12:00:00Z",
        labels={"app": "shop"},
        finalizers=["example.com/wait"],
    )


@pytest.mark.parametrize(
    "raw",
    [
        b"\x10\x00" * 30_000,
        message(1, b"j\x00" * 30_000),
        message(1, b"") * 30_000,
        message(1, message(12, text(1, "a") + text(2, "b")) * 8_000),
        message(1, message(13, b"\x30\x01" * 30_000)),
    ],
)
def test_an_object_with_too_many_fields_is_not_read(raw: bytes) -> None:
    assert protobuf.read(b"k8s\0" + KIND + message(2, raw)) is None


def test_the_items_of_a_list_and_the_uid_of_a_deleted_object_are_read() -> None:
    def answer(kind: str, raw: bytes) -> dict[str, Any]:
        return protobuf.read(b"k8s\0" + message(1, text(1, "v1") + text(2, kind)) + message(2, raw)) or {}

    items = b"".join(message(2, message(1, text(1, name))) for name in ("a", "b"))
    found = answer("ConfigMapList", message(1, text(2, "9")) + items)
    assert found["items"] == [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]
    assert answer("Status", text(2, "Success") + message(5, text(1, "a") + text(6, "uid")))["details"] == {"uid": "uid"}


def test_added_owners_are_appended_and_nothing_else_changes() -> None:
    before = enclosed(NAMED + DATA, b"\x1a\0\x22\0")
    assert protobuf.add(before, described(name="settings")) == before
    wanted = described(ownerReferences=[REFERENCE], annotations={"n": "v"})
    after = enclosed(NAMED + DATA + b"\n\x19" + ADDED + NOTED, b"\x1a\0\x22\0")
    assert protobuf.add(before, wanted) == after
    assert protobuf.add(after, wanted) == after


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"k8s\0\x12\x05abc",
        b"k8s\0\x10\x05",
        b"k8s\0\x12\x82",
        b"k8s\0\x13\x05",
        enclosed(b"\x08\x01"),
        enclosed(b"\n\x02\xff\xff"),
        enclosed(b"\n\x03\n\x01\xff"),
        enclosed(NAMED, b"\x1a\x04gzip"),
        enclosed(NAMED) + b"\x12\x00",
    ],
)
def test_data_that_is_not_an_object_is_not_read(data: bytes) -> None:
    assert protobuf.read(data) is None


@given(st.binary(max_size=200))
def test_no_bytes_are_too_strange(data: bytes) -> None:
    protobuf.read(b"k8s\0" + data)


_TEXTS = st.text(max_size=200)
_REFERENCES = st.lists(
    st.fixed_dictionaries(
        {"apiVersion": _TEXTS, "kind": _TEXTS, "name": _TEXTS, "uid": _TEXTS},
        optional={"controller": st.booleans(), "blockOwnerDeletion": st.booleans()},
    ),
    unique_by=lambda each: each["uid"],
    max_size=3,
)


@pytest.mark.lengthy
@given(_REFERENCES, st.dictionaries(_TEXTS, _TEXTS, max_size=3))
def test_added_owners_can_be_read(references: list[dict[str, Any]], annotations: dict[str, str]) -> None:
    added = protobuf.add(enclosed(NAMED + DATA), described(ownerReferences=references, annotations=annotations))
    found = (protobuf.read(added) or {})["metadata"]
    assert found.get("ownerReferences", []) == references
    assert found.get("annotations", {}) == annotations


def test_an_object_gets_another_name_and_no_version() -> None:
    kind = message(1, text(1, "v1") + text(2, "ConfigMap"))
    data = b"k8s\0" + kind + message(2, message(1, text(1, "a") + text(3, "ns") + text(6, "5")))
    renamed = protobuf.renamed(data, "b", "other")
    found = protobuf.read(renamed)
    assert found is not None
    assert found["metadata"] == {"name": "b", "namespace": "other"}
    assert renamed.endswith(text(6, ""))
