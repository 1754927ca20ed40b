"""What all tests have in common."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# The same examples each time, and no limit of time: a slow machine is no failure. `make test-full` asks for many more.
for name, examples in (("repeatable", 30), ("full", 500)):
    settings.register_profile(
        name,
        deadline=None,
        derandomize=True,
        database=None,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("repeatable")
