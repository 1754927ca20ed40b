"""What the first part of the start needs."""

from __future__ import annotations

import subprocess
import sys

_IMPORTS = "import sys, runner.app.start, runner.engines.warm.engine; print(*sys.modules)"


def test_processes_that_load_ansible_start_before_the_operator_itself_is_imported() -> None:
    imported = subprocess.run([sys.executable, "-c", _IMPORTS], capture_output=True, text=True, check=True).stdout
    heavy = {"aiohttp", "cryptography", "prometheus_client", "runner.app.app", "runner.core.kube.client"}
    assert heavy & {*imported.split()} == set()
