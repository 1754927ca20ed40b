"""The core is free of words of features and of optional engines, except where a reason is given."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from tests.kit.places import ROOT

WORDS = (
    *("prune", "pruned", "pruner", "pruning", "prunable"),
    *("rollout", "rollouts", "plan", "plans", "planned", "planner", "planning", "approve", "approved", "approval"),
    *("drift", "drifted", "lent", "skipunchanged", "skip_unchanged", "readcache", "read cache", "read_cache"),
    *("discovery cache", "discovery_cache", "loopguard", "loop guard", "loop_guard", "contention", "contended"),
    *("rolemetrics", "role metrics", "role_metrics", "ui", "status page", "warm", "fork server", "isolation"),
)
"""Not `hosts`, `inventory`, `references` and `unchanged`: Ansible, Kubernetes and plain English have them too."""

_MODE = "`mode`: an annotation overrides it together with the other settings of a run, with the same bounds"
_STORED = "a stored format: the purpose and the folder of a trial"
_REFUSALS = "one table has what follows each refused request of the whole operator"
_WORKLOAD = "the rollout of a Deployment, as Kubernetes calls it"
_SCHEMA = "the API server prunes fields that a schema does not have"
EXEMPT: Mapping[str, tuple[set[str], str]] = {
    "core/engine/job.py": ({"plan"}, _STORED),
    "core/kube/meaning.py": ({"plan", "prune", "rollout", "lent", "warm"}, _REFUSALS),
    "core/kube/object_state.py": ({"rollout"}, _WORKLOAD),
    "core/dependents/notification.py": ({"rollout"}, _WORKLOAD),
    "core/reconcile/attempt.py": ({"plan", "approve"}, _MODE),
    "core/reconcile/runs.py": ({"plan", "plans"}, _STORED),
    "core/status/patch.py": ({"pruned"}, _SCHEMA),
    "core/status/writer.py": ({"pruned"}, _SCHEMA),
    "core/watches/declared.py": ({"plan", "plans", "approve", "approved"}, _MODE),
    "core/watches/policy.py": ({"plan", "approve", "approved", "approval"}, _MODE),
    "core/watches/watch.py": ({"plan", "approval"}, _MODE),
    "values/objects.py": ({"plan"}, "a stored format: the annotation of the record of a resource"),
}


def test_the_core_has_no_words_of_features() -> None:
    pattern = re.compile(rf"(?<![a-z])(?:{'|'.join(sorted(WORDS, key=len, reverse=True))})(?![a-z])", re.IGNORECASE)
    words: dict[str, set[str]] = defaultdict(set)
    for part in ("core", "values"):
        for path in (ROOT / "runner" / part).rglob("*.py"):
            if used := {word.lower() for word in pattern.findall(path.read_text(encoding="utf-8"))}:
                words[str(path.relative_to(ROOT / "runner"))] |= used
    assert dict(words) == {path: exempt for path, (exempt, _) in EXEMPT.items()}
