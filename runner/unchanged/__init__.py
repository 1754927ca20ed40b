"""`skipUnchanged`: the record of the last run."""
