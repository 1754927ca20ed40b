"""What a newcomer starts first works, and ends by itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.kit.images import node_hindrance
from tests.kit.places import ROOT
from tests.kit.processes import merged


@pytest.mark.nightly
@pytest.mark.skipif(bool(why := node_hindrance()), reason=why)
def test_the_demo_on_a_real_node_shows_each_status_and_an_answer_of_memcached() -> None:
    """CI shows the demo without a real node in `devcluster/test_other_clusters.py`."""
    kept = {name: value for name, value in os.environ.items() if name not in {"KUBECONFIG", "DEMO_KEEP"}}
    surroundings = kept | {"NODE": "real"}
    done = merged(sys.executable, "-m", "hack.demo", cwd=ROOT, env=surroundings, stdin=subprocess.DEVNULL, timeout=280)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "STORED VALUE greeting 0 5 hello END" in done.stdout
