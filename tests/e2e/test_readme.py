"""The operator that README.md shows."""

from __future__ import annotations

from pathlib import Path

from hack import recording


def test_the_operator_of_the_readme_runs_its_pods_and_reports_them_as_ready(tmp_path: Path) -> None:
    operator, user = recording.record(tmp_path)
    assert user.shows("dashboard.tools.example.com/sales condition met")
    assert user.shows("deployment.apps/sales")
    assert user.shows("secret/sales")
    assert operator.shows("Dashboard default/sales: succeeded in")
    assert [line.text for line in operator.lines if " error: " in line.text or " warning: " in line.text] == []
