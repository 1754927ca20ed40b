"""Metrics, health checks, probes, and access to them."""
