from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.lengthy

_CONFTEST = """
import contextlib
from runner.sdk import devcluster

@contextlib.contextmanager
def start(*, name, nodes, logs):
    yield f"{name} with {nodes}"

devcluster.start = start
"""
_TEST = """
def test_it(devcluster):
    print(devcluster)
"""


@pytest.mark.parametrize(
    ("options", "variable", "expected"),
    [((), None, "fake"), (("--devcluster-node=both",), "fake", "both"), ((), "real", "real")],
)
def test_the_nodes_are_those_of_the_option_or_the_environment(
    tmp_path: Path, options: tuple[str, ...], variable: str | None, expected: str
) -> None:
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    (tmp_path / "test_it.py").write_text(_TEST)
    environ = {name: value for name, value in os.environ.items() if name not in {"KUBECONFIG", "DEVCLUSTER_NODE"}}
    environ |= {"DEVCLUSTER_NODE": variable} if variable else {}
    environ |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # other plugins take most of the time
    plugins = ["-p", "runner.sdk.devcluster.pytest_plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-s", "-q", *plugins, *options, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert f"test with {expected}\n" in done.stdout, done.stdout + done.stderr
