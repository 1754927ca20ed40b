"""`skipUnchanged`: runs of unchanged objects are skipped."""
