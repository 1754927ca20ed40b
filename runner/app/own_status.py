"""Parts of the status of each object that only the operator and its features write."""

from __future__ import annotations

from runner.core.status import report
from runner.core.status.own import OwnStatus
from runner.features.hosts import record
from runner.features.loopguard import reports
from runner.features.plan import drift_status, plan_status
from runner.features.prune import status as prune_status
from runner.features.references import ignored
from runner.features.rollout import member

OWN_STATUS = OwnStatus.joined(
    report.OWN,
    reports.OWN,
    ignored.OWN,
    member.OWN,
    OwnStatus(fields=frozenset({record.FIELD})),
    plan_status.OWN,
    drift_status.OWN,
    prune_status.OWN,
)
