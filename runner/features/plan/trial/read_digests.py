"""Digests of what a plan run reads, so that a later plan can detect a change. Pure."""

from __future__ import annotations

from runner.features.plan.trial.overlay import KindId
from runner.values.digests import digest
from runner.values.objects import RECORD_OF, Object, annotations_of, metadata, uid_of

UNSTABLE = frozenset({("", "events"), ("events.k8s.io", "events"), ("coordination.k8s.io", "leases")})
"""Kinds that change all the time, so that their reads are not compared."""
ABSENT = "absent"
_SECRETS = KindId("", "secrets")
_MAINTAINED = frozenset({"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink"})


def read_digest(obj: Object, kind: KindId, owner: str) -> str:
    """Return the digest of an object or a list that a plan run reads, so that a later plan can detect a change.

    The object with the UID `owner` does not count, nor does the ConfigMap of its plan. The result is empty if it is
    the only one.

    The status and the metadata that the API server maintains do not count, because they change by themselves. The
    content of Secrets does not count either, so that no published digest allows to guess it: their versions do.
    """
    if not obj:
        return ABSENT
    if isinstance(items := obj.get("items"), list):
        counted = [item for item in items if isinstance(item, dict) and not _is_own(item, owner)]
        return digest([_lasting(item, kind) for item in counted])
    return "" if _is_own(obj, owner) else digest(_lasting(obj, kind))


def _is_own(obj: Object, owner: str) -> bool:
    return uid_of(obj) == owner or annotations_of(obj).get(RECORD_OF) == owner


def _lasting(obj: Object, kind: KindId) -> object:
    meta = metadata(obj)
    if kind == _SECRETS:
        return [meta.get("name"), meta.get("namespace"), meta.get("uid"), meta.get("resourceVersion")]
    rest = {name: value for name, value in meta.items() if name not in _MAINTAINED}
    return {**{name: obj[name] for name in obj.keys() - {"apiVersion", "kind", "metadata", "status"}}, "metadata": rest}
