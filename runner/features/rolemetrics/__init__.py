"""Metrics of roles: the endpoint for the module `osdk_metric`."""
