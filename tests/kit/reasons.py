"""The reasons of runs, with those of the features."""

from __future__ import annotations

from runner.core.queue import reasons
from runner.features.plan.feature import DRIFT
from runner.features.prune.feature import PRUNE
from runner.features.references.feature import REFERENCE
from runner.features.rollout.feature import ROLLOUT

REASONS = (*reasons.CORE, REFERENCE, PRUNE, ROLLOUT, DRIFT)
