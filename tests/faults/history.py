"""What happened to objects, as a watch that nothing delays saw it, and what must hold of it. Pure.

The role makes two ConfigMaps for each Thing: one that the Thing owns, named like it, and `NAME-outside`, which nobody
owns and which the finalizer deletes. Each has the UID of its Thing in `data.owner`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.faults import journal
from tests.faults.journal import BEGIN, Line

OUTSIDE = "-outside"


@dataclass(frozen=True, slots=True)
class Seen:
    """An event of a Thing or a ConfigMap, in the order of the API server's versions."""

    version: int
    what: str
    """ADDED, MODIFIED or DELETED."""
    kind: str
    name: str
    uid: str
    owner: str = ""
    """UID of the Thing that a ConfigMap was made for."""
    deleting: bool = False
    generation: int = 0
    observed: int = 0
    """Highest `observedGeneration` of a Thing's conditions."""

    @classmethod
    def of(cls, what: str, obj: Mapping[str, Any]) -> Seen:
        """Read an event's object."""
        meta, conditions = obj["metadata"], (obj.get("status") or {}).get("conditions", [])
        return cls(
            int(meta["resourceVersion"]),
            what,
            obj["kind"],
            meta["name"],
            meta["uid"],
            (obj.get("data") or {}).get("owner", ""),
            deleting="deletionTimestamp" in meta,
            generation=meta.get("generation", 0),
            observed=max((entry.get("observedGeneration", 0) for entry in conditions), default=0),
        )


def repeated(events: Iterable[Seen], explained: Mapping[str, int]) -> list[str]:
    """Find ConfigMaps that were made more than once for one Thing; `explained`: how often more by name."""
    made = Counter((seen.name, seen.owner) for seen in events if (seen.kind, seen.what) == ("ConfigMap", "ADDED"))
    return [
        f"{name} was made {times} times for {owner}"
        for (name, owner), times in made.items()
        if times > 1 + explained.get(name, 0)
    ]


def lost_twice(events: Iterable[Seen], explained: Mapping[str, int]) -> list[str]:
    """Find ConfigMaps that were deleted more than once for one Thing; `explained`: how often more by name."""
    gone = Counter((seen.name, seen.owner) for seen in events if (seen.kind, seen.what) == ("ConfigMap", "DELETED"))
    return [
        f"{name} was deleted {times} times for {owner}"
        for (name, owner), times in gone.items()
        if times > 1 + explained.get(name, 0)
    ]


def robbed(events: Iterable[Seen]) -> list[str]:
    """Find ConfigMaps outside that were deleted while the Thing that they were made for lived on."""
    alive: set[str] = set()
    found = []
    for seen in sorted(events, key=lambda seen: seen.version):
        if seen.kind == "Thing":
            (alive.discard if seen.deleting or seen.what == "DELETED" else alive.add)(seen.uid)
        elif seen.what == "DELETED" and seen.name.endswith(OUTSIDE) and seen.owner in alive:
            found.append(f"{seen.name} was deleted while its Thing {seen.owner} lived")
    return found


def finalized_wrongly(lines: Iterable[Line], kills: int) -> list[str]:
    """Find finalizers that ran twice for a UID without a kill, or beside a run, or before an ordinary run."""
    lines = list(lines)
    found = journal.overlaps(lines)
    times = Counter(line.uid for line in lines if line.what == BEGIN and line.finalizing)
    found += [f"{uid} was finalized {count} times" for uid, count in times.items() if count > 1 + kills]
    finalized: set[str] = set()
    for line in lines:
        if line.finalizing:
            finalized.add(line.uid)
        elif line.uid in finalized:
            found.append(f"{line.name}: the ordinary run {line.job} of {line.uid} follows its finalizer")
    return found


def not_current(events: Iterable[Seen]) -> list[str]:
    """Find conditions about a generation that is not yet, or that an earlier condition was beyond."""
    reached: dict[str, int] = {}
    found = []
    for seen in sorted((seen for seen in events if seen.kind == "Thing"), key=lambda seen: seen.version):
        if seen.observed > seen.generation:
            found.append(f"{seen.name} has generation {seen.generation} and conditions of {seen.observed}")
        if seen.observed < reached.get(seen.uid, 0):
            found.append(f"{seen.name} has conditions of {seen.observed} after {reached[seen.uid]}")
        reached[seen.uid] = max(seen.observed, reached.get(seen.uid, 0))
    return found


def not_as_wanted(
    things: Iterable[Mapping[str, Any]], config_maps: Iterable[Mapping[str, Any]], sizes: Mapping[str, int]
) -> list[str]:
    """Find what differs from the end state: each Thing of `sizes` reported, with its ConfigMaps, and nothing else."""
    found = []
    maps = {each["metadata"]["name"]: each for each in config_maps}
    left = {name: each for name, each in maps.items() if (each.get("data") or {}).get("owner")}
    here = {each["metadata"]["name"]: each for each in things}
    found += [f"Thing {name} is still there" for name in here.keys() - sizes.keys()]
    for name, size in sizes.items():
        thing = here.get(name)
        if thing is None:
            found.append(f"Thing {name} is gone")
            continue
        meta = thing["metadata"]
        conditions = {each["type"]: each for each in (thing.get("status") or {}).get("conditions", [])}
        successful = conditions.get("Successful", {})
        if successful.get("status") != "True" or successful.get("observedGeneration") != meta["generation"]:
            found.append(f"Thing {name} of generation {meta['generation']} has Successful: {successful}")
        owned = maps.get(name, {})
        owners = [each["uid"] for each in owned.get("metadata", {}).get("ownerReferences", [])]
        if owners != [meta["uid"]] or owned.get("data") != {"size": str(size), "owner": meta["uid"]}:
            found.append(f"ConfigMap {name} has owners {owners} and {owned.get('data')}; its Thing is {meta['uid']}")
        outside = maps.get(name + OUTSIDE, {})
        if outside.get("data") != {"owner": meta["uid"]}:
            found.append(f"ConfigMap {name}{OUTSIDE} has {outside.get('data')}; its Thing is {meta['uid']}")
        left.pop(name, None)
        left.pop(name + OUTSIDE, None)
    return [*found, *(f"ConfigMap {name} is still there" for name in left)]
