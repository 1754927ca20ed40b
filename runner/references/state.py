"""What objects name, and what is remembered of what they name. Pure.

Of a referenced object its version is kept and a digest of its content: all but metadata and status. The digest has a
key of this process alone, so that neither a dump of its memory nor anything that is written shows a Secret's value to
somebody who guesses. Versions are compared for equality only.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from runner.objects import Object, ObjectKey, key_of, metadata, uid_of
from runner.watches.reference_fields import WatchReference

_KEY = secrets.token_bytes(32)
_DIGEST_SIZE = 16
GONE = "is gone"
"""What happened to an object that is there no more."""
_NO_CONTENT = {"apiVersion", "kind", "metadata", "status"}


@dataclass(frozen=True, slots=True)
class ReferencedState:
    """A state of a referenced object."""

    uid: str
    version: str
    """Its resourceVersion."""
    generation: int | None
    """Where that moves with the content and only then; None else."""
    content: bytes | None
    """None where it was not read."""

    @classmethod
    def of(cls, obj: Mapping[str, Any], *, whole: bool, generation_tells: bool) -> ReferencedState:
        """Condense an object; `whole` when it is more than its metadata."""
        meta = metadata(obj)
        return cls(
            uid=uid_of(obj),
            version=str(meta.get("resourceVersion") or ""),
            generation=meta.get("generation") if generation_tells else None,
            content=_sealed(obj) if whole else None,
        )

    def lasting(self) -> str:
        """What tells this state from others, also after a restart, and shows nothing of the content."""
        return f"{self.uid}:{f'g{self.generation}' if self.generation is not None else self.version}"


def difference(old: ReferencedState | None, new: ReferencedState | None) -> str:
    """Say what happened between two states (None: there is no such object); empty when it is nothing that matters."""
    if old is None or new is None:
        return "appeared" if new is not None else GONE if old is not None else ""
    if old.uid != new.uid:
        return "was recreated"
    if old.version == new.version:
        return ""
    if old.content is not None and new.content is not None:
        return "changed" if old.content != new.content else ""
    if old.generation is not None and new.generation is not None:
        return "changed" if old.generation != new.generation else ""
    return "may have changed"


def has_to_be_read(old: ReferencedState | None, new: ReferencedState) -> bool:
    """Whether metadata alone do not tell if the content is another."""
    if new.content is not None or old is None or old.uid != new.uid or old.version == new.version:
        return False
    return old.content is not None and (old.generation is None or new.generation is None)


def names(reference: WatchReference, obj: Object) -> Iterator[ObjectKey]:
    """Yield what an object names by path or by the watch's own name. A ValueError says what is no name."""
    own = reference.namespace or key_of(obj).namespace
    if reference.name:
        yield ObjectKey(own, reference.name)
    elif reference.path is not None:
        for value in reference.path.find(obj.get("spec")):
            yield from _named(value, own, reference.path.text)


def _named(value: object, own: str, path: str) -> Iterator[ObjectKey]:
    if isinstance(value, list):
        for item in value:
            yield from _named(item, own, path)
        return
    name, namespace = (value.get("name"), value.get("namespace")) if isinstance(value, dict) else (value, None)
    if name is None or name == "":
        return
    if not isinstance(name, str) or not isinstance(namespace, str | None) or "/" in name:
        raise ValueError(f"{path} is not a reference; set a name, {{name, namespace}}, or a list of them")
    yield ObjectKey(namespace or own, name)


def _sealed(obj: Mapping[str, Any]) -> bytes:
    content = {name: value for name, value in obj.items() if name not in _NO_CONTENT}
    text = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=_DIGEST_SIZE, key=_KEY).digest()
