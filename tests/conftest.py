"""What all tests have in common."""

from __future__ import annotations

from pathlib import Path

import pytest
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures that tests recorded as properties."""
    figures = [figure for report in terminalreporter.getreports("passed") for figure in report.user_properties]
    if figures:
        terminalreporter.section("figures")
    for name, value in figures:
        terminalreporter.write_line(f"{name}: {value}")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is released, as `make build` makes it."""
    from tests.newcomer import build_wheel  # noqa: PLC0415 - few tests need it

    return build_wheel(tmp_path_factory.mktemp("dist"))
