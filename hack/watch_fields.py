"""Reference of watches.yaml: one entry for each field.

tests/unit/docs/test_reference.py checks fields, types, defaults and examples against `runner.watches.watch`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Type = Literal["text", "boolean", "whole number", "number", "duration", "mapping", "list"]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of watches.yaml."""

    path: str
    """The path in error messages: `retry.delay`, `references[].path`."""
    type: Type
    default: str
    """The default in YAML; empty if there is none."""
    known: str
    """Support in the Go operator."""
    meaning: str
    example: str
    """A fragment of an entry, in YAML's flow style."""


YES, NEW = "yes", "new"
_IN_POD = "{isolation: pod, podTemplate: {image: ee:1"

WATCH = (
    Field("group", "text", "''", YES, "the kind's API group; empty for the core group", "group: cache.example.com"),
    Field("version", "text", "", YES, "the kind's version; required", "version: v1alpha1"),
    Field("kind", "text", "", YES, "the kind; required. Each kind has one entry", "kind: Memcached"),
    Field("role", "text", "", YES, "a role's name, its path, or `namespace.collection.role`", "role: memcached"),
    Field("playbook", "text", "", YES, "a playbook's path; overrides `role`", "playbook: playbooks/site.yml"),
    Field("vars", "mapping", "{}", YES, "variables for each run; they override the spec", "vars: {tier: gold}"),
    Field(
        "reconcilePeriod",
        "duration",
        "0s",
        YES,
        "time between periodic runs; `0s`: the value of `--reconcile-period` (10h); `off` (new): no periodic runs",
        "reconcilePeriod: 1h",
    ),
    Field(
        "minReconcilePeriod",
        "duration",
        "",
        NEW,
        "shortest period that the annotation `reconcile-period` can set; `0s` and `off`: no limit; default: "
        "`--min-reconcile-period` (5s)",
        "minReconcilePeriod: 1m",
    ),
    Field(
        "maxVerbosity",
        "whole number",
        "",
        NEW,
        "highest verbosity that the annotation `verbosity` can set; default: `--max-verbosity` (7)",
        "maxVerbosity: 3",
    ),
    Field("manageStatus", "boolean", "true", YES, "write conditions", "manageStatus: false"),
    Field(
        "healthConditions",
        "boolean",
        "",
        NEW,
        "write `Ready`, `Reconciling`, `Stalled` and `observedGeneration` ([status.md](status.md)); default: "
        "the value of `--health-conditions`, true",
        "healthConditions: false",
    ),
    Field(
        "watchDependentResources",
        "boolean",
        "true",
        YES,
        "a change of a dependent runs its owner",
        "watchDependentResources: false",
    ),
    Field(
        "watchClusterScopedResources",
        "boolean",
        "false",
        YES,
        "the same for cluster-scoped dependents of a namespaced object",
        "watchClusterScopedResources: true",
    ),
    Field(
        "watchDependentStatus",
        "text",
        "auto",
        NEW,
        "changes of only the status of a dependent or a reference that run the object: `auto` (those that mean "
        "something, see [proxy.md](proxy.md#status-of-dependents)), `true` (each) or `false` (none)",
        "watchDependentStatus: false",
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
        "number of runs of each object whose output is kept; 0: the default, -1 (new): none",
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
        "paths in the spec whose keys are not converted ([Keys that are data](#keys-that-are-data))",
        "snakeCaseExcept: [spec.nodeSelector]",
    ),
    Field(
        "markUnsafe",
        "boolean",
        "true",
        "yes, default `false`",
        "Ansible never evaluates strings of the object as templates",
        "markUnsafe: false",
    ),
    Field(
        "allowAnsibleVariables",
        "list",
        "[]",
        NEW,
        "variables that a spec may set although Ansible itself interprets them; the operator drops all remaining "
        "`ansible_*` variables",
        "allowAnsibleVariables: [ansible_user]",
    ),
    Field(
        "selector",
        "mapping",
        "",
        YES,
        "labels that an object must have; applied by the API server",
        "selector: {matchLabels: {tier: gold}}",
    ),
    Field(
        "fieldSelector",
        "text",
        "",
        NEW,
        "conditions on fields of an object ([Selectors](#selectors))",
        "fieldSelector: metadata.namespace!=kube-system",
    ),
    Field("name", "text", "", NEW, "the name of the only object to watch, in each watched namespace", "name: main"),
    Field(
        "blacklist",
        "list",
        "[]",
        YES,
        "kinds that are neither watched as dependents nor cached for reads",
        "blacklist: [{version: v1, kind: ConfigMap}]",
    ),
    Field(
        "ownerAnnotations",
        "boolean",
        "true",
        NEW,
        "annotations about owners have an effect in objects that the role writes; `false`: the proxy removes them "
        "([proxy.md](proxy.md#ownership))",
        "ownerAnnotations: false",
    ),
    Field(
        "references",
        "list",
        "[]",
        NEW,
        "objects that the spec names and whose change runs the object ([References](#references))",
        "references: [{version: v1, kind: Secret, path: spec.passwordSecret}]",
    ),
    Field(
        "serviceAccount",
        "text",
        "",
        NEW,
        "service account for API requests of runs, `name` or `namespace/name` ([proxy.md](proxy.md#restricted-runs))",
        "serviceAccount: memcached-runs",
    ),
    Field("runTimeout", "duration", "", NEW, "maximum duration of a run; default: `--run-timeout`", "runTimeout: 10m"),
    Field(
        "onChange", "text", "wait", NEW, "`cancel`: a change of the spec cancels the current run", "onChange: cancel"
    ),
    Field("onDelete", "text", "wait", NEW, "`cancel`: a deletion cancels the current run", "onDelete: cancel"),
    Field("retry", "mapping", "{}", NEW, "delays of retries, see below", "retry: {attempts: 8}"),
    Field(
        "mode",
        "text",
        "apply",
        NEW,
        "`plan`: runs change nothing, and the status contains what they would change; `approve`: a run executes a plan "
        "that a user approved ([plan.md](plan.md#plans-in-the-operator))",
        "mode: approve",
    ),
    Field(
        "drift",
        "mapping",
        "",
        NEW,
        "periodic checks for changes by other clients, see below ([Find drift](plan.md#find-drift))",
        "drift: {period: 1h}",
    ),
    Field(
        "skipUnchanged",
        "boolean",
        "false",
        NEW,
        "skip runs at start and for periods if nothing changed ([skip-unchanged.md](skip-unchanged.md))",
        "skipUnchanged: true",
    ),
    Field(
        "prune",
        "text",
        "off",
        NEW,
        "`report` or `delete`: unused objects that runs created ([prune.md](prune.md)); or a mapping, see below",
        "prune: report",
    ),
    Field("engine", "text", "", NEW, "`auto`, `warm` or `exec`; default: `--engine`", "engine: exec"),
    Field(
        "isolation",
        "text",
        "",
        NEW,
        "`process` (the default): runs are processes of the operator's pod; `pod`: each run has a pod of its own "
        "([pods.md](pods.md))",
        _IN_POD + "}}",
    ),
    Field(
        "podTemplate",
        "mapping",
        "",
        NEW,
        "image and further fields of these pods, see below; required with `isolation: pod`",
        _IN_POD + "}}",
    ),
    Field(
        "maxPods",
        "whole number",
        "",
        NEW,
        "maximum number of pods at once, instead of `--max-concurrent-reconciles`; default: 10",
        _IN_POD + "}, maxPods: 50}",
    ),
    Field(
        "warmPods",
        "whole number",
        "",
        NEW,
        "number of idle pods with Ansible loaded that wait for runs; default: 0 ([pods.md](pods.md#warm-pods))",
        _IN_POD + "}, warmPods: 2}",
    ),
    Field(
        "finalizer",
        "mapping",
        "",
        YES,
        "the role or playbook that runs when an object is deleted, see below",
        "finalizer: {name: cache.example.com/finalizer, role: cleanup}",
    ),
)

FINALIZER = (
    Field(
        "finalizer.name",
        "text",
        "",
        YES,
        "the entry in `metadata.finalizers`; required",
        "finalizer: {name: cache.example.com/finalizer, role: cleanup}",
    ),
    Field("finalizer.role", "text", "", YES, "the role that runs", "finalizer: {name: example.com/f, role: cleanup}"),
    Field(
        "finalizer.playbook",
        "text",
        "",
        YES,
        "the playbook that runs; without both, the role or playbook of the watch runs",
        "finalizer: {name: example.com/f, playbook: playbooks/site.yml}",
    ),
    Field(
        "finalizer.vars",
        "mapping",
        "",
        YES,
        "variables for that run; they override the `vars` of the watch",
        "finalizer: {name: example.com/f, vars: {state: absent}}",
    ),
    Field(
        "finalizer.limit",
        "mapping",
        "",
        NEW,
        "limit of retries; default: retry until it succeeds",
        "finalizer: {name: example.com/f, role: cleanup, limit: {attempts: 20}}",
    ),
    Field(
        "finalizer.limit.attempts",
        "whole number",
        "",
        NEW,
        "consecutive failed runs; 0: no limit",
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
        "`keep` (the default): the object remains until it changes; `release`: the operator removes its finalizer",
        "finalizer: {name: example.com/f, role: cleanup, limit: {time: 1h, then: release}}",
    ),
)

RETRY = (
    Field("retry.delay", "duration", "1s", NEW, "delay after the first failure", "retry: {delay: 5s}"),
    Field("retry.factor", "number", "2", NEW, "factor of each further delay, 1 to 100", "retry: {factor: 3}"),
    Field("retry.maxDelay", "duration", "30m", NEW, "maximum delay", "retry: {maxDelay: 10m}"),
    Field(
        "retry.attempts",
        "whole number",
        "0",
        NEW,
        "consecutive failures after which retries stop until the object changes; 0: no limit",
        "retry: {attempts: 8}",
    ),
)

PRUNE = (
    Field(
        "prune.then",
        "text",
        "",
        NEW,
        "`off`, `report` (the default) or `delete`",
        "prune: {then: delete, kinds: [Secret]}",
    ),
    Field(
        "prune.kinds",
        "list",
        "",
        NEW,
        "protected kinds to prune: `Secret`, `PersistentVolumeClaim`, `Namespace`, `CustomResourceDefinition`",
        "prune: {then: report, kinds: [Secret]}",
    ),
)

DRIFT = (
    Field("drift.period", "duration", "", NEW, "time between two checks of an object; required", "drift: {period: 1h}"),
    Field(
        "drift.then",
        "text",
        "",
        NEW,
        "`report` (the default): write the condition `Drifted`; `repair`: also run the role or playbook",
        "drift: {period: 1h, then: repair}",
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
        "conditions on labels; an object must meet all",
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
    Field("references[].version", "text", "", NEW, "the kind's version; required", _SECRET + "}]"),
    Field("references[].kind", "text", "", NEW, "the kind; required", _SECRET + "}]"),
    Field("references[].path", "text", "", NEW, "path of the names in the spec", _SECRET + "}]"),
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
        "label selector; one of `path`, `name` and `selector` is required",
        "references: [{version: v1, kind: ConfigMap, selector: {matchLabels: {part: shop}}}]",
    ),
    Field(
        "references[].namespace",
        "text",
        "",
        NEW,
        "namespace of the objects; default: the value in the spec, or the namespace of the object",
        _SECRET + ", namespace: vault}]",
    ),
    Field(
        "references[].namespaces",
        "list",
        "",
        NEW,
        "further namespaces that a spec may name; `*`: all ([References](#references))",
        _SECRET + ", namespaces: [vault]}]",
    ),
)

PODS = (
    Field(
        "podTemplate.image",
        "text",
        "",
        NEW,
        "image with ansible-core and ansible-runner 2.4 or later; required",
        _IN_POD + "}}",
    ),
    Field(
        "podTemplate.imagePullSecrets",
        "list",
        "",
        NEW,
        "Secrets of the resource's namespace for the registry, by name",
        _IN_POD + ", imagePullSecrets: [registry]}}",
    ),
    Field(
        "podTemplate.resources",
        "mapping",
        "",
        NEW,
        "requests and limits of the container",
        _IN_POD + ", resources: {limits: {memory: 1Gi}}}}",
    ),
    Field(
        "podTemplate.serviceAccountName",
        "text",
        "",
        NEW,
        "service account of the pod; only then the pod contains its token",
        _IN_POD + ", serviceAccountName: runs}}",
    ),
    Field(
        "podTemplate.nodeSelector",
        "mapping",
        "",
        NEW,
        "labels of the nodes",
        _IN_POD + ", nodeSelector: {pool: runs}}}",
    ),
    Field(
        "podTemplate.tolerations",
        "list",
        "",
        NEW,
        "tolerations for taints of the nodes",
        _IN_POD + ", tolerations: [{key: runs, operator: Exists}]}}",
    ),
    Field(
        "podTemplate.priorityClassName",
        "text",
        "",
        NEW,
        "priority class of the pod",
        _IN_POD + ", priorityClassName: low}}",
    ),
    Field(
        "podTemplate.volumes",
        "list",
        "",
        NEW,
        "further volumes",
        _IN_POD + ", volumes: [{name: data, emptyDir: {}}]}}",
    ),
    Field(
        "podTemplate.volumeMounts",
        "list",
        "",
        NEW,
        "mounts of these volumes in the container",
        _IN_POD + ", volumeMounts: [{name: data, mountPath: /data}]}}",
    ),
    Field(
        "podTemplate.env",
        "list",
        "",
        NEW,
        "environment variables of the container",
        _IN_POD + ", env: [{name: HTTPS_PROXY, value: http://proxy:3128}]}}",
    ),
    Field(
        "podTemplate.securityContext",
        "mapping",
        "",
        NEW,
        "security context of the container, added to the default ([pods.md](pods.md#security))",
        _IN_POD + ", securityContext: {runAsNonRoot: true}}}",
    ),
    Field(
        "podTemplate.ttlSecondsAfterFinished",
        "whole number",
        "",
        NEW,
        "seconds for which an ended pod remains, with its log; default: 3600",
        _IN_POD + ", ttlSecondsAfterFinished: 600}}",
    ),
)

SECTIONS: tuple[tuple[str, tuple[Field, ...]], ...] = (
    ("A watch", WATCH),
    ("`finalizer`", FINALIZER),
    ("`retry`", RETRY),
    ("`prune`", PRUNE),
    ("`podTemplate`", PODS),
    ("`selector`", SELECTOR),
    ("`references`", REFERENCES),
    ("`drift`", DRIFT),
    ("`blacklist`", BLACKLIST),
)
