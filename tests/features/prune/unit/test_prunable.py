"""The condition about unused objects."""

from __future__ import annotations

import pytest

from runner.features.prune.feature import PRUNABLE
from runner.features.prune.sharing import OtherUsers
from runner.features.prune.status import PruneReport, prunable
from runner.values.objects import GVK, ObjectKey, ObjectRef

TWO = ObjectRef(GVK("example.com", "v1", "Thing"), ObjectKey("ns", "two"))


@pytest.mark.parametrize(
    ("found", "status", "reason", "message"),
    [
        (PruneReport(unused=["ConfigMap ns/a"]), "True", "Unused", "ConfigMap ns/a: no longer used by the runs."),
        (
            PruneReport(unused=["a"], deletable=False),
            "True",
            "Unused",
            "a: no longer used by the runs. Delete them; to",
        ),
        (PruneReport(problems=["ConfigMap ns/a: no"]), "True", "NotDeleted", "Cannot delete ConfigMap ns/a: no"),
        (PruneReport(deleted=["ConfigMap ns/a"]), "False", "Pruned", "Deleted: ConfigMap ns/a."),
        (
            PruneReport(held=[("ConfigMap ns/a", "the include 'More' was skipped (main.yml:3)")]),
            "Unknown",
            "TasksOmitted",
            "ConfigMap ns/a: not used by the last run, but kept, because the include 'More' was skipped (main.yml:3)",
        ),
        (
            PruneReport(shared=[("ConfigMap ns/a", OtherUsers(users=(TWO,))), ("b", OtherUsers(users=(TWO,)))]),
            "False",
            "InUse",
            "ConfigMap ns/a, b: no longer used by this resource; in use by Thing ns/two.",
        ),
        (
            PruneReport(shared=[("ConfigMap ns/a", OtherUsers(unknown=((TWO, ""),)))]),
            "Unknown",
            "Waiting",
            "ConfigMap ns/a: no longer used by this resource; kept until these resources complete a run: Thing ns/two.",
        ),
        (PruneReport(unrecorded="full"), "Unknown", "NotRecorded", "Further objects cannot be pruned: full"),
        (PruneReport(deleted=["a"], problems=["b: no"]), "True", "NotDeleted", "Cannot delete b: no\nDeleted: a."),
    ],
)
def test_the_condition_names_what_a_user_can_do(found: PruneReport, status: str, reason: str, message: str) -> None:
    (condition,) = prunable({}, found)
    assert (condition["type"], condition["status"], condition["reason"]) == (PRUNABLE, status, reason)
    assert condition["message"].startswith(message)


def test_the_number_of_named_objects_is_bounded() -> None:
    names = [f"ConfigMap ns/{'x' * 250}{number}" for number in range(1000)]
    for found in (PruneReport(unused=names), PruneReport(deleted=names), PruneReport(problems=names)):
        (condition,) = prunable({}, found)
        assert len(condition["message"]) < 8000


@pytest.mark.parametrize(
    ("status", "counts", "written"),
    [("True", True, 1), ("Unknown", True, 1), ("True", False, 0), ("False", True, 0), (None, True, 0)],
)
def test_without_anything_to_report_only_an_outdated_condition_is_written(
    status: str | None,
    written: int,
    *,
    counts: bool,
) -> None:
    conditions = [{"type": PRUNABLE, "status": status}] if status else []
    found = prunable({"status": {"conditions": conditions}}, PruneReport(counts=counts))
    assert [each["reason"] for each in found] == ["NoneUnused"] * written
