"""What stands in the reference of annotations. That none is missing is shown by tests/unit/docs/test_reference.py."""

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
        "time between periodic runs of this object; `0s` and `off`: none. While it does not parse the object is not "
        "run",
    ),
    Annotation(_OURS + "verbosity", "0 to 7", YES, "how much Ansible tells of its runs"),
    Annotation(
        _OURS + "max-runner-artifacts", "whole number", YES, "runs that are kept; 0 keeps all, -1 (new) keeps none"
    ),
    Annotation(
        _OURS + "run-timeout",
        "duration, `off`",
        NEW,
        "how long a run of it may take ([runs.md](runs.md))",
    ),
    Annotation(_OURS + "paused", '`"true"`', NEW, "the object is not run, nor finalized, until it is taken off"),
    Annotation(
        _OURS + "run-requested",
        "text, as the time",
        NEW,
        "each new value starts a run, skipped by nothing ([runs.md](runs.md#a-run-on-request))",
    ),
    Annotation(
        _OURS + "last-run",
        "written by the operator",
        NEW,
        "record of the last run, with `skipUnchanged`; take it off to have the object run",
    ),
)

ON_WRITTEN = (
    Annotation(
        _OURS + "inject-owner",
        '`"false"`',
        NEW,
        "the object gets no owner, and is given up if it had one of ours",
    ),
    Annotation(_OURS + "adopt", '`"true"`', NEW, "an existing object that nobody owns becomes the resource's own"),
    Annotation(
        "operator-sdk/primary-resource",
        "`namespace/name`",
        YES,
        "written by the operator where no owner reference is possible: whose it is",
    ),
    Annotation("operator-sdk/primary-resource-type", "`Kind.group`", YES, "the kind of that owner"),
    Annotation(
        _OURS + "recorded-for",
        "written by the operator",
        NEW,
        "in the file of `--record-rbac`: for whom the rights of a Role were recorded",
    ),
    Annotation(
        _OURS + "scope",
        "`Cluster`",
        NEW,
        "on a ClusterRole of `config/rbac`: it is granted in the whole cluster, however few namespaces are watched "
        "([projects.md](packaging.md#into-a-cluster-and-out-of-it))",
    ),
)
