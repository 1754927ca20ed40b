"""Checks of roles against the installed ansible-core."""
