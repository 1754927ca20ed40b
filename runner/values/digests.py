"""Digests of JSON values and of objects. Pure."""

from __future__ import annotations

import hashlib

import orjson

from runner.values.objects import LAST_APPLIED, LAST_RUN, Object, annotations_of, metadata, uid_of

_DIGEST_SIZE, _SHORT = 12, 8
_ABSENT = "absent"


def digest_of(obj: Object) -> str:
    """Return the digest of the fields of an object that a role can depend on."""
    meta = metadata(obj)
    ours = {LAST_RUN, LAST_APPLIED}
    annotations = {name: value for name, value in annotations_of(obj).items() if name not in ours}
    hashed = {name: value for name, value in obj.items() if name not in {"metadata", "status"}}
    return digest([hashed, uid_of(obj), meta.get("name"), meta.get("namespace"), meta.get("labels") or {}, annotations])


def digest_of_answer(obj: Object | None) -> str:
    """Return the digest of the answer to a read: an object, a list, or None if it does not exist."""
    if obj is None:
        return _ABSENT
    if isinstance(items := obj.get("items"), list):
        return digest([_lasting(item) for item in items if isinstance(item, dict)])
    return digest(_lasting(obj))


def digest(value: object) -> str:
    """Return the digest of a JSON value."""
    data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(data, digest_size=_DIGEST_SIZE).hexdigest()


def short_digest(value: object) -> bytes:
    """Return the digest of a JSON value in eight bytes; empty for an empty or absent value."""
    if not value:
        return b""
    return hashlib.blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=_SHORT).digest()


def _lasting(obj: Object) -> Object:
    """Return the object without fields that change by themselves, or that items of a list do not have."""
    meta = {name: value for name, value in metadata(obj).items() if name not in {"managedFields", "resourceVersion"}}
    return {**{name: value for name, value in obj.items() if name not in {"apiVersion", "kind"}}, "metadata": meta}
