"""Alert rules and dashboard: Prometheus takes them, and they are about metrics that there are."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import runner
from runner.base.meters import Meters
from runner.core.queue.line import ConcurrencyLimit
from runner.core.queue.queue import Dispatcher, WorkQueue
from runner.core.reconcile.metrics import Metrics
from runner.values.objects import GVK
from tests.kit.promtool import (
    names_in,
    problems_of_alerts,
    problems_of_expressions,
    problems_of_metrics,
    problems_of_rules,
)

FOLDER = Path(__file__).resolve().parents[2] / "config" / "prometheus"
THING = GVK("example.com", "v1", "Thing")
DECLARING = {"counter", "gauge", "histogram", "observable_counter", "observable_gauge"}
"""Methods of `Meters`."""
VARIABLES = {"$__rate_interval": "5m", "$__range": "1h"}


@pytest.fixture
def rules() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "rules.yaml").read_text(encoding="utf-8"))["spec"]
    return found


async def exposed() -> str:
    """All that an operator shows, though nothing has happened."""
    metrics = Metrics()
    metrics.add_kind(THING, WorkQueue(ConcurrencyLimit.of(1), Dispatcher(ConcurrencyLimit.of(1))))
    metrics.add_objects(THING, list, lambda: 1.0)
    metrics.objects.labels(str(THING)).set(0)
    metrics.run_results.labels(str(THING), "failed")
    own, features = (await metrics.text()).decode(), Meters()
    for declare, name in sorted(set(declared())):
        if f"# TYPE {name}" not in own:
            values = [lambda: {THING: 1}] if declare.startswith("observable") else []
            getattr(features, declare)(name, "Declared by a feature", ["GVK"], *values)
    return own + (await features.text()).decode()


def declared() -> Iterator[tuple[str, str]]:
    """Yield the method and the name of each meter that the source code declares."""
    for path in Path(runner.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in DECLARING:
                match node.args:
                    case [ast.Constant(value=str(name)), *_]:
                        yield node.func.attr, name


def test_prometheus_takes_the_alert_rules(rules: dict[str, Any], tmp_path: Path) -> None:
    assert problems_of_rules(rules, tmp_path) == ""
    rules["groups"][0]["rules"][0]["expr"] += " >"
    assert "parse error" in problems_of_rules(rules, tmp_path)


def test_each_alert_comes_when_it_should_and_not_else(rules: dict[str, Any], tmp_path: Path) -> None:
    tests = yaml.safe_load((Path(__file__).parent / "alerts.yaml").read_text(encoding="utf-8"))
    by_name = {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}
    expected: dict[str, set[bool]] = {name: set() for name in by_name}
    for each in (each for test in tests["tests"] for each in test["alert_rule_test"]):
        expected[each["alertname"]].add("exp_alerts" in each)
        for alert in each.get("exp_alerts", []):
            alert["exp_annotations"]["description"] = by_name[each["alertname"]]["annotations"]["description"]
    assert set(map(frozenset, expected.values())) == {frozenset({True, False})}, "each comes once, and once does not"
    assert problems_of_alerts(rules, tests, tmp_path) == ""
    for rule in by_name.values():
        kept, rule["expr"] = rule["expr"], "vector(1)"
        assert rule["alert"] in problems_of_alerts(rules, tests, tmp_path)
        rule["expr"] = kept


async def test_rules_and_dashboard_are_about_metrics_that_there_are(rules: dict[str, Any], tmp_path: Path) -> None:
    dashboard = (FOLDER / "dashboard.json").read_text(encoding="utf-8")
    for name, value in VARIABLES.items():
        dashboard = dashboard.replace(name, value)
    content = json.loads(dashboard)
    expressions = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    expressions += [target["expr"] for panel in content["panels"] for target in panel["targets"]]
    queries = [each["query"]["query"] for each in content["templating"]["list"] if each["type"] == "query"]
    expressions += [query.removeprefix("label_values(").rpartition(",")[0] for query in queries]
    assert problems_of_expressions(expressions, tmp_path) == ""
    families = {line.split()[2] for line in (await exposed()).splitlines() if line.startswith("# TYPE ")}
    known = families | {f"{name}{suffix}" for name in families for suffix in ("_bucket", "_count", "_sum")}
    for expression in expressions:
        names = names_in(expression)
        assert names, expression
        assert names <= known, expression


def test_names_of_series_are_found_in_expressions() -> None:
    text = 'sum by (a, b) (rate(one_total{c="d and e"}[5m])) / on (a) two:three > bool 0.5e3 or absent(four offset 5m)'
    assert names_in(text) == {"one_total", "two:three", "four"}


async def test_prometheus_finds_nothing_wrong_with_what_is_exposed() -> None:
    assert problems_of_metrics(await exposed()) == ""
    assert "_total" in problems_of_metrics("# TYPE runs counter\nruns 1\n")
