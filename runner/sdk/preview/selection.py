"""Resources to plan: finds `KIND/NAME`, or all resources of the watches.

Resources are in the cluster, or in files that are not applied.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runner.base import log
from runner.base.yamlfile import tree
from runner.base.yamlfile.tree import Problems
from runner.core.engine.output import instead, kind_names
from runner.core.kube.client import Client, PatchType, Selection
from runner.core.kube.discovery import ApiResource, Discovery
from runner.core.watches.watch import Watch
from runner.features.plan.trial.selection import Selector as Matching
from runner.values.errors import (
    ApiError,
    ConfigError,
    ForbiddenError,
    GoneError,
    KindNotFoundError,
    NotFoundError,
    OperatorError,
)
from runner.values.objects import (
    LAST_APPLIED,
    Object,
    ObjectKey,
    annotations_of,
    finalizers_of,
    is_deleting,
    key_of,
    metadata,
    type_name,
)

_SUFFIXES = {".yaml", ".yml", ".json"}
_STRICT = {"dryRun": "All", "fieldValidation": "Strict"}


@dataclass(frozen=True, slots=True)
class Given:
    """An object in a file."""

    place: str
    """File and line."""
    watch: Watch
    obj: Object


def given(files: Sequence[str], watches: Sequence[Watch]) -> tuple[list[Given], int]:
    """Return the objects of watched kinds in files, folders and standard input (`-`), and the number of other ones.

    Raises:
        ConfigError: a file cannot be read, or no object in the files is of a watched kind.
    """
    by_kind = {(watch.gvk.api_version, watch.gvk.kind): watch for watch in watches}
    documents = [document for file in files for document in _documents(file)]
    watched = []
    for place, obj in documents:
        watch = by_kind.get((str(obj.get("apiVersion")), str(obj.get("kind"))))
        if watch is not None and not metadata(obj).get("name"):
            raise ConfigError(f"{place}: the object has no metadata.name")
        if watch is not None and not all(isinstance(part, str) for part in key_of(obj)):
            raise ConfigError(f"{place}: name and namespace in metadata must be text; write them in quotes")
        watched += [Given(place, watch, obj)] if watch is not None else []
    if not watched:
        kinds = ", ".join(f"{kind} ({version})" for version, kind in by_kind)
        raise ConfigError(f"no object in {', '.join(files)} is of a watched kind: {kinds}")
    return watched, len(documents) - len(watched)


def _documents(file: str) -> Iterator[tuple[str, Object]]:
    """Yield the objects of a file or folder with their places, also those in lists."""
    paths = [Path(file)]
    if file != "-" and paths[0].is_dir():
        paths = sorted(path for path in paths[0].iterdir() if path.suffix in _SUFFIXES and path.is_file())
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
            for item in items if isinstance(items, list) else [value]:
                if isinstance(item, dict):
                    yield place, item
                elif item is not None:
                    raise ConfigError(f"{place}: not an object")


async def tried(client: Client, resource: ApiResource, key: ObjectKey, obj: Object) -> tuple[Object | None, Object]:
    """Return the current object (None: it does not exist) and the one after `kubectl apply`, by a dry run."""
    space = {"namespace": key.namespace} if key.namespace else {}
    desired = {**obj, "metadata": {**metadata(obj), **space}}
    try:
        before = await client.get(resource, key)
    except NotFoundError:
        return None, await client.request("POST", resource.path(key.namespace), params=_STRICT, body=desired)
    try:
        applied = dict(json.loads(annotations_of(before).get(LAST_APPLIED) or "{}"))
    except (TypeError, ValueError, RecursionError) as error:
        raise OperatorError(f"its annotation {LAST_APPLIED} is no object in JSON; remove the annotation") from error
    # kubectl adds `LAST_APPLIED` to the annotations of the file, so that it never removes all annotations.
    annotated = {**metadata(desired), "annotations": annotations_of(obj)}
    patch = _patch(applied, {**desired, "metadata": annotated})
    after = await client.patch(resource, key, patch, content_type=PatchType.MERGE, params=_STRICT)
    return before, after


def _patch(applied: Mapping[str, Any], desired: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch of `kubectl apply`: fields that were applied before, and are missing now, are removed."""
    patch: dict[str, Any] = {name: None for name in applied if name not in desired}
    for name, value in desired.items():
        old = applied.get(name)
        patch[name] = _patch(old if isinstance(old, dict) else {}, value) if isinstance(value, dict) else value
    return patch


_PAGE = 500


@dataclass(frozen=True, slots=True)
class ResourceSelection:
    """Resources that the user named."""

    kind: str
    """As for kubectl; empty: all kinds."""
    name: str
    """Empty: all resources."""
    namespace: str
    """Empty: the default namespace of the kubeconfig for a name, else all watched namespaces."""
    files: tuple[str, ...] = ()
    """Files with objects that are not applied; then kind and name are empty."""
    deletes: bool = False
    """True to plan the deletion of the object."""

    @classmethod
    def parse(
        cls, text: str, namespace: str, *, everything: bool, files: Sequence[str] = (), deletes: bool = False
    ) -> ResourceSelection:
        """Parse the arguments of the command line.

        Raises:
            ConfigError: they are not KIND/NAME, KIND with `everything`, or files alone.
        """
        if files:
            if text or everything or deletes:
                raise ConfigError("-f plans the objects in files: remove KIND/NAME, --all and --delete")
            return cls("", "", namespace, tuple(files))
        if deletes and everything:
            raise ConfigError("--delete plans the deletion of one object: write `plan --delete KIND/NAME`")
        kind, slash, name = text.partition("/")
        if everything:
            if slash:
                raise ConfigError(f"--all plans every resource: write `plan {text}`, or `plan --all {kind}`")
            return cls(kind, "", namespace)
        if not kind or not name or "/" in name:
            what = f"{text!r} names no object" if text else "no object is given"
            raise ConfigError(f"{what}: write KIND/NAME, such as Memcached/sample, or --all")
        return cls(kind, name, namespace, deletes=deletes)


@dataclass(frozen=True, slots=True)
class Target:
    """A resource to plan."""

    watch: Watch
    resource: ApiResource
    obj: Object
    """As the run sees it."""
    is_applied: bool = True
    """False if the object is that of a file, after a dry run."""
    before: Object | None = None
    """Object in the cluster that differs from that of the file."""


class Selector:
    """Finds resources."""

    def __init__(self, client: Client, watches: Sequence[Watch], namespaces: Sequence[str]) -> None:
        """`namespaces` are those that the operator watches, empty for all."""
        self._client = client
        self._discovery = Discovery(client)
        self._watches = watches
        self._namespaces = tuple(namespaces)

    async def find(self, selection: ResourceSelection) -> list[Target]:
        """Return the resources.

        Raises:
            OperatorError: there is no such watch or resource, or the watch does not select it.
        """
        if selection.files:
            return [await self._given(item, selection) for item in self._read(selection)]
        watches = await self._watches_of(selection.kind) if selection.kind else self._watches
        if not selection.name:
            return [target for watch in watches async for target in self._all(watch, selection.namespace)]
        if len(watches) > 1:
            which = ", ".join(type_name(watch.gvk) for watch in watches)
            raise ConfigError(f"{selection.kind!r} may be one of {which}: write KIND.GROUP/{selection.name}")
        target = await self._one(watches[0], selection)
        return [_deleted(target) if selection.deletes else target]

    def _read(self, selection: ResourceSelection) -> list[Given]:
        items, others = given(selection.files, self._watches)
        if others:
            log.get(__name__).warning("Objects of kinds that no watch is for are not planned", number=others)
        return items

    async def _given(self, item: Given, selection: ResourceSelection) -> Target:
        """Return the target for an object in a file."""
        resource = await self._discovery.find(item.watch.gvk)
        key = key_of(item.obj)
        namespace = key.namespace or selection.namespace or self._client.credentials.namespace or "default"
        if selection.namespace and key.namespace and selection.namespace != key.namespace:
            raise ConfigError(f"{item.place}: the object is in namespace {key.namespace}, not in {selection.namespace}")
        key = ObjectKey(namespace if resource.namespaced else "", key.name)
        self._check_watched(item.watch, key)
        try:
            before, after = await tried(self._client, resource, key, item.obj)
        except OperatorError as error:
            raise OperatorError(f"{item.place}: {item.watch.gvk.kind} {key}: {error}") from error
        target = Target(item.watch, resource, after, is_applied=False, before=before)
        selector = Matching.parse(filter(None, [item.watch.selector]), filter(None, [item.watch.field_selector]))
        if not selector.matches(after):
            raise OperatorError(f"{item.place}: {self._not_selected(target)}")
        return target

    def _check_watched(self, watch: Watch, key: ObjectKey) -> None:
        if key.namespace and self._namespaces and key.namespace not in self._namespaces:
            raise OperatorError(
                f"{watch.gvk.kind} {key} is in a namespace that is not watched: --namespace of the operator or "
                f"WATCH_NAMESPACE is {','.join(self._namespaces)}"
            )

    async def _watches_of(self, written: str) -> list[Watch]:
        """Return the watches of a kind, by its names in the watches file or in the cluster."""
        kind = written.lower()
        watches = [watch for watch in self._watches if kind in kind_names(watch.gvk)]
        if not watches:
            watches = [watch for watch in self._watches if kind in await self._names_in_cluster(watch)]
        if not watches:
            kinds = {watch.gvk.kind.lower(): watch.gvk.kind for watch in self._watches}
            close = difflib.get_close_matches(kind.partition(".")[0], kinds, n=1)
            suggestion = f"; did you mean {kinds[close[0]]}?" if close else ""
            known = ", ".join(type_name(watch.gvk) for watch in self._watches)
            raise ConfigError(f"no watch is for kind {written!r}{suggestion or f'; the watches are for {known}'}")
        return watches

    async def _names_in_cluster(self, watch: Watch) -> Iterable[str]:
        try:
            resource = await self._discovery.find(watch.gvk)
        except KindNotFoundError:
            return ()
        return {resource.plural, resource.qualified, *resource.short_names}

    async def _one(self, watch: Watch, selection: ResourceSelection) -> Target:
        resource = await self._discovery.find(watch.gvk)
        namespace = selection.namespace or self._client.credentials.namespace or "default"
        key = ObjectKey(namespace if resource.namespaced else "", selection.name)
        kind = watch.gvk.kind
        self._check_watched(watch, key)
        try:
            obj = await self._client.get(resource, key)
        except NotFoundError as error:
            where = f" in namespace {key.namespace}" if key.namespace else ""
            others = await self._elsewhere(resource, key)
            message = f"the cluster {self._client.credentials.base_url} has no {kind} {selection.name!r}{where}{others}"
            raise OperatorError(message) from error
        target = Target(watch, resource, obj)
        if not _is_finalized(target) and not await self._is_selected(target):
            raise OperatorError(self._not_selected(target))
        return target

    async def _elsewhere(self, resource: ApiResource, key: ObjectKey) -> str:
        """Return where objects of this name or of similar names are; without an answer, how to select a namespace."""
        selection, objects = Selection(metadata_only=True), list[Object]()
        try:
            for scope in (self._namespaces if resource.namespaced else ()) or ("",):
                objects += (await self._client.list_page(resource, scope, selection, _PAGE, "")).items
        except ApiError:
            return ": select another one with --namespace" if key.namespace else ""
        namespaces = sorted(other.namespace for other in map(key_of, objects) if other.name == key.name)
        if namespaces:
            return f"; it is in {', '.join(namespaces)}: use --namespace {namespaces[0]}"
        return instead(key.name, sorted(str(key_of(obj)) for obj in objects)) if objects else ""

    @staticmethod
    def _not_selected(target: Target) -> str:
        watch, kind = target.watch, target.watch.gvk.kind
        selectors = (("selector", watch.selector), ("fieldSelector", watch.field_selector))
        texts = ", ".join(f"{name} {text!r}" for name, text in selectors if text)
        return f"the watch of {kind} does not select {kind} {key_of(target.obj)}: {texts}"

    async def _is_selected(self, target: Target) -> bool:
        """Return whether the API server selects an object with the watch's selectors."""
        watch, key = target.watch, key_of(target.obj)
        if not watch.selector and not watch.field_selector:
            return True
        fields = ",".join(filter(None, (f"metadata.name={key.name}", watch.field_selector)))
        selection = Selection(labels=watch.selector, fields=fields)
        page = await self._client.list_page(target.resource, key.namespace, selection, 1, "")
        return bool(page.items)

    async def _all(self, watch: Watch, namespace: str) -> AsyncIterator[Target]:
        resource = await self._discovery.find(watch.gvk)
        watched = self._namespaces if resource.namespaced else ()
        if namespace and watched and namespace not in watched:
            raise OperatorError(f"namespace {namespace} is not watched: the operator watches {', '.join(watched)}")
        selection = Selection(labels=watch.selector, fields=watch.field_selector)
        for scope in (namespace,) if namespace and resource.namespaced else watched or ("",):
            try:
                objects = await self._list(resource, scope, selection)
            except ForbiddenError as error:
                advice = "" if scope else "; to plan the resources of one namespace, set --namespace"
                raise OperatorError(f"{error}{advice}") from error
            for obj in objects:
                yield Target(watch, resource, obj)

    async def _list(self, resource: ApiResource, namespace: str, selection: Selection) -> list[Object]:
        items: list[Object] = []
        cont = ""
        while True:
            try:
                page = await self._client.list_page(resource, namespace, selection, _PAGE, cont)
            except GoneError:  # the continue token expired
                if not cont:
                    raise
                items, cont = [], ""
                continue
            items += page.items
            cont = page.cont
            if not cont:
                return sorted(items, key=key_of)


def _deleted(target: Target) -> Target:
    """Return the target as it is after a request to delete it."""
    if is_deleting(target.obj):
        return target
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return replace(target, obj={**target.obj, "metadata": {**metadata(target.obj), "deletionTimestamp": now}})


def _is_finalized(target: Target) -> bool:
    """Return whether our finalizer runs for an object, also if no selector selects it any more."""
    finalizer = target.watch.finalizer
    return is_deleting(target.obj) and finalizer is not None and finalizer.name in finalizers_of(target.obj)
