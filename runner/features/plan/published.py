"""A plan in the status of its object: `status.plan`, its hash, and the ConfigMap with all values. Pure.

The hash covers the object's UID and generation, the digest of the role, what the run read, and all changes with masked
values. It also covers a random nonce, so that it is valid for one plan only. No secret value is part of it, because
every reader of the status could test guesses (decision 30).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson
import yaml

from runner.features.plan.changes import DifferingValue, ObjectChange, ResourcePlan, lasting
from runner.features.plan.trial.overlay import Verb
from runner.values.objects import GVK, Object, ObjectKey, first_names, metadata, uid_of

KEY = "changes.yaml"
"""Key of the ConfigMap's only entry."""
_HASH, _DIGEST = 16, 8
"""Bytes."""
_MOST_BYTES = 32 << 10
"""Bytes of the changes in a status."""
_MOST_FIELDS = 50
_LONGEST_PATH = 200
_MOST_VALUES, _LONGEST_VALUE = 10, 200
"""Fields of an object whose values are in a status, and characters of a value."""
_MOST_READS = 32
_LARGEST = 256 << 10
"""Bytes of a ConfigMap's content; the API refuses more than 1 MiB."""
_MOST_NAMED = 5
_NAMES: tuple[Verb, ...] = ("create", "change", "delete")


@dataclass(frozen=True, slots=True)
class PlanBasis:
    """A plan, and what it is based on."""

    plan: ResourcePlan
    uid: str
    generation: object
    """`metadata.generation`, or a digest of the content of an object without it."""
    content: str
    """Digest of the role or playbook, and of the inputs of its runs."""
    reads: Mapping[str, str]
    """Digests of what the run read, by path."""

    def hash(self, nonce: str) -> str:
        """Return the hash of the plan."""
        changes = sorted((_essence(change) for change in self.plan.changes), key=_dump)
        unplanned = [asdict(task) for task in self.plan.unplanned]
        about = [nonce, self.uid, self.generation, self.content, dict(self.reads), changes, unplanned]
        return _digest([*about, self.plan.finalizing, self.plan.more_unplanned], _HASH)

    def digests(self, nonce: str) -> Iterator[str]:
        """Yield the digest of each change, to find those that differ."""
        return (_digest([nonce, _essence(change)], _DIGEST) for change in self.plan.changes)


def status(
    basis: PlanBasis,
    nonce: str,
    time: str,
    config_map: str,
    approval: Mapping[str, Any],
    differing: Sequence[DifferingValue] = (),
) -> dict[str, Any]:
    """Return `status.plan`. `approval` is the last approval of the object, `config_map` the name of the ConfigMap.

    `differing`: fields whose values differ in each run.
    """
    plan = basis.plan
    listed = _listed(
        {**_entry(change), "digest": digest} for change, digest in zip(plan.changes, basis.digests(nonce), strict=True)
    )
    optional = {
        "moreChanges": len(plan.changes) - len(listed),
        "unplanned": len(plan.unplanned) + plan.more_unplanned,
        "finalizer": plan.finalizing,
        "reads": dict(sorted(basis.reads.items())[:_MOST_READS]),
        "configMap": config_map,
        **named(differing),
        "approval": dict(approval),
    }
    return {
        "hash": basis.hash(nonce),
        "nonce": nonce,
        "generation": basis.generation,
        "content": basis.content,
        "time": time,
        "changes": listed,
        **{name: value for name, value in optional.items() if value},
    }


def drift(plan: ResourcePlan, time: str) -> dict[str, Any]:
    """Return `status.drift`: the changes of a plan as in `status.plan`, with short values, and with a hash of all."""
    listed = _listed({**_entry(change), **_values(change)} for change in plan.changes)
    more = len(plan.changes) - len(listed)
    changes = sorted((_essence(change) for change in plan.changes), key=_dump)
    return {"hash": _digest(changes, _HASH), "time": time, "changes": listed, **({"moreChanges": more} if more else {})}


def _listed(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first entries, up to the limit of a status."""
    listed: list[dict[str, Any]] = []
    size = 0
    for entry in entries:
        size += len(_dump(entry))
        if size > _MOST_BYTES:
            break
        listed.append(entry)
    return listed


def _entry(change: ObjectChange) -> dict[str, Any]:
    paths = [field.path[:_LONGEST_PATH] for field in change.fields if field.path]
    optional: dict[str, Any] = {
        "recreated": change.recreated,
        "fields": paths[:_MOST_FIELDS],
        "moreFields": max(len(paths) - _MOST_FIELDS, 0),
    }
    return {
        "verb": change.verb,
        "apiVersion": change.gvk.api_version,
        "kind": change.gvk.kind,
        "namespace": change.key.namespace,
        "name": change.key.name,
        **{name: value for name, value in optional.items() if value},
    }


def _values(change: ObjectChange) -> dict[str, Any]:
    """Return the first fields with their values; long values are cut."""
    fields = [field.as_json() for field in change.fields[:_MOST_VALUES] if field.path]
    shown = [
        {name: value if name == "path" else _short(value) for name, value in field.items()}
        for field in fields
        if len(field["path"]) <= _LONGEST_PATH
    ]
    return {"values": shown} if shown else {}


def _short(value: Any) -> Any:
    text = value if isinstance(value, str) else _dump(value).decode()
    return value if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def summary(plan: ResourcePlan) -> str:
    """Return a sentence with the number of objects, and the first ones."""
    verbs = Counter(change.verb for change in plan.changes)
    counts = ", ".join(f"{verbs[verb]} to {verb}" for verb in _NAMES if verbs[verb]) or "no changes"
    names = ", ".join(f"{change.gvk.kind} {change.key}" for change in plan.changes[:_MOST_NAMED])
    more = len(plan.changes) - _MOST_NAMED
    deletion = "deletion: " if plan.finalizing else ""
    text = f"{deletion}{counts}" + (f": {names}" if names else "") + (f" and {more} more" if more > 0 else "")
    unplanned = len(plan.unplanned) + plan.more_unplanned
    return text + (f"; {unplanned} {'tasks were' if unplanned > 1 else 'task was'} not planned" if unplanned else "")


def named(differing: Sequence[DifferingValue]) -> dict[str, list[str]]:
    """Return the fields whose values differ in each run: `random` are covered by an approval, `differing` are not."""
    parts = {"random": True, "differing": False}
    fields = {name: [str(value) for value in differing if value.is_covered is kind] for name, kind in parts.items()}
    return {name: [text[:_LONGEST_PATH] for text in texts[:_MOST_FIELDS]] for name, texts in fields.items()}


def random_values(plan: Mapping[str, Any]) -> str:
    """Return sentences about the fields of `named`, which begin with a separator."""
    named = (plan.get(name) for name in ("random", "differing"))
    covered, others = ([*map(str, value)] if isinstance(value, list) else [] for value in named)
    text = f". The approval covers random values of new Secrets: {first_names(covered, _MOST_NAMED)}" if covered else ""
    if others:
        text += (
            ". These values differ in each run, so that the plan cannot be executed: "
            f"{first_names(others, _MOST_NAMED)}. They are random, "
            "times, or computed from such values: create them once, in a Secret that the role reads afterwards"
        )
    return text


def differences(before: Mapping[str, Any], after: PlanBasis) -> tuple[str, ...]:
    """Return in what a plan differs from an earlier one, from its status; a phrase each."""
    phrases: list[str] = []
    if before.get("generation") != after.generation:
        phrases.append(f"the object changed (generation {before.get('generation')} → {after.generation})")
    if before.get("content") != after.content:
        phrases.append("the role, playbook or settings changed")
    reads = before.get("reads") or {}
    phrases += [f"an object that the plan read changed: {path}" for path in _differing(reads, after.reads)]
    old = {_name(entry): str(entry.get("digest")) for entry in before.get("changes") or () if isinstance(entry, dict)}
    nonce = str(before.get("nonce"))
    new = {str(change): digest for change, digest in zip(after.plan.changes, after.digests(nonce), strict=True)}
    if not before.get("moreChanges"):
        phrases += [f"{name} is planned now" for name in new if name not in old]
    phrases += [f"{name} is not planned any more" for name in old if name not in new]
    phrases += [f"{name} is planned with other values" for name in old if name in new and old[name] != new[name]]
    return tuple(phrases) or ("the tasks that cannot be planned, or changes beyond those in the status, differ",)


def _differing(before: Mapping[str, Any], after: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths whose digests differ. A status contains a part of a large number of paths."""
    for path in sorted(before.keys() | after.keys()):
        is_known = path in before or len(before) < _MOST_READS
        if is_known and before.get(path) != after.get(path):
            yield path


def _name(entry: Mapping[str, Any]) -> str:
    key = ObjectKey(str(entry.get("namespace") or ""), str(entry.get("name")))
    return f"{entry.get('verb')} {entry.get('kind')} {key}"


def data(plan: ResourcePlan) -> dict[str, str]:
    """Return the content of the ConfigMap with all changes."""
    return {KEY: _text(plan)}


def config_map_name(gvk: GVK, owner: Object) -> str:
    """Return the name of an object's ConfigMap."""
    name = str(metadata(owner).get("name") or "")
    return f"{name[:200].rstrip('.-')}-plan-{_digest([gvk.group, gvk.kind, uid_of(owner)], 4)}"


def _text(plan: ResourcePlan) -> str:
    """Return all changes in YAML, cut at a limit: whole objects at the end are missing."""
    parts: list[str] = []
    size = 0
    entries = [*({"change": change.as_json()} for change in plan.changes)]
    entries += [{"unplanned": asdict(task)} for task in plan.unplanned]
    for number, entry in enumerate(entries):
        is_large = len(_dump(entry)) > _LARGEST  # its YAML would take seconds
        part = "" if is_large else yaml.safe_dump([entry], sort_keys=False, allow_unicode=True, width=120)
        size += len(part.encode())
        if is_large or size > _LARGEST:
            parts.append(f"# {len(entries) - number} more entries are omitted, because they are too large\n")
            break
        parts.append(part)
    return "".join(parts) or "[]\n"


def _essence(change: ObjectChange) -> dict[str, Any]:
    """Return what of a change is the same in each plan."""
    fields = tuple(lasting(change.gvk, field) for field in change.fields)
    # The reason is a message of the API server.
    return replace(change, fields=fields, not_validated="not validated" if change.not_validated else "").as_json()


def _digest(value: object, size: int) -> str:
    return hashlib.blake2b(_dump(value), digest_size=size).hexdigest()


def _dump(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
