"""Plan of a run: what a role would change, without a write to the cluster."""
