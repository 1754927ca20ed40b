"""Reference of annotations. tests/unit/docs/test_reference.py checks that it is complete."""

from __future__ import annotations

from dataclasses import dataclass

YES, NEW = "yes", "new"


@dataclass(frozen=True, slots=True)
class Annotation:
    """One annotation that the operator reads or writes."""

    name: str
    value: str
    known: str
    meaning: str


_OURS = "ansible.sdk.operatorframework.io/"

ON_RESOURCES = (
    Annotation(
        _OURS + "reconcile-period",
        "duration, `off`",
        "yes; `off` is new",
        "time between periodic runs of this object, at least `minReconcilePeriod`; `0s` and `off`: none. An "
        "invalid value stops its runs",
    ),
    Annotation(_OURS + "verbosity", "0 to 7", YES, "verbosity of Ansible, at most `maxVerbosity`"),
    Annotation(
        _OURS + "max-runner-artifacts", "whole number", YES, "number of runs that are kept; 0: all, -1 (new): none"
    ),
    Annotation(
        _OURS + "run-timeout",
        "duration, `off`",
        NEW,
        "maximum duration of a run, at most that of the watch or the flag ([runs.md](runs.md#fields-in-watchesyaml))",
    ),
    Annotation(
        _OURS + "paused",
        '`"true"`',
        NEW,
        "the object does not run and is not finalized until a user removes the annotation",
    ),
    Annotation(
        _OURS + "mode",
        "`plan`, `approve`, `apply`",
        NEW,
        "mode of this object, at least as strict as [`mode`](plan.md#plans-in-the-operator) of the watch. An invalid "
        "value stops its runs",
    ),
    Annotation(
        _OURS + "approve",
        "hash of a plan",
        NEW,
        "in the mode `approve`: the operator executes the plan with this hash once ([plan.md](plan.md#approve-a-plan))",
    ),
    Annotation(
        _OURS + "run-requested",
        "text, as the time",
        NEW,
        "each new value starts a run ([runs.md](runs.md#request-a-run))",
    ),
    Annotation(
        _OURS + "rollout",
        "`hold`, `now`",
        NEW,
        "`hold`: no step of a [rollout](rollout.md) runs the object; `now`: the object does not wait for its step",
    ),
    Annotation(
        _OURS + "last-run",
        "written by the operator",
        NEW,
        "record of the last run for [`skipUnchanged`](skip-unchanged.md); remove it to run the object",
    ),
)

ON_WRITTEN = (
    Annotation(
        _OURS + "plan-of",
        "written by the operator",
        NEW,
        "on the ConfigMap of a [plan](plan.md#plans-in-the-operator): UID of the planned object",
    ),
    Annotation(
        _OURS + "run-record",
        "written by the operator",
        NEW,
        "on the Secret of a [run in a pod](pods.md): data with which another operator continues the run",
    ),
    Annotation(_OURS + "run-signature", "written by the operator", NEW, "on the same Secret: signature of the record"),
    Annotation(
        _OURS + "run", "written by the operator", NEW, "label of the Job and the pod of such a run: name of the run"
    ),
    Annotation(
        _OURS + "run-of",
        "written by the operator",
        NEW,
        "label of the Secret, the Job and the pod of such a run: UID of the resource",
    ),
    Annotation(
        _OURS + "warm-pod-of",
        "written by the operator",
        NEW,
        "label of a [warm pod](pods.md#warm-pods) and its Job: kind of the watch",
    ),
    Annotation(
        _OURS + "inject-owner",
        '`"false"`',
        NEW,
        "the object gets no owner; the proxy removes an owner reference that it added before",
    ),
    Annotation(
        _OURS + "adopt", '`"true"`', NEW, "the resource becomes the owner of an existing object without an owner"
    ),
    Annotation(_OURS + "prune", '`"false"`', NEW, "the object is never [pruned](prune.md)"),
    Annotation(
        "operator-sdk/primary-resource",
        "`namespace/name`",
        YES,
        "written by the operator if an owner reference is not possible: the owner",
    ),
    Annotation("operator-sdk/primary-resource-type", "`Kind.group`", YES, "the kind of that owner"),
    Annotation(
        _OURS + "inferred",
        "written by the operator",
        NEW,
        "in the file of `--record-rbac`: the role has verbs that no run used, for kinds that runs write",
    ),
    Annotation(
        _OURS + "recorded-for",
        "written by the operator",
        NEW,
        "in the file of `--record-rbac`: the service account of the recorded permissions",
    ),
    Annotation(
        _OURS + "scope",
        "`Cluster`",
        NEW,
        "on a ClusterRole of `config/rbac`: grants it in the whole cluster, regardless of the watched namespaces "
        "([packaging.md](packaging.md#watched-namespaces))",
    ),
)
