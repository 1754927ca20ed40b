"""Owned objects, cached for GET requests through the proxy."""
