"""Flags, environment variables, limits of the machine, and paths."""
