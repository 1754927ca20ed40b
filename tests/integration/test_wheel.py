"""The wheel that is released, in an environment where nothing else of this repository is.

CI follows the guide with the wheel: `tests/e2e/test_guide.py`.
"""

from __future__ import annotations

import os
import sys
import venv
from pathlib import Path

import pytest

from tests.kit import newcomer
from tests.kit.processes import merged


@pytest.mark.nightly
def test_a_project_is_made_checked_and_packed_with_nothing_but_the_wheel(tmp_path: Path, wheel: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}

    def run(*command: str | Path, cwd: Path = tmp_path) -> str:
        done = merged(*command, cwd=cwd, env=environ)
        assert done.returncode == 0, f"{command}:\n{done.stdout}"
        return done.stdout

    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv/bin/python"
    uv = Path(sys.executable).with_name("uv")
    run(uv, "pip", "install", "--quiet", "--python", python, "--constraint", newcomer.locked(), wheel)

    command = tmp_path / "venv/bin/ansible-operator"
    project = tmp_path / "shop-operator"
    project.mkdir()
    run(command, "init", "--domain=example.org", cwd=project)
    run(command, "create", "api", "--group=shop", "--kind=Basket", "--finalizer", cwd=project)
    assert "1 watch, 0 errors, 0 warnings" in run(command, "validate", cwd=project)
    run(command, "generate", "crds", cwd=project)
    (project / "all.yaml").write_text(DEPLOYMENT)
    run(command, "generate", "chart", "--manifests=all.yaml", cwd=project)
    assert (project / "dist/chart/shop-operator/templates/_helpers.tpl").is_file()
    found = run(python, "-c", "import runner; print(runner.__file__)", cwd=project)
    assert found.startswith(str(tmp_path))


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop-operator-controller-manager, namespace: shop-operator-system}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: manager, image: controller:latest}]}
"""
