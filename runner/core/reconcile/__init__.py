"""One watched kind: triggers, reconcile, finalizers, the job of a run and its result."""
