"""The reasons of runs, with those of the features."""

from __future__ import annotations

from runner.core.queue import reasons
from runner.features.plan.drift import DRIFT
from runner.features.prune.hooks import PRUNE
from runner.features.references.watching import REFERENCE
from runner.features.rollout.hooks import ROLLOUT

REASONS = (*reasons.CORE, REFERENCE, PRUNE, ROLLOUT, DRIFT)
