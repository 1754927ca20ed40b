"""What all tests have in common."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.kit import leftovers, once_more

_UNIT = Path(__file__).parent / "unit"

# The same examples each time, and no limit of time: a slow machine is no failure. `test-nightly` asks for many more.
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

# What pytest makes of a test's file is kept for the next process also where PYTHONDONTWRITEBYTECODE is set: to make it
# costs seconds in each worker. Only while tests are collected: what they import and start themselves is their own.
_no_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, False

# Collection only allocates: the garbage collector would traverse all modules and tests many times and free nothing.
gc.disable()


def pytest_configure(config: pytest.Config) -> None:
    once_more.register(config)
    leftovers.register(config)


def pytest_collection_finish() -> None:
    sys.dont_write_bytecode = _no_bytecode
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark quick unit tests, and keep tests of a group in one worker, so that what they share is made once.

    pytest-xdist 3.8 tells the scheduler of groups by the field that held a test's name before pytest 9.2
    (https://github.com/pytest-dev/pytest-xdist/issues/1386).
    """
    for item in items:
        if _UNIT in item.path.parents and not any(map(item.get_closest_marker, ("lengthy", "full", "nightly"))):
            item.add_marker("quick")
    yield
    for item in items:
        if named := vars(item).get("_nodeid"):
            item._id = type(item.id).parse(named)


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
    from tests.kit.newcomer import build_wheel  # noqa: PLC0415 - few tests need it

    return build_wheel(tmp_path_factory.mktemp("dist"))
