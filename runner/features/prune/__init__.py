"""`prune`: objects that a resource no longer needs are reported or deleted."""
