"""What a newcomer starts first works, and ends by itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.kit.images import node_hindrance
from tests.kit.places import ROOT


@pytest.mark.parametrize(
    "node",
    [
        "fake",
        pytest.param(
            "real",
            marks=[
                pytest.mark.nightly,  # `test_on_node.py` shows the same program on a real node
                pytest.mark.skipif(bool(why := node_hindrance()), reason=why),
            ],
        ),
    ],
)
def test_the_demo_shows_each_status_and_the_operators_log_and_ends_with_success(node: str) -> None:
    kept = {name: value for name, value in os.environ.items() if name not in {"KUBECONFIG", "DEMO_KEEP"}}
    surroundings = kept | {"NODE": node}
    done = subprocess.run(
        [sys.executable, "-m", "hack.demo"],
        cwd=ROOT,
        env=surroundings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "\033[" not in done.stdout
    for part in (
        "memcached-sample   3",
        "memcached-sample   4",
        "Task started",
        "Run ended",
        "its Deployment are gone",
    ):
        assert part in done.stdout
    assert ("memcached | STORED VALUE greeting 0 5 hello END" in done.stdout) == (node == "real")
