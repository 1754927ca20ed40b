"""`skipUnchanged`: the record of the last run and the digest of what a run executes."""
