"""GitHub's workflows are well formed, and call what there is. They are not run here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from runner.sdk.devcluster.cluster import get_actionlint

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github/workflows"


def lint(*files: Path) -> tuple[int, str]:
    program = get_actionlint(os.environ, sys.stderr)
    done = subprocess.run([program, "-no-color", *files], cwd=ROOT, text=True, capture_output=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_workflows_are_well_formed() -> None:
    assert lint(*FOLDER.glob("*.yml")) == (0, "")


def test_an_invalid_workflow_is_reported(tmp_path: Path) -> None:
    text = (FOLDER / "test.yml").read_text()
    broken = tmp_path / "test.yml"
    broken.write_text(text.replace("github.ref }}", "githib.ref }}"))
    code, reported = lint(broken)
    assert code == 1
    assert 'undefined variable "githib"' in reported
