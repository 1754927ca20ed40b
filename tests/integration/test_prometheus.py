"""Alert rules and dashboard: Prometheus takes them, and they are about metrics that there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.metrics import Metrics
from runner.objects import GVK
from runner.slots import Share, Slots
from runner.workqueue import WorkQueue
from tests.promcheck import names_in, problems_of_metrics, problems_of_rules

FOLDER = Path(__file__).resolve().parents[2] / "config" / "prometheus"
THING = GVK("example.com", "v1", "Thing")
VARIABLES = {"$__rate_interval": "5m", "$__range": "1h"}


@pytest.fixture
def rules() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "rules.yaml").read_text(encoding="utf-8"))["spec"]
    return found


async def exposed() -> str:
    """All that an operator shows, though nothing has happened."""
    metrics = Metrics()
    metrics.add_kind(THING, WorkQueue(Share.of(1), Slots(Share.of(1))), 1)
    metrics.add_objects(THING, list, lambda: 1.0)
    metrics.add_dependents(lambda: {THING: True}, lambda: 0)
    metrics.add_engine(lambda: None, lambda: {"warm": 0, "exec": 0})
    metrics.add_leases(["lease"], lambda: {0})
    metrics.objects.labels(str(THING)).set(0)
    metrics.run_results.labels(str(THING), "failed")
    return (await metrics.text()).decode()


def test_prometheus_takes_the_alert_rules(rules: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(rules))
    assert problems_of_rules(file) == []
    rules["groups"][0]["rules"][0]["expr"] += " >"
    file.write_text(yaml.safe_dump(rules))
    assert len(problems_of_rules(file)) == 1


async def test_rules_and_dashboard_are_about_metrics_that_there_are(rules: dict[str, Any]) -> None:
    dashboard = (FOLDER / "dashboard.json").read_text(encoding="utf-8")
    for name, value in VARIABLES.items():
        dashboard = dashboard.replace(name, value)
    expressions = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    expressions += [target["expr"] for panel in json.loads(dashboard)["panels"] for target in panel["targets"]]
    families = {line.split()[2] for line in (await exposed()).splitlines() if line.startswith("# TYPE ")}
    known = families | {f"{name}{suffix}" for name in families for suffix in ("_bucket", "_count", "_sum")}
    assert len(expressions) > 20
    assert names_in(expressions) - known == set()


async def test_prometheus_finds_nothing_wrong_with_what_is_exposed() -> None:
    assert problems_of_metrics(await exposed()) == []
    assert problems_of_metrics("# TYPE runs counter\nruns 1\n") != []
