"""`DeleteOptions` in Kubernetes protobuf. Pure.

Source: `generated.proto` of k8s.io/apimachinery in pkg/apis/meta/v1.
"""

from __future__ import annotations

from runner.objects import Object
from runner.proxy.protobuf.wire import fields, octets, string

_MAGIC = b"k8s\0"
_RAW = 2
_GRACE, _PRECONDITIONS, _ORPHAN, _PROPAGATION, _DRY_RUN = 1, 2, 3, 4, 5
_PRECONDITION_TEXTS = {1: "uid", 2: "resourceVersion"}
_KNOWN = frozenset({_GRACE, _PRECONDITIONS, _ORPHAN, _PROPAGATION, _DRY_RUN})


def read(data: bytes) -> Object:
    """Parse the options as in JSON. Raises ValueError, also for unknown fields."""
    if not data.startswith(_MAGIC):
        raise ValueError("not Kubernetes protobuf")
    raw = octets(dict(fields(data[len(_MAGIC) :])).get(_RAW, b""))
    found: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
    for number, value in fields(raw):
        if number not in _KNOWN:
            raise ValueError(f"unknown field {number} of DeleteOptions")
        if number == _GRACE:
            found["gracePeriodSeconds"] = value
        elif number == _PRECONDITIONS:
            conditions = dict(fields(octets(value)))
            found["preconditions"] = {
                name: string(conditions[field]) for field, name in _PRECONDITION_TEXTS.items() if field in conditions
            }
        elif number == _ORPHAN:
            found["orphanDependents"] = bool(value)
        elif number == _PROPAGATION:
            found["propagationPolicy"] = string(value)
        else:
            found.setdefault("dryRun", []).append(string(value))
    return found
