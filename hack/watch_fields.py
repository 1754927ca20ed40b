"""What stands in the reference of watches.yaml: one entry for each field.

Owns the words. That no field is missing, that types, defaults and examples are those of the reader,
`runner.watches.watch`, is shown by tests/unit/docs/test_reference.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Type = Literal["text", "boolean", "whole number", "number", "duration", "mapping", "list"]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of watches.yaml."""

    path: str
    """As errors name it: `retry.delay`, `references[].path`."""
    type: Type
    default: str
    """As one would write it; empty: nothing that could be written."""
    known: str
    """Whether the Go operator has it."""
    meaning: str
    example: str
    """A fragment of an entry, in YAML's flow style."""


YES, NEW = "yes", "new"

WATCH = (
    Field("group", "text", "''", YES, "the kind's API group; empty for the core group", "group: cache.example.com"),
    Field("version", "text", "", YES, "the kind's version; needed", "version: v1alpha1"),
    Field("kind", "text", "", YES, "the kind as its objects have it; needed. A kind has one entry", "kind: Memcached"),
    Field("role", "text", "", YES, "a role's name, its path, or `namespace.collection.role`", "role: memcached"),
    Field("playbook", "text", "", YES, "a playbook's path; wins over `role`", "playbook: playbooks/site.yml"),
    Field("vars", "mapping", "{}", YES, "variables for each run; they win over the spec", "vars: {tier: gold}"),
    Field(
        "reconcilePeriod",
        "duration",
        "0s",
        YES,
        "time between periodic runs; `0s` is the value of `--reconcile-period` (10h), `off` none (`off` is new)",
        "reconcilePeriod: 1h",
    ),
    Field("manageStatus", "boolean", "true", YES, "write conditions", "manageStatus: false"),
    Field(
        "healthConditions",
        "boolean",
        "",
        NEW,
        "write `Ready`, `Reconciling`, `Stalled` and `observedGeneration` ([status.md](status.md)); default: as "
        "`--health-conditions` says, which is true",
        "healthConditions: false",
    ),
    Field(
        "watchDependentResources",
        "boolean",
        "true",
        YES,
        "a change of what a run made runs its owner",
        "watchDependentResources: false",
    ),
    Field(
        "watchClusterScopedResources",
        "boolean",
        "false",
        YES,
        "the same for cluster-scoped objects that a namespaced object made",
        "watchClusterScopedResources: true",
    ),
    Field(
        "watchDependentStatus",
        "boolean",
        "false",
        NEW,
        "also a change of a dependent's status alone",
        "watchDependentStatus: true",
    ),
    Field(
        "watchAnnotationsChanges",
        "boolean",
        "false",
        YES,
        "a change of the object's annotations runs it",
        "watchAnnotationsChanges: true",
    ),
    Field(
        "maxRunnerArtifacts",
        "whole number",
        "20",
        YES,
        "runs whose output is kept for each object; 0 is the default, -1 (new) keeps none",
        "maxRunnerArtifacts: 5",
    ),
    Field(
        "snakeCaseParameters",
        "boolean",
        "true",
        YES,
        "keys of the spec become snake_case, at every depth",
        "snakeCaseParameters: false",
    ),
    Field(
        "snakeCaseExcept",
        "list",
        "[]",
        NEW,
        "places in the spec whose keys stay as they are ([watches.md](watches.md#keys-that-are-data))",
        "snakeCaseExcept: [spec.nodeSelector]",
    ),
    Field(
        "markUnsafe",
        "boolean",
        "true",
        "yes, default `false`",
        "strings of the object are never evaluated as templates",
        "markUnsafe: false",
    ),
    Field(
        "selector",
        "mapping",
        "",
        YES,
        "labels that an object has to have; the API server selects",
        "selector: {matchLabels: {tier: gold}}",
    ),
    Field(
        "fieldSelector",
        "text",
        "",
        NEW,
        "conditions on fields that an object has to meet ([watches.md](watches.md#which-objects))",
        "fieldSelector: metadata.namespace!=kube-system",
    ),
    Field("name", "text", "", NEW, "the one object that is meant, in each watched namespace", "name: main"),
    Field(
        "blacklist",
        "list",
        "[]",
        YES,
        "kinds that are neither watched as dependents nor read from memory",
        "blacklist: [{version: v1, kind: ConfigMap}]",
    ),
    Field(
        "references",
        "list",
        "[]",
        NEW,
        "objects that the spec names and whose change runs the object ([watches.md](watches.md#what-objects-refer-to))",
        "references: [{version: v1, kind: Secret, path: spec.passwordSecret}]",
    ),
    Field(
        "serviceAccount",
        "text",
        "",
        NEW,
        "as whom runs call the API server, `name` or `namespace/name` ([proxy.md](proxy.md#runs-with-fewer-rights))",
        "serviceAccount: memcached-runs",
    ),
    Field("runTimeout", "duration", "", NEW, "how long a run may take; default: `--run-timeout`", "runTimeout: 10m"),
    Field(
        "onChange", "text", "wait", NEW, "`cancel`: a change of the spec ends the run that goes on", "onChange: cancel"
    ),
    Field("onDelete", "text", "wait", NEW, "`cancel`: a deletion ends the run that goes on", "onDelete: cancel"),
    Field("retry", "mapping", "{}", NEW, "how failed runs are repeated, see below", "retry: {attempts: 8}"),
    Field(
        "skipUnchanged",
        "boolean",
        "false",
        NEW,
        "leave out runs for the start and for periods where nothing changed ([runs.md](skip-unchanged.md))",
        "skipUnchanged: true",
    ),
    Field("engine", "text", "", NEW, "`auto`, `warm` or `exec`; default: `--engine`", "engine: exec"),
    Field(
        "finalizer",
        "mapping",
        "",
        YES,
        "what runs when an object is deleted, see below",
        "finalizer: {name: cache.example.com/finalizer, role: cleanup}",
    ),
)

FINALIZER = (
    Field(
        "finalizer.name",
        "text",
        "",
        YES,
        "what stands in `metadata.finalizers`; needed",
        "finalizer: {name: cache.example.com/finalizer, role: cleanup}",
    ),
    Field("finalizer.role", "text", "", YES, "the role that runs", "finalizer: {name: example.com/f, role: cleanup}"),
    Field(
        "finalizer.playbook",
        "text",
        "",
        YES,
        "the playbook that runs; with neither, the entry's own role or playbook does",
        "finalizer: {name: example.com/f, playbook: playbooks/site.yml}",
    ),
    Field(
        "finalizer.vars",
        "mapping",
        "",
        YES,
        "variables for that run; they win over the entry's `vars`",
        "finalizer: {name: example.com/f, vars: {state: absent}}",
    ),
    Field(
        "finalizer.limit",
        "mapping",
        "",
        NEW,
        "how long it is tried; default: until it succeeds",
        "finalizer: {name: example.com/f, role: cleanup, limit: {attempts: 20}}",
    ),
    Field(
        "finalizer.limit.attempts",
        "whole number",
        "",
        NEW,
        "failed runs in a row; 0: no limit",
        "finalizer: {name: example.com/f, role: cleanup, limit: {attempts: 20}}",
    ),
    Field(
        "finalizer.limit.time",
        "duration",
        "",
        NEW,
        "time since the deletion",
        "finalizer: {name: example.com/f, role: cleanup, limit: {time: 1h}}",
    ),
    Field(
        "finalizer.limit.then",
        "text",
        "",
        NEW,
        "`keep` (the default): the object stays until it changes; `release`: it is let go",
        "finalizer: {name: example.com/f, role: cleanup, limit: {time: 1h, then: release}}",
    ),
)

RETRY = (
    Field("retry.delay", "duration", "1s", NEW, "wait after the first failure", "retry: {delay: 5s}"),
    Field("retry.factor", "number", "2", NEW, "how much longer each further wait is, 1 to 100", "retry: {factor: 3}"),
    Field("retry.maxDelay", "duration", "30m", NEW, "the longest wait", "retry: {maxDelay: 10m}"),
    Field(
        "retry.attempts",
        "whole number",
        "0",
        NEW,
        "failed runs in a row after which the object is left alone until it changes; 0: never",
        "retry: {attempts: 8}",
    ),
)

SELECTOR = (
    Field(
        "selector.matchLabels",
        "mapping",
        "{}",
        YES,
        "labels and their values",
        "selector: {matchLabels: {tier: gold}}",
    ),
    Field(
        "selector.matchExpressions",
        "list",
        "[]",
        YES,
        "conditions on labels; all have to hold",
        "selector: {matchExpressions: [{key: tier, operator: In, values: [gold]}]}",
    ),
    Field(
        "selector.matchExpressions[].key",
        "text",
        "",
        YES,
        "a label's key",
        "selector: {matchExpressions: [{key: tier, operator: Exists}]}",
    ),
    Field(
        "selector.matchExpressions[].operator",
        "text",
        "",
        YES,
        "`In`, `NotIn`, `Exists` or `DoesNotExist`",
        "selector: {matchExpressions: [{key: tier, operator: DoesNotExist}]}",
    ),
    Field(
        "selector.matchExpressions[].values",
        "list",
        "",
        YES,
        "values, for `In` and `NotIn`",
        "selector: {matchExpressions: [{key: tier, operator: NotIn, values: [gold, silver]}]}",
    ),
)

BLACKLIST = tuple(
    Field(
        f"blacklist[].{name}", "text", "", YES, f"the kind's {name}", "blacklist: [{group: apps, version: v1, kind: X}]"
    )
    for name in ("group", "version", "kind")
)

_SECRET = "references: [{version: v1, kind: Secret, path: spec.passwordSecret"  # noqa: S105 - names a Secret

REFERENCES = (
    Field(
        "references[].group",
        "text",
        "",
        NEW,
        "the kind's group; empty for the core group",
        "references: [{group: example.com, version: v1, kind: Plan, name: default}]",
    ),
    Field("references[].version", "text", "", NEW, "the kind's version; needed", _SECRET + "}]"),
    Field("references[].kind", "text", "", NEW, "the kind; needed", _SECRET + "}]"),
    Field("references[].path", "text", "", NEW, "where the spec names the objects", _SECRET + "}]"),
    Field(
        "references[].name",
        "text",
        "",
        NEW,
        "one name for all objects of the entry",
        "references: [{version: v1, kind: ConfigMap, name: defaults}]",
    ),
    Field(
        "references[].selector",
        "mapping",
        "",
        NEW,
        "labels, as in `selector`; one of `path`, `name` and `selector` is needed",
        "references: [{version: v1, kind: ConfigMap, selector: {matchLabels: {part: shop}}}]",
    ),
    Field(
        "references[].namespace",
        "text",
        "",
        NEW,
        "where they are; default: the object's own namespace, unless the spec says so",
        _SECRET + ", namespace: vault}]",
    ),
)

SECTIONS: tuple[tuple[str, tuple[Field, ...]], ...] = (
    ("A watch", WATCH),
    ("`finalizer`", FINALIZER),
    ("`retry`", RETRY),
    ("`selector`", SELECTOR),
    ("`references`", REFERENCES),
    ("`blacklist`", BLACKLIST),
)
