"""Reader of `watches.yaml`: fields of a watch, their defaults, and their errors.

`load` reports all errors of a file at once, each with line, watch, field and advice. Input that older operators accept
is at most a warning. Reads files only, never the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import yaml

from runner.base.config import duration, paths
from runner.base.config.paths import SearchPath, SearchResult, find_file, find_role
from runner.base.config.settings import Settings
from runner.base.yamlfile import tree
from runner.base.yamlfile.fields import FieldContext, Fields
from runner.base.yamlfile.tree import Problem, Problems
from runner.core.watches import declared, field, policy, selectors
from runner.core.watches.field import Entry, FeatureFields
from runner.core.watches.policy import FinalizerLimit, RunMode, RunPolicy, StatusTrigger
from runner.core.watches.spec_paths import SpecPath
from runner.values.errors import ConfigError
from runner.values.objects import GVK
from runner.values.slots import EMPTY, Slot, Slots

_DEFAULT_FILE = Path("watches.yaml")


@dataclass(frozen=True, slots=True)
class Role:
    """A role: `name` as in watches.yaml, `path` its absolute folder."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class Playbook:
    """A playbook and its absolute path."""

    path: Path


Content: TypeAlias = Role | Playbook
"""Role or playbook of a run."""


def content_name(content: Content) -> str:
    """Return the name of a role or the path of a playbook."""
    return content.name if isinstance(content, Role) else str(content.path)


@dataclass(frozen=True, slots=True)
class Finalizer:
    """Finalizer of a watch: `name` for `metadata.finalizers`; `content` runs on deletion with additional `vars`."""

    name: str
    content: Content
    vars: Mapping[str, Any]
    limit: FinalizerLimit | None
    """None: retry until it succeeds."""


INPUTS: Slot[Mapping[str, Any]] = Slot("inputs of runs", {})
"""Slot of a watch: values of features on which its runs depend, by name. A change outdates results."""
INVENTORIES: Slot[tuple[Path, ...]] = Slot("inventories", ())
"""Slot of a watch: inventories of the project that features add to its runs."""
NEXT_CHANGE = Slot("next change", "the object changes")
"""Slot of a watch: the event that ends the wait after a terminal failure, for messages."""
IS_REMOTE: Slot[bool] = Slot("remote runs", default=False)
"""Slot of a watch: True if its runs are on machines with other clocks than the operator's."""


@dataclass(frozen=True, slots=True)
class Watch:
    """One entry of watches.yaml with all defaults."""

    gvk: GVK
    content: Content
    vars: Mapping[str, Any]
    finalizer: Finalizer | None
    reconcile_period: float | None
    """Seconds between periodic runs; None: the flag's value; 0: off."""
    min_reconcile_period: float
    """Shortest period that an annotation can set, in seconds; 0: no limit."""
    max_verbosity: int
    """Highest verbosity that an annotation can set."""
    manage_status: bool
    health_conditions: bool
    """Whether to write the conditions of kstatus."""
    watch_dependent_resources: bool
    watch_cluster_scoped_resources: bool
    watch_dependent_status: StatusTrigger
    """Changes of only the status of a dependent or a reference that start a run."""
    watch_annotations_changes: bool
    max_runner_artifacts: int
    """Number of run folders to keep per object; -1: none."""
    snake_case_parameters: bool
    snake_case_except: tuple[SpecPath, ...]
    """Paths below which keys are data and keep their spelling."""
    mark_unsafe: bool
    allow_ansible_variables: frozenset[str]
    """Variables that a spec may set although Ansible itself interprets them, such as `ansible_user`."""
    selector: str
    """Label selector as the API writes it (`a=b,c in (d,e)`); empty: all objects."""
    field_selector: str
    """Field selector as the API writes it (`metadata.name=main`); empty: all objects."""
    blacklist: frozenset[GVK]
    own_namespace_only: bool
    """Whether a run of a namespaced object can use the API in that namespace only."""
    owner_annotations: bool
    """Whether annotations about owners in objects that a role writes have an effect."""
    service_account: str
    """Service account of the runs' API calls: `name` in the operator's namespace, or `namespace/name`; empty: the
    operator's own."""
    policy: RunPolicy
    mode: RunMode
    """Whether runs execute the role, plan it, or wait for an approval."""
    line: int
    """First line of the entry in watches.yaml, counted from 1."""
    more: Slots = EMPTY
    """Values of the fields of features."""

    @property
    def contents(self) -> tuple[Content, ...]:
        """Contents that its runs execute: its own, and that of the finalizer."""
        return (self.content, *([self.finalizer.content] if self.finalizer else []))

    def as_finalizer(self) -> Watch:
        """Return the watch with the finalizer's role and vars instead of its own."""
        if self.finalizer is None:
            return self
        return replace(self, content=self.finalizer.content, vars={**self.vars, **self.finalizer.vars})


@dataclass(frozen=True, slots=True)
class LoadedWatches:
    """Entries of watches.yaml in order, and warnings about the file."""

    watches: tuple[Watch, ...]
    warnings: tuple[str, ...]


def load_configured(
    settings: Settings, environ: Mapping[str, str], cwd: Path, features: Sequence[FeatureFields]
) -> LoadedWatches:
    """Read the operator's watches file. Raises ConfigError with a line for each error."""
    return load(
        settings.watches_file,
        environ=environ,
        cwd=cwd,
        roles_path=settings.ansible_roles_path,
        collections_path=settings.ansible_collections_path,
        features=features,
    )


def load(
    path: Path,
    *,
    environ: Mapping[str, str],
    cwd: Path,
    roles_path: str,
    collections_path: str,
    features: Sequence[FeatureFields],
) -> LoadedWatches:
    """Read a watches file, also the fields of these features. Raises ConfigError with a line for each error."""
    search_path = paths.search_path(cwd=cwd, roles_path=roles_path, collections_path=collections_path, environ=environ)
    problems = Problems()
    watches = examine(path, environ=environ, cwd=cwd, search_path=search_path, features=features, problems=problems)
    problems.raise_errors()
    return LoadedWatches(watches, problems.warning_lines())


def examine(
    path: Path,
    *,
    environ: Mapping[str, str],
    cwd: Path,
    search_path: SearchPath,
    features: Sequence[FeatureFields],
    problems: Problems,
) -> tuple[Watch, ...]:
    """Read a watches file, add its errors and warnings to `problems`, and return the valid entries.

    Raises ConfigError if the file cannot be read.
    """
    source = tree.expand(str(path), _text(cwd, path), environ)
    context = FieldContext(source, problems, "", removed=declared.REMOVED)
    roots = tree.documents(source, problems)
    if not roots:
        if not problems.errors:
            problems.errors.append(Problem(source.file, 0, "", f"file is empty: expected {_SHAPE}"))
        return ()
    root, *others = roots
    if others:
        context.warn(others[0], "", "only the first document of the file is used")
    for line, key, first in tree.repeated_keys(source, root):
        message = f"duplicate key {key!r} (first in line {first}); the last value is used"
        problems.warnings.append(Problem(source.file, line, "", message))
    if not isinstance(root, yaml.SequenceNode):
        context.error(root, "", f"found {tree.kind_of(root)}, expected {_SHAPE}")
        return ()
    if not root.value:
        context.warn(root, "", "the list is empty: the operator watches nothing")
    return _entries(root, context, _Reader(cwd, search_path, features))


def _text(cwd: Path, path: Path) -> str:
    """Read the watches file. Outside of a project's folder, the error names that folder, or how to make one."""
    if path == _DEFAULT_FILE and not (cwd / path).exists():
        above = next((parent for parent in cwd.absolute().parents if (parent / path).is_file()), None)
        advice = f"the project's folder {above}" if above else "a project's folder, or create a project with `init`"
        raise ConfigError(f"no {path} in this folder ({cwd.absolute()}); run the command in {advice}")
    return tree.read(cwd / path, str(path))


_SHAPE = "a list of watches (`- …`), each with version, kind, and role or playbook"
_KIND_FIELDS = field.names(declared.BLACKLIST)
_DEFAULT_ARTIFACTS = 20
_HIGHEST_VERBOSITY = 7
_SHORTEST_PERIOD = 5.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """Folders to resolve the paths of an entry, and the features that read fields of it."""

    cwd: Path
    search_path: SearchPath
    features: Sequence[FeatureFields] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the fields of an entry."""
        return tuple(field.name for field in declared.with_features(self.features)[""])


def _entries(root: yaml.SequenceNode, context: FieldContext, reader: _Reader) -> tuple[Watch, ...]:
    names = reader.names
    watches: list[Watch] = []
    lines: dict[tuple[str, str], tuple[GVK, int]] = {}
    for number, node in enumerate(root.value, start=1):
        entry = replace(context, subject=f"watch {number}")
        if not isinstance(node, yaml.MappingNode):
            entry.error(
                node, "", f"found {tree.kind_of(node)}, expected a mapping with version, kind, and role or playbook"
            )
            continue
        # The first read discards problems: every reported problem includes the kind.
        gvk = _kind(Fields(node, replace(entry, problems=Problems()), names))
        fields = Fields(node, replace(entry, subject=str(gvk)) if gvk else entry, names)
        _kind(fields)
        line = context.source.line(node.start_mark)
        first, first_line = lines.get((gvk.group, gvk.kind), (None, 0)) if gvk is not None else (None, 0)
        if first is not None and first == gvk:
            fields.error("kind", f"duplicate watch of this kind (first in line {first_line}); remove one of them")
        elif first is not None:
            fields.error(
                "version",
                f"the kind is watched in version {first.version} (line {first_line}), and each object has all "
                "versions, so it would have two runs at the same time; remove one of them",
            )
        watch = _watch(fields, gvk or GVK("", "", ""), reader, line)
        if gvk is not None:
            lines.setdefault((gvk.group, gvk.kind), (gvk, line))
        if gvk is not None and watch is not None:
            watches.append(watch)
    return tuple(watches)


def _kind(fields: Fields) -> GVK | None:
    """Return the kind; None, with errors, if version or kind is missing."""
    gvk = GVK(*(fields.text(name) for name in _KIND_FIELDS))
    fields.require("version", "set the API version, such as v1alpha1")
    fields.require("kind", "set the kind, such as Memcached")
    for name, value in (("group", gvk.group), ("version", gvk.version)):
        if value and not selectors.is_subdomain(value):
            fields.warn(name, f"invalid {name} {value!r}: use the {name} of apiVersion, in lower case and without '/'")
    return gvk if gvk.version and gvk.kind else None


def _watch(fields: Fields, gvk: GVK, reader: _Reader, line: int) -> Watch | None:
    content = _content(fields, reader)
    if content is None and not fields.node("role") and not fields.node("playbook"):
        fields.error("", "no role and no playbook: set one of them")
    finalizer = _finalizer(fields, gvk, content, reader)
    more = EMPTY
    for feature in reader.features:
        more = feature.read(Entry(fields, gvk, reader.cwd, reader.search_path.image), more)
    watch = partial(
        Watch,
        gvk=gvk,
        vars=_frozen(fields.values("vars")),
        finalizer=finalizer,
        reconcile_period=_reconcile_period(fields),
        min_reconcile_period=_min_reconcile_period(fields),
        max_verbosity=_max_verbosity(fields),
        watch_dependent_status=policy.status_trigger(fields),
        max_runner_artifacts=_artifacts(fields),
        snake_case_except=_snake_case_except(fields),
        allow_ansible_variables=frozenset(fields.texts("allowAnsibleVariables")),
        selector=selectors.read_labels(fields),
        field_selector=selectors.read_fields(fields),
        blacklist=_blacklist(fields),
        service_account=_service_account(fields),
        policy=policy.read(fields),
        mode=_mode(fields),
        line=line,
        more=more,
        **_booleans(fields),
    )
    # After all fields, so that their errors are reported too.
    return watch(content=content) if content else None


def _booleans(fields: Fields) -> dict[str, Any]:
    """Return the attributes of `Watch` whose values are booleans with a default."""
    booleans = (field for field in declared.FIELDS[""] if field.type == "boolean" and field.default)
    return {field.attribute: fields.boolean(field.name, default=field.default == "true") for field in booleans}


def _content(fields: Fields, reader: _Reader) -> Content | None:
    """Return the role or playbook; None if neither is set, or, with an error, if it does not exist."""
    role, playbook = fields.text("role"), fields.text("playbook")
    if playbook:
        if role:
            fields.warn("role", "role and playbook are both set: role is ignored; remove one of them")
        result = find_file(playbook, reader.cwd, reader.search_path.image)
        if result.path is not None:
            return Playbook(result.path)
        _report_missing(fields, "playbook", playbook, result)
        return None
    if not role:
        return None
    result = find_role(role, reader.search_path, cwd=reader.cwd)
    if result.path is not None:
        return Role(role, result.path)
    _report_missing(fields, "role", role, result)
    return None


def _report_missing(fields: Fields, field: str, name: str, result: SearchResult) -> None:
    fields.error(field, f"{name!r} not found; searched {', '.join(map(str, result.searched))}")


def _finalizer(fields: Fields, gvk: GVK, own: Content | None, reader: _Reader) -> Finalizer | None:
    finalizer = fields.fields("finalizer", field.names(declared.FINALIZER))
    if finalizer is None:
        return None
    name = finalizer.text("name")
    finalizer.require("name", "use a name such as cache.example.com/finalizer")
    problem = selectors.key_problem(name)
    if name and problem:
        finalizer.error("name", problem)
    elif name and "/" not in name and selectors.is_builtin_group(gvk.group):
        finalizer.error(
            "name", f"the API server refuses {name!r} without a domain; use a name such as example.com/{name}"
        )
    content, variables, limit = _content(finalizer, reader), finalizer.values("vars"), policy.limit(finalizer)
    if content is None and not finalizer.node("role") and not finalizer.node("playbook"):
        content = own
        written = finalizer.node("vars")
        if not variables and (written is None or not written.value):
            finalizer.error("", "nothing to run: set role, playbook, or vars for the role or playbook of the watch")
    return None if content is None else Finalizer(name, content, _frozen(variables), limit)


def _frozen(value: Any) -> Any:
    """Return plain JSON values as read-only mappings and tuples."""
    if isinstance(value, dict):
        return MappingProxyType({key: _frozen(item) for key, item in value.items()})
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _reconcile_period(fields: Fields) -> float | None:
    text = fields.text("reconcilePeriod")
    if not isinstance(fields.node("reconcilePeriod"), yaml.ScalarNode):
        return None
    if text.lower() == "off":
        return 0.0
    try:
        seconds = duration.parse(text)
    except ValueError as error:
        fields.error("reconcilePeriod", f"{error}, or off")
        return None
    if seconds < 0:
        fields.warn("reconcilePeriod", f"negative duration {text!r} disables periodic runs; use off")
        return 0.0
    return seconds or None


def _mode(fields: Fields) -> RunMode:
    mode = policy.mode(fields)
    if mode != "apply" and not fields.boolean("manageStatus", default=True):
        fields.error("mode", f"{mode} needs the status, which contains the plan: remove manageStatus: false")
    return mode


def _min_reconcile_period(fields: Fields) -> float:
    seconds = policy.span(fields, "minReconcilePeriod", off=True)
    return _SHORTEST_PERIOD if seconds is None else seconds


def _max_verbosity(fields: Fields) -> int:
    field = "maxVerbosity"
    number = fields.integer(field, default=_HIGHEST_VERBOSITY)
    if not 0 <= number <= _HIGHEST_VERBOSITY:
        fields.error(field, f"invalid number {number}: use a whole number from 0 to {_HIGHEST_VERBOSITY}")
    return number


def _artifacts(fields: Fields) -> int:
    number = fields.integer("maxRunnerArtifacts", default=_DEFAULT_ARTIFACTS)
    if number < -1:
        fields.error(
            "maxRunnerArtifacts", f"invalid number {number}: use the number of run folders to keep, or -1 to keep none"
        )
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
        fields.warn(field, "no effect, because snakeCaseParameters is false and no key is converted")
    return tuple(paths)


def _blacklist(fields: Fields) -> frozenset[GVK]:
    kinds: list[GVK] = []
    for item in fields.items("blacklist", _KIND_FIELDS):
        gvk = GVK(*(item.text(name) for name in _KIND_FIELDS))
        if not gvk.version or not gvk.kind:
            item.warn("", "matches nothing: set version and kind, and group unless it is the core group")
        kinds.append(gvk)
    return frozenset(kinds)


def _service_account(fields: Fields) -> str:
    field = "serviceAccount"
    text = fields.text(field)
    namespace, slash, name = text.rpartition("/")
    if not text:
        written = fields.node(field)
        if fields.is_present(field) and (written is None or isinstance(written, yaml.ScalarNode)):
            # Possibly an empty variable, which must not grant more permissions than intended.
            fields.error(
                field, "empty: set a service account, or remove the field to run with the operator's permissions"
            )
    elif not selectors.is_subdomain(name) or (slash and (not selectors.is_subdomain(namespace) or "." in namespace)):
        fields.error(field, f"invalid service account {text!r}: use name or namespace/name")
    return text
