"""Fields of watches.yaml that features add, in the order of messages and of the reference page."""

from __future__ import annotations

from runner.engines.pod import fields as pod_fields
from runner.features.plan import drift_fields
from runner.features.prune import fields as prune_fields
from runner.features.rollout import fields as rollout_fields

FEATURE_FIELDS = (pod_fields.FIELDS, drift_fields.FIELDS, rollout_fields.FIELDS, prune_fields.FIELDS)
