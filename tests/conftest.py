"""What all tests have in common."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# The same examples each time, and no limit of time: a slow machine is no failure.
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")
