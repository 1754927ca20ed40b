"""Fields of watches.yaml that features add, in the order of messages and of the reference page."""

from __future__ import annotations

from runner.engines.pod import fields as pod_fields
from runner.engines.warm import fields as warm_fields
from runner.features.hosts import fields as host_fields
from runner.features.plan import drift_fields
from runner.features.prune import fields as prune_fields
from runner.features.references import fields as reference_fields
from runner.features.rollout import fields as rollout_fields
from runner.features.unchanged import fields as unchanged_fields

FEATURE_FIELDS = (
    reference_fields.FIELDS,
    warm_fields.FIELDS,
    pod_fields.FIELDS,
    host_fields.FIELDS,  # after `references`, to which it adds the Secret with credentials
    drift_fields.FIELDS,
    rollout_fields.FIELDS,
    prune_fields.FIELDS,
    unchanged_fields.FIELDS,
)
