"""Objects of a plan as the API server would store them, and values that only it chooses. Pure.

These values are addresses and node ports of Services, UIDs, generated names and creation times. A dry run returns
values that the real write does not get. Addresses and node ports are replaced by placeholders: values that are the same
in each plan and occur nowhere else. A role can copy all of them into other objects, where they are recognized.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

from runner.core.kube.discovery import ApiResource
from runner.values.objects import GVK, Object, ObjectKey, metadata, uid_of

Scalar: TypeAlias = str | int
UNKNOWN = "(known after apply)"
"""Such a value in a report."""
_FIRST_PORT, _PORTS = 60_001, 5_000
"""Placeholders of node ports; no node port is as high."""
_IP_4, _IP_6 = "198.{}.{}.{}", "2001:db8::{:x}:{:x}"
"""Placeholders of addresses, from ranges for benchmarks and documentation (RFC 2544, RFC 3849)."""

_WORDS = re.compile("[0-9A-Za-z]+")


class Place(NamedTuple):
    """A field whose value the API server chooses."""

    kind: str
    """Kind and group."""
    key: ObjectKey
    path: str

    def is_of(self, gvk: GVK, key: ObjectKey) -> bool:
        """Return whether the field is one of an object."""
        return (self.kind, self.key) == (f"{gvk.kind}.{gvk.group}", key)


_TIME = Place("", ObjectKey("", ""), "metadata.creationTimestamp")
"""The creation times of all objects: several are created within a second."""


@dataclass(slots=True)
class UnknownValues:
    """Values that the API server chose in a dry run or a real one, with their places."""

    places: dict[Scalar, Place] = field(default_factory=dict)
    _by_word: dict[str, list[str]] = field(default_factory=dict)
    """The values as texts, by their last words: a pattern of all would be made again after each new value."""

    def add(self, value: Scalar, place: Place) -> None:
        """Note a value."""
        if value not in self.places:
            self.places[value] = place
            self._by_word.setdefault(_WORDS.findall(f"0 {value}")[-1], []).append(str(value))

    def replaced(self, value: Any, text: Callable[[Place], str]) -> Any:
        """Return a JSON value in which `text` replaces each of the values, also within strings."""
        if not self.places:
            return value
        if isinstance(value, dict):
            return {name: self.replaced(item, text) for name, item in value.items()}
        if isinstance(value, list):
            return [self.replaced(item, text) for item in value]
        if isinstance(value, str):
            known = [one for word in {*_WORDS.findall(value)} for one in self._by_word.get(word, ())]
            return _pattern(known).sub(lambda match: text(self._place_of(match[0])), value) if known else value
        is_number = isinstance(value, int) and not isinstance(value, bool)
        return text(self.places[value]) if is_number and value in self.places else value

    def marked(self, value: Any) -> Any:
        """Return a JSON value as a report shows it."""
        return self.replaced(value, lambda _: UNKNOWN)

    def with_placeholders(
        self, gvk: GVK, key: ObjectKey, obj: Object, before: Object | None, requested: frozenset[Scalar]
    ) -> Object:
        """Return a Service of a dry run with placeholders for the values that the API server chose.

        The object did not have these fields `before` the write, and the values are not among `requested`, those in the
        request.
        """
        if not has_choices(gvk):
            return obj
        old = {place for place, _ in chosen(gvk, key, before or {})}
        new = {
            place.path: self._placeholder(place, value)  # by field: a dry run chooses equal values for several fields
            for place, value in chosen(gvk, key, obj)
            if place.path.startswith("spec.") and place not in old and value not in requested
        }
        return _mapped(obj, new.get) if new else obj

    def without(self, gvk: GVK, key: ObjectKey, obj: Object) -> Object:
        """Return a Service without its own placeholders, so that the API server chooses these values again."""
        if not has_choices(gvk):
            return obj
        own = {value for value, place in self.places.items() if place.is_of(gvk, key)}
        return _mapped(obj, lambda _, value: None if value in own else value)

    def _placeholder(self, place: Place, value: Scalar) -> Scalar:
        number = int.from_bytes(hashlib.blake2b("\0".join(map(str, place)).encode(), digest_size=4).digest())
        while self.places.get(placeholder := _spelled(number, value), place) != place:
            number += 1
        self.add(placeholder, place)
        return placeholder

    def _place_of(self, text: str) -> Place:
        place = self.places.get(text)
        return place if place is not None else self.places[int(text)]


def _pattern(values: list[str]) -> re.Pattern[str]:
    parts = "|".join(map(re.escape, sorted(values, key=len, reverse=True)))
    # Not within longer numbers, addresses and names.
    return re.compile(rf"(?<![0-9A-Za-z])(?<![0-9A-Za-z]\.)(?:{parts})(?!\.?[0-9A-Za-z])")


def chosen(gvk: GVK, key: ObjectKey, obj: Object) -> Iterator[tuple[Place, Scalar]]:
    """Yield the fields of an object whose values the API server can choose."""
    kind, meta = f"{gvk.kind}.{gvk.group}", metadata(obj)
    if uid := meta.get("uid"):
        yield Place(kind, key, "metadata.uid"), uid
    if created := meta.get("creationTimestamp"):
        yield _TIME, created
    if meta.get("generateName") and meta.get("name"):
        yield Place(kind, key, "metadata.name"), meta["name"]
    values: dict[str, Any] = {}
    if has_choices(gvk):
        _mapped(obj, values.__setitem__)
    for path, value in values.items():
        if isinstance(value, str | int) and value not in {"", "None", 0}:
            yield Place(kind, key, path), value


def scalars(value: object) -> Iterator[Scalar]:
    """Yield all texts and numbers in a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from scalars(item)
    elif isinstance(value, str | int):
        yield value


def has_choices(gvk: GVK) -> bool:
    """Return whether the API server chooses values in the spec of a kind."""
    return (gvk.group, gvk.kind) == ("", "Service")


def _mapped(obj: Object, mapped: Callable[[str, Any], Any]) -> Object:
    """Replace the values of a Service that the API server can choose, by path and value; None removes a field."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return obj
    changed = dict(spec)
    for name, path in (("clusterIP", "spec.clusterIPs[0]"), ("healthCheckNodePort", "spec.healthCheckNodePort")):
        if name in changed:
            changed[name] = mapped(path, changed[name])
    if isinstance(addresses := changed.get("clusterIPs"), list):
        new = [mapped(f"spec.clusterIPs[{number}]", address) for number, address in enumerate(addresses)]
        changed["clusterIPs"] = [address for address in new if address is not None] or None
    if isinstance(changed.get("ports"), list):
        changed["ports"] = [_port(port, mapped) for port in changed["ports"]]
    return {**obj, "spec": {name: value for name, value in changed.items() if value is not None}}


def _port(port: Any, mapped: Callable[[str, Any], Any]) -> Any:
    if not isinstance(port, dict) or "nodePort" not in port:
        return port
    rest = {name: value for name, value in port.items() if name != "nodePort"}
    value = mapped(_path_of(port), port["nodePort"])
    return rest if value is None else {**rest, "nodePort": value}


def _path_of(port: Mapping[str, Any]) -> str:
    """Return the path of the node port of one of a Service's ports."""
    return f"spec.ports[{port.get('protocol')}/{port.get('port')}].nodePort"


def _spelled(number: int, value: Scalar) -> Scalar:
    """Return a placeholder of the same form as a value."""
    if isinstance(value, int):
        return _FIRST_PORT + number % _PORTS
    if ":" in value:
        return _IP_6.format(number >> 16 & 0xFFFF, number & 0xFFFF)
    return _IP_4.format(18 + (number >> 16 & 1), number >> 8 & 0xFF, number & 0xFF)


def as_new(resource: ApiResource, key: ObjectKey, obj: Object) -> Object:
    """Return an object that is created, with a UID that is the same in each plan."""
    gvk = resource.gvk
    uid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"plan:{gvk.group}/{resource.plural}/{key}"))
    obj = with_uid(obj, uid)
    meta = {
        "creationTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "generation": 1,
        **without(obj, frozenset({"uid", "resourceVersion"}))["metadata"],
        "name": key.name,
        **({"namespace": key.namespace} if key.namespace else {}),
        "uid": uid,
    }
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, **obj, "metadata": meta}


def with_uid(obj: Object, uid: str) -> Object:
    """Replace the UID of a dry run wherever the API server put it, such as into the labels of a Job."""
    dry_run_uid = uid_of(obj)
    if not dry_run_uid or dry_run_uid == uid:
        return obj

    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: replaced(item) for name, item in value.items()}
        if isinstance(value, list):
            return [replaced(item) for item in value]
        return uid if value == dry_run_uid else value

    changed: Object = replaced(obj)
    return changed


def scaled(obj: Object, scale: Object) -> Object:
    """Return an object with the replicas of a `Scale`."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    return {**obj, "spec": {**(obj.get("spec") or {}), "replicas": replicas}}


def named(obj: Object, name: str) -> Object:
    """Return an object with another name."""
    return {**obj, "metadata": {**metadata(obj), "name": name}}


def without(obj: Object, names: frozenset[str]) -> Object:
    """Return an object without some of its metadata."""
    return {**obj, "metadata": {name: value for name, value in metadata(obj).items() if name not in names}}
