"""`watches.yaml` as frozen values: which kind is watched, and what runs for it.

Owns: the fields of a watch, their defaults and what is wrong with them. Promises: `load` tells all errors of a file at
once, each with its line, the watch, the field and what would be right; odd things that have always been accepted are
warnings. Reads the watches file and looks for roles and playbooks; knows nothing of the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from runner.config import duration
from runner.config.paths import SearchPath, absolute, find_role, search_path
from runner.config.settings import ENGINES, EngineName
from runner.objects import GVK
from runner.watches import label_selectors, policy_fields, reference_fields, selector_fields
from runner.watches.frozen import freeze
from runner.watches.policy import FinalizerLimit, RunPolicy
from runner.watches.reference_fields import Reference
from runner.watches.spec_paths import SpecPath
from runner.yamlfile import tree
from runner.yamlfile.fields import Fields, Place
from runner.yamlfile.tree import Problem, Problems


@dataclass(frozen=True, slots=True)
class Role:
    """A role: `name` as written in watches.yaml, `path` the folder that was found for it (absolute)."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class Playbook:
    """A playbook: its absolute path."""

    path: Path


Content: TypeAlias = Role | Playbook
"""What a run executes."""


def content_name(content: Content) -> str:
    """What a run executes, as people call it: a role's name, a playbook's path."""
    return content.name if isinstance(content, Role) else str(content.path)


@dataclass(frozen=True, slots=True)
class Finalizer:
    """A watch's finalizer: `name` stands in `metadata.finalizers`; `content` runs on deletion with `vars` added.

    `content` is the watch's own role or playbook where the finalizer names none.
    """

    name: str
    content: Content
    vars: Mapping[str, Any]
    limit: FinalizerLimit | None
    """How long it is tried; None: until it succeeds."""


@dataclass(frozen=True, slots=True)
class Watch:
    """One entry of watches.yaml, with every default applied."""

    gvk: GVK
    content: Content
    vars: Mapping[str, Any]
    finalizer: Finalizer | None
    reconcile_period: float | None
    """Seconds between periodic runs; None: the flag's value; 0: off."""
    manage_status: bool
    health_conditions: bool | None
    """Whether what tools wait for is written, see `ready`; None: as the flag says."""
    watch_dependent_resources: bool
    watch_cluster_scoped_resources: bool
    watch_dependent_status: bool
    """Whether a change of a dependent's status alone is reacted to."""
    watch_annotations_changes: bool
    max_runner_artifacts: int
    """Run folders kept per object; -1 keeps none."""
    snake_case_parameters: bool
    snake_case_except: tuple[SpecPath, ...]
    """Where the keys are data: from there on they stay as they are written."""
    mark_unsafe: bool
    selector: str
    """Label selector in the API's own spelling (`a=b,c in (d,e)`); empty: all objects."""
    field_selector: str
    """Field selector in the API's own spelling (`metadata.name=main`); empty: all objects."""
    blacklist: frozenset[GVK]
    references: tuple[Reference, ...]
    """What objects name without owning it; its change runs them."""
    service_account: str
    """As which service account its runs call the API server: `name` in the operator's own namespace, or
    `namespace/name`; empty: as the operator itself."""
    policy: RunPolicy
    skip_unchanged: bool
    """Whether runs for the operator's start and for periods are left out where nothing has changed."""
    engine: EngineName | None
    """How its runs are started; None: as the flag says."""
    line: int
    """Where the entry begins in watches.yaml, counted from 1."""


@dataclass(frozen=True, slots=True)
class LoadedWatches:
    """A whole watches.yaml: its entries in their order, and what was odd about it, a sentence each."""

    watches: tuple[Watch, ...]
    warnings: tuple[str, ...]


def load(path: Path, *, environ: Mapping[str, str], cwd: Path, roles_path: str, collections_path: str) -> LoadedWatches:
    """Read a watches file. A ConfigError holds all that is wrong with it, a line each."""
    places = search_path(cwd=cwd, roles_path=roles_path, collections_path=collections_path, environ=environ)
    problems = Problems()
    watches = examine(path, environ=environ, cwd=cwd, places=places, problems=problems)
    problems.raise_errors()
    return LoadedWatches(watches, problems.warning_lines())


def examine(
    path: Path, *, environ: Mapping[str, str], cwd: Path, places: SearchPath, problems: Problems
) -> tuple[Watch, ...]:
    """Read a watches file, gather what is wrong with it in `problems`, and return the entries that can be used.

    A file that cannot be read at all is a ConfigError.
    """
    source = tree.expand(str(path), tree.read(cwd / path, str(path)), environ)
    place = Place(source, problems, "")
    roots = tree.documents(source, problems)
    if not roots:
        if not problems.errors:
            problems.errors.append(Problem(source.file, 0, "", f"is empty; {_SHAPE}"))
        return ()
    root, *others = roots
    if others:
        place.warn(others[0], "", "a second document begins here; only the first is read")
    for line, key, first in tree.repeated_keys(source, root):
        message = f"{key!r} is given twice (first in line {first}); this one counts"
        problems.warnings.append(Problem(source.file, line, "", message))
    if not isinstance(root, yaml.SequenceNode):
        place.error(root, "", f"is {tree.kind_of(root)}; {_SHAPE}")
        return ()
    if not root.value:
        place.warn(root, "", "the list is empty, so nothing is watched")
    return _entries(root, place, _Surroundings(cwd, places))


_SHAPE = "write a list of watches, each begun by `- ` and with version, kind, and role or playbook"
_KIND_FIELDS = ("group", "version", "kind")
_WATCH_FIELDS = (
    *_KIND_FIELDS,
    "role",
    "playbook",
    "vars",
    "reconcilePeriod",
    "manageStatus",
    "healthConditions",
    "watchDependentResources",
    "watchClusterScopedResources",
    "watchDependentStatus",
    "watchAnnotationsChanges",
    "maxRunnerArtifacts",
    "snakeCaseParameters",
    "snakeCaseExcept",
    "markUnsafe",
    "selector",
    "fieldSelector",
    "name",
    "blacklist",
    "references",
    "serviceAccount",
    *policy_fields.FIELDS,
    "skipUnchanged",
    "engine",
    "finalizer",
)
_FINALIZER_FIELDS = ("name", "role", "playbook", "vars", "limit")
_DEFAULT_ARTIFACTS = 20


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What an entry's paths are relative to."""

    cwd: Path
    places: SearchPath


def _entries(root: yaml.SequenceNode, place: Place, around: _Surroundings) -> tuple[Watch, ...]:
    watches: list[Watch] = []
    lines: dict[GVK, int] = {}
    for number, node in enumerate(root.value, start=1):
        here = replace(place, subject=f"watch {number}")
        if not isinstance(node, yaml.MappingNode):
            here.error(node, "", f"is {tree.kind_of(node)}; write a mapping with version, kind, and role or playbook")
            continue
        # Read silently first, so that every problem, also one of group, version or kind, can name the watch.
        gvk = _kind(Fields(node, replace(here, problems=Problems()), _WATCH_FIELDS))
        fields = Fields(node, replace(here, subject=str(gvk)) if gvk else here, _WATCH_FIELDS)
        _kind(fields)
        line = place.source.line(node.start_mark)
        if gvk in lines:
            fields.error("kind", f"this kind has a watch already, in line {lines[gvk]}; a kind has one watch")
        watch = _watch(fields, gvk or GVK("", "", ""), around, line)
        if gvk is not None:
            lines.setdefault(gvk, line)
        if gvk is not None and watch is not None:
            watches.append(watch)
    return tuple(watches)


def _kind(fields: Fields) -> GVK | None:
    """Read group, version and kind; None, with errors, when they name no kind."""
    gvk = GVK(*(fields.text(name) for name in _KIND_FIELDS))
    fields.require("version", "write the API's version, such as v1alpha1")
    fields.require("kind", "write the kind as its objects have it, such as Memcached")
    for name, value in (("group", gvk.group), ("version", gvk.version)):
        if value and not label_selectors.is_subdomain(value):
            fields.warn(name, f"no API has the {name} {value!r}; write it as in apiVersion, lower case, without '/'")
    return gvk if gvk.version and gvk.kind else None


def _watch(fields: Fields, gvk: GVK, around: _Surroundings, line: int) -> Watch | None:
    content = _content(fields, around)
    if content is None and not fields.given("role") and not fields.given("playbook"):
        fields.error("", "has neither role nor playbook; write one of them")
    finalizer = _finalizer(fields, content, around)
    watch = partial(
        Watch,
        gvk=gvk,
        vars=freeze(fields.values("vars")),
        finalizer=finalizer,
        reconcile_period=_reconcile_period(fields),
        manage_status=fields.boolean("manageStatus", default=True),
        health_conditions=_health_conditions(fields),
        watch_dependent_resources=fields.boolean("watchDependentResources", default=True),
        watch_cluster_scoped_resources=fields.boolean("watchClusterScopedResources", default=False),
        watch_dependent_status=fields.boolean("watchDependentStatus", default=False),
        watch_annotations_changes=fields.boolean("watchAnnotationsChanges", default=False),
        max_runner_artifacts=_artifacts(fields),
        snake_case_parameters=fields.boolean("snakeCaseParameters", default=True),
        snake_case_except=_snake_case_except(fields),
        mark_unsafe=fields.boolean("markUnsafe", default=True),
        selector=selector_fields.read(fields),
        field_selector=selector_fields.read_fields(fields),
        blacklist=_blacklist(fields),
        references=reference_fields.read(fields),
        service_account=_service_account(fields),
        policy=policy_fields.read(fields),
        skip_unchanged=fields.boolean("skipUnchanged", default=False),
        engine=_engine(fields),
        line=line,
    )
    # Whatever is wrong with the other fields has been told by now; without content there is nothing to run.
    return watch(content=content) if content else None


def _content(fields: Fields, around: _Surroundings) -> Content | None:
    """Find what runs; None when neither is given, or, with an error, when it is not there."""
    role, playbook = fields.text("role"), fields.text("playbook")
    if playbook:
        if role:
            fields.warn("role", "role and playbook are both given: the playbook runs; remove the other")
        path = absolute(playbook, around.cwd)
        if not path.is_file():
            fields.error("playbook", f"{playbook!r} was not found; tried {path}")
            return None
        return Playbook(path)
    if not role:
        return None
    found = find_role(role, around.places)
    if found.path is None:
        fields.error("role", f"{role!r} was not found; tried {', '.join(map(str, found.tried))}")
        return None
    return Role(role, found.path)


def _finalizer(fields: Fields, own: Content | None, around: _Surroundings) -> Finalizer | None:
    given = fields.fields("finalizer", _FINALIZER_FIELDS)
    if given is None:
        return None
    name = given.text("name")
    given.require("name", "write it like cache.example.com/finalizer")
    problem = label_selectors.key_problem(name)
    if name and problem:
        given.error("name", problem)
    content, variables, limit = _content(given, around), given.values("vars"), policy_fields.limit(given)
    if content is None and not given.given("role") and not given.given("playbook"):
        content = own
        written = given.given("vars")
        if not variables and (written is None or not written.value):
            given.error("", "has nothing to run; write role, playbook, or vars for the watch's own role or playbook")
    return None if content is None else Finalizer(name, content, freeze(variables), limit)


def _reconcile_period(fields: Fields) -> float | None:
    text = fields.text("reconcilePeriod")
    if not isinstance(fields.given("reconcilePeriod"), yaml.ScalarNode):
        return None
    if text.lower() == "off":
        return 0.0
    try:
        seconds = duration.parse(text)
    except ValueError as error:
        fields.error("reconcilePeriod", f"{error}, or off")
        return None
    if seconds < 0:
        fields.warn("reconcilePeriod", f"{text!r} is negative, which turns periodic runs off; write off")
        return 0.0
    return seconds or None


def _health_conditions(fields: Fields) -> bool | None:
    field = "healthConditions"
    return fields.boolean(field, default=True) if fields.is_written(field) else None


def _engine(fields: Fields) -> EngineName | None:
    text = fields.text("engine")
    found = next((name for name in ENGINES if name == text.lower()), None)
    if text and found is None:
        fields.error("engine", f"{text!r} is no engine; write {', '.join(ENGINES[:-1])} or {ENGINES[-1]}")
    return found


def _artifacts(fields: Fields) -> int:
    number = fields.integer("maxRunnerArtifacts", default=_DEFAULT_ARTIFACTS)
    if number < -1:
        fields.error("maxRunnerArtifacts", f"{number} is no count; write how many to keep, or -1 to keep none")
    return number or _DEFAULT_ARTIFACTS


def _snake_case_except(fields: Fields) -> tuple[SpecPath, ...]:
    field = "snakeCaseExcept"
    paths: list[SpecPath] = []
    for text in fields.texts(field):
        try:
            paths.append(SpecPath.parse(text))
        except ValueError as error:
            fields.error(field, str(error))
    if paths and not fields.boolean("snakeCaseParameters", default=True):
        fields.warn(field, "has no effect, since snakeCaseParameters is false and all keys stay as they are written")
    return tuple(paths)


def _blacklist(fields: Fields) -> frozenset[GVK]:
    kinds: list[GVK] = []
    for item in fields.items("blacklist", _KIND_FIELDS):
        gvk = GVK(*(item.text(name) for name in _KIND_FIELDS))
        if not gvk.version or not gvk.kind:
            item.warn("", "matches nothing: it needs version and kind (and group, unless it is the core group)")
        kinds.append(gvk)
    return frozenset(kinds)


def _service_account(fields: Fields) -> str:
    field = "serviceAccount"
    text = fields.text(field)
    namespace, slash, name = text.rpartition("/")
    if not text:
        written = fields.given(field)
        if fields.is_written(field) and (written is None or isinstance(written, yaml.ScalarNode)):
            # Perhaps a variable that is set to nothing: that must not end in more rights than were meant.
            fields.error(field, "is empty; name an account, or leave it out to run with the operator's own rights")
    elif not label_selectors.is_subdomain(name) or (
        slash and (not label_selectors.is_subdomain(namespace) or "." in namespace)
    ):
        fields.error(field, f"{text!r} is no service account; write its name, or namespace/name")
    return text
