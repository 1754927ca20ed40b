"""The command line in the image of an operator, which has no `runner.sdk`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.places import ROOT


@pytest.mark.lengthy
def test_an_operator_without_the_packages_for_authors_has_only_its_own_commands(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "runner", tmp_path / "runner", ignore=shutil.ignore_patterns("sdk", "__pycache__"))

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "runner", *arguments]
        return subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, check=False)

    listed = re.findall(r"^  (\w+)  ", call("--help").stdout, re.MULTILINE)
    assert listed == ["logs", "rollout", "run", "version"]
    refused = call("init")
    assert refused.returncode == 2
    assert "unknown command init (the image of an operator has no commands for authors)" in refused.stderr
    assert "no run is kept below none" in call("logs", "Memcached/sample", "--runner-dir=none").stderr
    assert "watches.yaml" in call("run").stderr
