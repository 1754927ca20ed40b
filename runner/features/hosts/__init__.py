"""Hosts of custom resources: their addresses, the credentials that were lent for them, and their results."""
