"""Custom resources in files that are not applied: `plan -f`. Reads files; the API server receives dry runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, NotFoundError
from runner.kube.client import Client, PatchType
from runner.kube.discovery import ApiResource
from runner.objects import LAST_APPLIED, Object, ObjectKey, metadata
from runner.watches.watch import Watch
from runner.yamlfile import tree
from runner.yamlfile.tree import Problems

_SUFFIXES = {".yaml", ".yml", ".json"}
_STRICT = {"dryRun": "All", "fieldValidation": "Strict"}


@dataclass(frozen=True, slots=True)
class Given:
    """An object in a file."""

    place: str
    """File and line."""
    watch: Watch
    obj: Object


def read(files: Sequence[str], watches: Sequence[Watch]) -> tuple[list[Given], int]:
    """Return the objects of watched kinds in files, folders and standard input (`-`), and the number of other ones.

    Raises:
        ConfigError: a file cannot be read, or no object in the files is of a watched kind.
    """
    by_kind = {(watch.gvk.api_version, watch.gvk.kind): watch for watch in watches}
    documents = [each for file in files for each in _documents(file)]
    found = []
    for place, obj in documents:
        watch = by_kind.get((str(obj.get("apiVersion")), str(obj.get("kind"))))
        if watch is not None and not metadata(obj).get("name"):
            raise ConfigError(f"{place}: the object has no metadata.name")
        found += [Given(place, watch, obj)] if watch is not None else []
    if not found:
        kinds = ", ".join(f"{kind} ({version})" for version, kind in by_kind)
        raise ConfigError(f"no object in {', '.join(files)} is of a watched kind: {kinds}")
    return found, len(documents) - len(found)


def _documents(file: str) -> Iterator[tuple[str, Object]]:
    """Yield the objects of a file or folder with their places, also those in lists."""
    paths = [Path(file)]
    if file != "-" and paths[0].is_dir():
        paths = sorted(each for each in paths[0].iterdir() if each.suffix in _SUFFIXES and each.is_file())
    for path in paths:
        text = sys.stdin.read() if file == "-" else tree.read(path, str(path))
        source, problems = tree.expand("standard input" if file == "-" else str(path), text, {}), Problems()
        roots = tree.documents(source, problems)
        problems.raise_errors()
        for root in roots:
            place = f"{source.file}:{source.line(root.start_mark)}"
            try:
                value = tree.plain(root)
            except ValueError as error:
                raise ConfigError(f"{place}: {error}") from error
            items = value.get("items") if isinstance(value, dict) and str(value.get("kind")).endswith("List") else None
            for each in items if isinstance(items, list) else [value]:
                if isinstance(each, dict):
                    yield place, each
                elif each is not None:
                    raise ConfigError(f"{place}: not an object")


async def tried(client: Client, resource: ApiResource, key: ObjectKey, obj: Object) -> tuple[Object | None, Object]:
    """Return the current object (None: it does not exist) and the one after `kubectl apply`, by a dry run."""
    space = {"namespace": key.namespace} if key.namespace else {}
    wanted = {**obj, "metadata": {**metadata(obj), **space}}
    try:
        before = await client.get(resource, key)
    except NotFoundError:
        return None, await client.request("POST", resource.path(key.namespace), params=_STRICT, body=wanted)
    applied = (metadata(before).get("annotations") or {}).get(LAST_APPLIED)
    patch = _patch(json.loads(applied) if applied else {}, wanted)
    after = await client.patch(resource, key, patch, content_type=PatchType.MERGE, params=_STRICT)
    return before, after


def _patch(applied: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch of `kubectl apply`: fields that were applied before, and are missing now, are removed."""
    patch: dict[str, Any] = {name: None for name in applied if name not in wanted}
    for name, value in wanted.items():
        old = applied.get(name)
        patch[name] = _patch(old if isinstance(old, dict) else {}, value) if isinstance(value, dict) else value
    return patch
