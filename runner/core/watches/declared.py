"""Fields of watches.yaml: each is declared once, with its type, meaning and example.

The readers take from here which fields exist; `hack.reference` writes the reference page and the JSON Schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from runner.core.watches.field import FeatureFields, Field
from runner.core.watches.field import boolean as _boolean
from runner.core.watches.field import duration as _duration
from runner.core.watches.field import listing as _list
from runner.core.watches.field import mapping as _mapping
from runner.core.watches.field import number as _number
from runner.core.watches.field import section as _section
from runner.core.watches.field import text as _text
from runner.core.watches.field import whole as _whole
from runner.core.watches.label_selectors import OPERATORS
from runner.core.watches.policy import MODES


def names(section: str) -> tuple[str, ...]:
    """Return the names of the fields of a mapping."""
    return tuple(field.name for field in FIELDS[section])


_YES = "yes"
_OFF = ("off",)
_ON_EVENT = ("wait", "cancel")

_WATCH = _section(
    "",
    "%s",
    _text("group", "the kind's API group; empty for the core group", "cache.example.com", "''", go=_YES),
    _text("version", "the kind's version", "v1alpha1", required=True, go=_YES),
    _text("kind", "the kind; each kind has one entry, in one version", "Memcached", required=True, go=_YES),
    _text("role", "a role's name, its path, or `namespace.collection.role`", "memcached", go=_YES),
    _text("playbook", "a playbook's path; overrides `role`", "playbooks/site.yml", go=_YES),
    _mapping("vars", "variables for each run; they override the spec", "{tier: gold}", "{}", go=_YES),
    _duration(
        "reconcilePeriod",
        "time between periodic runs; `0s`: the value of `--reconcile-period` (10h); `off` (new): no periodic runs",
        "1h",
        "0s",
        values=_OFF,
        go=_YES,
    ),
    _duration(
        "minReconcilePeriod",
        "shortest period that the annotation `reconcile-period` can set; `0s` and `off`: no limit",
        "1m",
        "5s",
        values=_OFF,
    ),
    _whole("maxVerbosity", "highest verbosity that the annotation `verbosity` can set", "3", "7"),
    _boolean("manageStatus", "write conditions", "false", "true", go=_YES),
    _boolean(
        "healthConditions",
        "write `Ready`, `Reconciling`, `Stalled` and `observedGeneration` ([status.md](status.md))",
        "false",
        "true",
    ),
    _boolean("watchDependentResources", "a change of a dependent runs its owner", "false", "true", go=_YES),
    _boolean(
        "watchClusterScopedResources",
        "the same for cluster-scoped dependents of a namespaced object",
        "true",
        "false",
        go=_YES,
    ),
    _text(
        "watchDependentStatus",
        "changes of only the status of a dependent or a reference that run the object: `auto` (those that mean "
        "something, see [proxy.md](proxy.md#status-of-dependents)), `true` (each) or `false` (none)",
        "false",
        "auto",
        values=("auto", True, False),
    ),
    _boolean("watchAnnotationsChanges", "a change of the object's annotations runs it", "true", "false", go=_YES),
    _whole(
        "maxRunnerArtifacts",
        "number of runs of each object whose output is kept; 0: the default, -1 (new): none",
        "5",
        "20",
        go=_YES,
    ),
    _boolean("snakeCaseParameters", "keys of the spec become snake_case, at every depth", "false", "true", go=_YES),
    _list(
        "snakeCaseExcept",
        "paths in the spec whose keys are not converted ([Keys that are data](#keys-that-are-data))",
        "[spec.nodeSelector]",
        "[]",
    ),
    _boolean(
        "markUnsafe",
        "Ansible never evaluates strings of the object as templates",
        "false",
        "true",
        go="yes, default `false`",
    ),
    _list(
        "allowAnsibleVariables",
        "variables that a spec may set although Ansible itself interprets them; the operator drops all remaining "
        "`ansible_*` variables",
        "[ansible_user]",
        "[]",
    ),
    _mapping(
        "selector", "labels that an object must have; applied by the API server", "{matchLabels: {tier: gold}}", go=_YES
    ),
    _text(
        "fieldSelector",
        "conditions on fields of an object ([Selectors](#selectors))",
        "metadata.namespace!=kube-system",
    ),
    _text("name", "the name of the only object to watch, in each watched namespace", "main"),
    _list(
        "blacklist",
        "kinds that are neither watched as dependents nor cached for reads",
        "[{version: v1, kind: ConfigMap}]",
        "[]",
        go=_YES,
    ),
    _boolean(
        "ownerAnnotations",
        "annotations about owners have an effect in objects that the role writes; `false`: the proxy removes them "
        "([proxy.md](proxy.md#ownership))",
        "false",
        "true",
    ),
    _text(
        "serviceAccount",
        "service account for API requests of runs, `name` or `namespace/name` ([proxy.md](proxy.md#restricted-runs))",
        "memcached-runs",
    ),
    _boolean(
        "ownNamespaceOnly",
        "the proxy refuses API requests of a run outside of the namespace of its object; no effect for cluster-scoped "
        "kinds ([proxy.md](proxy.md#restricted-runs))",
        "true",
        "false",
    ),
    _duration("runTimeout", "maximum duration of a run; default: `--run-timeout`", "10m", values=_OFF),
    _text("onChange", "`cancel`: a change of the spec cancels the current run", "cancel", "wait", values=_ON_EVENT),
    _text("onDelete", "`cancel`: a deletion cancels the current run", "cancel", "wait", values=_ON_EVENT),
    _mapping("retry", "delays of retries, see below", "{attempts: 8}", "{}"),
    _text(
        "mode",
        "`plan`: runs change nothing, and the status contains what they would change; `approve`: a run executes a "
        "plan that a user approved ([plan.md](plan.md#plans-in-the-operator))",
        "approve",
        "apply",
        values=MODES,
    ),
    _mapping(
        "finalizer",
        "the role or playbook that runs when an object is deleted, see below",
        "{name: cache.example.com/finalizer, role: cleanup}",
        go=_YES,
    ),
)
_FINALIZER = _section(
    "finalizer",
    "finalizer: {name: example.com/f, %s}",
    _text(
        "name",
        "the entry in `metadata.finalizers`; it needs a domain for kinds of Kubernetes itself",
        "cache.example.com/finalizer",
        required=True,
        frame="finalizer: {%s, role: cleanup}",
    ),
    _text("role", "the role that runs", "cleanup"),
    _text(
        "playbook", "the playbook that runs; without both, the role or playbook of the watch runs", "playbooks/site.yml"
    ),
    _mapping("vars", "variables for that run; they override the `vars` of the watch", "{state: absent}"),
    _mapping(
        "limit",
        "limit of retries; default: retry until it succeeds",
        "{attempts: 20}",
        frame="finalizer: {name: example.com/f, role: cleanup, %s}",
        go="new",
    ),
    go="yes",
)
_LIMIT = _section(
    "finalizer.limit",
    "finalizer: {name: example.com/f, role: cleanup, limit: {%s}}",
    _whole("attempts", "consecutive failed runs; 0: no limit", "20"),
    _duration("time", "time since the deletion", "1h"),
    _text(
        "then",
        "`keep` (the default): the object remains until it changes; `release`: the operator removes its finalizer",
        "release",
        values=("keep", "release"),
        frame="finalizer: {name: example.com/f, role: cleanup, limit: {time: 1h, %s}}",
    ),
)
_RETRY = _section(
    "retry",
    "retry: {%s}",
    _duration("delay", "delay after the first failure", "5s", "1s"),
    _number("factor", "factor of each further delay, 1 to 100", "3", "2"),
    _duration("maxDelay", "maximum delay", "10m", "30m"),
    _whole("attempts", "consecutive failures after which retries stop until the object changes; 0: no limit", "8", "0"),
)
_SELECTOR = _section(
    "selector",
    "selector: {%s}",
    _mapping("matchLabels", "labels and their values", "{tier: gold}", "{}"),
    _list(
        "matchExpressions",
        "conditions on labels; an object must meet all",
        "[{key: tier, operator: In, values: [gold]}]",
        "[]",
    ),
    go="yes",
)
_EXPRESSIONS = _section(
    "selector.matchExpressions[]",
    "selector: {matchExpressions: [{key: tier, %s}]}",
    _text(
        "key", "a label's key", "tier", required=True, frame="selector: {matchExpressions: [{%s, operator: Exists}]}"
    ),
    _text("operator", "`In`, `NotIn`, `Exists` or `DoesNotExist`", "DoesNotExist", values=OPERATORS, required=True),
    _list(
        "values",
        "values, for `In` and `NotIn`",
        "[gold, silver]",
        frame="selector: {matchExpressions: [{key: tier, operator: NotIn, %s}]}",
    ),
    go="yes",
)
_BLACKLIST = _section(
    "blacklist[]",
    "blacklist: [{%s}]",
    _text("group", "the kind's group", "apps", frame="blacklist: [{%s, version: v1, kind: X}]"),
    _text("version", "the kind's version", "v1", frame="blacklist: [{group: apps, %s, kind: X}]"),
    _text("kind", "the kind's kind", "X", frame="blacklist: [{group: apps, version: v1, %s}]"),
    go="yes",
)
REMOVED: dict[str, str] = {
    "vault": "mount the passwords of Ansible Vault in the operator's pod, and name the file in vault_password_file of "
    "the project's ansible.cfg or with --ansible-args='--vault-password-file FILE'",
}
"""Removed fields by path in lower case (`selector.matchExpressions[].key`), and the advice what to do instead."""
FIELDS: dict[str, tuple[Field, ...]] = dict(
    (
        _WATCH,
        _FINALIZER,
        _LIMIT,
        _RETRY,
        _SELECTOR,
        _EXPRESSIONS,
        _BLACKLIST,
    )
)
"""Fields by path of their mapping, in the order of messages and of the reference page."""


def with_features(features: Iterable[FeatureFields]) -> Mapping[str, tuple[Field, ...]]:
    """Return all fields by path of their mapping; those of features are the last."""
    by_path = dict(FIELDS)
    for path, fields in (section for feature in features for section in feature.sections):
        by_path[path] = (*by_path.get(path, ()), *fields)
    return by_path
