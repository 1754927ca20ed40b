"""`ansible-operator dev` in a project's folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.lengthy
def test_a_module_of_the_project_shadows_none_of_the_operator(tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("raise SystemExit('shadowed')\n")
    (tmp_path / "watches.yaml").write_text("- {kind: Shop}\n")
    (tmp_path / "kubeconfig").write_text("{}\n")
    kubectl = tmp_path / "kubectl"
    kubectl.write_text("#!/bin/sh\n")
    kubectl.chmod(0o755)
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-operator"), "dev"],
        cwd=tmp_path,
        env=os.environ | {"KUBECONFIG": str(tmp_path / "kubeconfig"), "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "shadowed" not in done.stdout + done.stderr
    assert "watches.yaml:1" in done.stdout + done.stderr
