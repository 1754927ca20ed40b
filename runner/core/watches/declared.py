"""Fields of watches.yaml: each is declared once, with its type, meaning and example.

The readers take from here which fields exist; `hack.reference` writes the reference page and the JSON Schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from runner.core.watches import field, policy, selectors
from runner.core.watches.field import FeatureFields, Field

_YES = "yes"
_OFF = ("off",)
_ON_EVENT = ("wait", "cancel")

_WATCH = field.section(
    "",
    "%s",
    field.text("group", "the kind's API group; empty for the core group", "cache.example.com", "''", go=_YES),
    field.text("version", "the kind's version", "v1alpha1", required=True, go=_YES),
    field.text("kind", "the kind; each kind has one entry, in one version", "Memcached", required=True, go=_YES),
    field.text("role", "a role's name, its path, or `namespace.collection.role`", "memcached", go=_YES),
    field.text("playbook", "a playbook's path; overrides `role`", "playbooks/site.yml", go=_YES),
    field.mapping("vars", "variables for each run; they override the spec", "{tier: gold}", "{}", go=_YES),
    field.duration(
        "reconcilePeriod",
        "time between periodic runs; `0s`: the value of `--reconcile-period` (10h); `off` (new): no periodic runs",
        "1h",
        "0s",
        values=_OFF,
        go=_YES,
    ),
    field.duration(
        "minReconcilePeriod",
        "shortest period that the annotation `reconcile-period` can set; `0s` and `off`: no limit",
        "1m",
        "5s",
        values=_OFF,
    ),
    field.whole("maxVerbosity", "highest verbosity that the annotation `verbosity` can set", "3", "7"),
    field.boolean("manageStatus", "write conditions", "false", "true", go=_YES),
    field.boolean(
        "healthConditions",
        "write `Ready`, `Reconciling`, `Stalled` and `observedGeneration` ([status.md](status.md))",
        "false",
        "true",
    ),
    field.boolean("watchDependentResources", "a change of a dependent runs its owner", "false", "true", go=_YES),
    field.boolean(
        "watchClusterScopedResources",
        "the same for cluster-scoped dependents of a namespaced object",
        "true",
        "false",
        go=_YES,
    ),
    field.text(
        "watchDependentStatus",
        "changes of only the status of a dependent or a reference that run the object: `auto` (those that mean "
        "something, see [proxy.md](proxy.md#status-of-dependents)), `true` (each) or `false` (none)",
        "false",
        "auto",
        values=("auto", True, False),
    ),
    field.boolean("watchAnnotationsChanges", "a change of the object's annotations runs it", "true", "false", go=_YES),
    field.whole(
        "maxRunnerArtifacts",
        "number of runs of each object whose output is kept; 0: the default, -1 (new): none",
        "5",
        "20",
        go=_YES,
    ),
    field.boolean(
        "snakeCaseParameters", "keys of the spec become snake_case, at every depth", "false", "true", go=_YES
    ),
    field.listing(
        "snakeCaseExcept",
        "paths in the spec whose keys are not converted ([Keys that are data](#keys-that-are-data))",
        "[spec.nodeSelector]",
        "[]",
    ),
    field.boolean(
        "markUnsafe",
        "Ansible never evaluates strings of the object as templates",
        "false",
        "true",
        go="yes, default `false`",
    ),
    field.listing(
        "allowAnsibleVariables",
        "variables that a spec may set although Ansible itself interprets them; the operator drops all remaining "
        "`ansible_*` variables",
        "[ansible_user]",
        "[]",
    ),
    field.mapping(
        "selector", "labels that an object must have; applied by the API server", "{matchLabels: {tier: gold}}", go=_YES
    ),
    field.text(
        "fieldSelector",
        "conditions on fields of an object ([Selectors](#selectors))",
        "metadata.namespace!=kube-system",
    ),
    field.text("name", "the name of the only object to watch, in each watched namespace", "main"),
    field.listing(
        "blacklist",
        "kinds that are neither watched as dependents nor cached for reads",
        "[{version: v1, kind: ConfigMap}]",
        "[]",
        go=_YES,
    ),
    field.boolean(
        "ownerAnnotations",
        "annotations about owners have an effect in objects that the role writes; `false`: the proxy removes them "
        "([proxy.md](proxy.md#ownership))",
        "false",
        "true",
    ),
    field.text(
        "serviceAccount",
        "service account for API requests of runs, `name` or `namespace/name` ([proxy.md](proxy.md#restricted-runs))",
        "memcached-runs",
    ),
    field.boolean(
        "ownNamespaceOnly",
        "the proxy refuses API requests of a run outside of the namespace of its object; no effect for cluster-scoped "
        "kinds ([proxy.md](proxy.md#restricted-runs))",
        "true",
        "false",
    ),
    field.duration("runTimeout", "maximum duration of a run; default: `--run-timeout`", "10m", values=_OFF),
    field.text(
        "onChange", "`cancel`: a change of the spec cancels the current run", "cancel", "wait", values=_ON_EVENT
    ),
    field.text("onDelete", "`cancel`: a deletion cancels the current run", "cancel", "wait", values=_ON_EVENT),
    field.mapping("retry", "delays of retries, see below", "{attempts: 8}", "{}"),
    field.text(
        "mode",
        "`plan`: runs change nothing, and the status contains what they would change; `approve`: a run executes a "
        "plan that a user approved ([plan.md](plan.md#plans-in-the-operator))",
        "approve",
        "apply",
        values=policy.MODES,
    ),
    field.mapping(
        "finalizer",
        "the role or playbook that runs when an object is deleted, see below",
        "{name: cache.example.com/finalizer, role: cleanup}",
        go=_YES,
    ),
)
FINALIZER = field.section(
    "finalizer",
    "finalizer: {name: example.com/f, %s}",
    field.text(
        "name",
        "the entry in `metadata.finalizers`; it needs a domain for kinds of Kubernetes itself",
        "cache.example.com/finalizer",
        required=True,
        frame="finalizer: {%s, role: cleanup}",
    ),
    field.text("role", "the role that runs", "cleanup"),
    field.text(
        "playbook", "the playbook that runs; without both, the role or playbook of the watch runs", "playbooks/site.yml"
    ),
    field.mapping("vars", "variables for that run; they override the `vars` of the watch", "{state: absent}"),
    field.mapping(
        "limit",
        "limit of retries; default: retry until it succeeds",
        "{attempts: 20}",
        frame="finalizer: {name: example.com/f, role: cleanup, %s}",
        go="new",
    ),
    go="yes",
)
BLACKLIST = field.section(
    "blacklist[]",
    "blacklist: [{%s}]",
    field.text("group", "the kind's group", "apps", frame="blacklist: [{%s, version: v1, kind: X}]"),
    field.text("version", "the kind's version", "v1", frame="blacklist: [{group: apps, %s, kind: X}]"),
    field.text("kind", "the kind's kind", "X", frame="blacklist: [{group: apps, version: v1, %s}]"),
    go="yes",
)
REMOVED: dict[str, str] = {
    "vault": "mount the passwords of Ansible Vault in the operator's pod, and name the file in vault_password_file of "
    "the project's ansible.cfg or with --ansible-args='--vault-password-file FILE'",
}
"""Removed fields by path in lower case (`selector.matchExpressions[].key`), and the advice what to do instead."""
FIELDS: dict[str, tuple[Field, ...]] = dict(
    (_WATCH, FINALIZER, policy.LIMIT, policy.RETRY, *selectors.SECTIONS, BLACKLIST)
)
"""Fields by path of their mapping, in the order of messages and of the reference page."""


def with_features(features: Iterable[FeatureFields]) -> Mapping[str, tuple[Field, ...]]:
    """Return all fields by path of their mapping; those of features are the last."""
    by_path = dict(FIELDS)
    for path, fields in (section for feature in features for section in feature.sections):
        by_path[path] = (*by_path.get(path, ()), *fields)
    return by_path
