"""Cache of the API discovery of runs."""
