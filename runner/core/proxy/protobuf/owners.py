r"""Metadata and owners in Kubernetes protobuf, which Go clients use for built-in kinds.

The content is `k8s\0` and a message `Unknown` with type and raw object; the metadata is field 1 of each kind's message.
Additions are appended, because parsers merge repeated messages (Protocol Buffers' "Last One Wins").
Sources: `generated.proto` of k8s.io/apimachinery in pkg/runtime and pkg/apis/meta/v1, and
https://protobuf.dev/programming-guides/encoding/. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from runner.core.proxy.protobuf import wire
from runner.core.proxy.protobuf.wire import MAGIC, RAW, TYPE_META, fields, flag, message, octets, string, text
from runner.values.objects import Object, annotations_of
from runner.values.ownership import references_of

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

    None if the content is invalid.
    """
    try:
        return _read(data)
    except (ValueError, OverflowError, OSError):
        return None


def add(data: bytes, obj: Object) -> bytes:
    """Add the owner references and annotations of `obj` to an object that `read` accepted."""
    current = _read(data)
    uids = {reference.get("uid") for reference in references_of(current)}
    annotations = annotations_of(current)
    more = b"".join(
        message(_REFERENCES, _reference(reference))
        for reference in references_of(obj)
        if reference.get("uid") not in uids
    ) + b"".join(
        message(_ANNOTATIONS, text(1, name) + text(2, value))
        for name, value in annotations_of(obj).items()
        if annotations.get(name) != value
    )
    if not more:
        return data
    unknown = _unknown(data)
    return _enclosed({**unknown, RAW: unknown.get(RAW, b"") + message(_METADATA, more)})


def renamed(data: bytes, name: str, namespace: str) -> bytes:
    """Return an object that `read` accepted with another name and namespace, and without a resource version."""
    unknown = _unknown(data)
    more = text(_NAME, name) + text(_NAMESPACE, namespace) + text(_VERSION, "")
    return _enclosed({**unknown, RAW: unknown.get(RAW, b"") + message(_METADATA, more)})


def _enclosed(unknown: Mapping[int, bytes]) -> bytes:
    return MAGIC + b"".join(message(number, value) for number, value in unknown.items())


def _unknown(data: bytes) -> dict[int, bytes]:
    """Return the fields of `Unknown`. An unusual encoding is rejected here, and left to the API server."""
    unknown = wire.unknown(data)
    if _enclosed(unknown) != data or unknown.get(_ENCODING):
        raise ValueError("not Kubernetes protobuf in its usual form")
    return unknown


def _read(data: bytes) -> Object:
    unknown = _unknown(data)
    type_meta = dict(fields(unknown.get(TYPE_META, b"")))
    kind, raw = string(type_meta.get(_KIND)), unknown.get(RAW, b"")
    obj: Object = {"apiVersion": string(type_meta.get(_API_VERSION)), "kind": kind, **_read_object(raw)}
    if kind.endswith("List"):
        obj["items"] = [_read_object(octets(value)) for number, value in fields(raw) if number == _ITEMS]
    elif kind == "Status":
        status = dict(fields(raw))
        details = dict(fields(octets(status.get(_DETAILS, b""))))
        obj["message"] = string(status.get(_MESSAGE))
        obj["details"] = {"uid": string(details.get(_UID_IN_DETAILS))}
    return obj


def _read_object(raw: bytes) -> Object:
    metadata: Object = {}
    for number, value in fields(raw):
        if number == _METADATA:
            _read_metadata(octets(value), metadata)
    return {"metadata": {name: value for name, value in metadata.items() if value}}


def _read_metadata(data: bytes, metadata: Object) -> None:
    for number, value in fields(data):
        if number in _TEXTS:
            metadata[_TEXTS[number]] = string(value)
        elif number in _MAPS:
            entry = dict(fields(octets(value)))
            metadata.setdefault(_MAPS[number], {})[string(entry.get(1))] = string(entry.get(2))
        elif number in _TIMES:
            seconds = dict(fields(octets(value))).get(1)
            if isinstance(seconds, int):
                metadata[_TIMES[number]] = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        elif number == _GENERATION:
            metadata["generation"] = value
        elif number == _FINALIZERS:
            metadata.setdefault("finalizers", []).append(string(value))
        elif number == _REFERENCES:
            metadata.setdefault("ownerReferences", []).append(_read_reference(octets(value)))


def _read_reference(data: bytes) -> Object:
    reference: Object = {}
    for number, value in fields(data):
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
