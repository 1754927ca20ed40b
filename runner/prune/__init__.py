"""`prune`: records of the objects that runs created, and the decision which of them are no longer used."""
