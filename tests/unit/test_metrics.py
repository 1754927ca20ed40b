"""Series about dependents and reads."""

from __future__ import annotations

from runner.metrics import Metrics
from runner.objects import GVK


def lines(metrics: Metrics, prefix: str) -> list[str]:
    return [line for line in metrics.text().decode().splitlines() if line.startswith(prefix)]


def test_reads_through_the_proxy_are_there_from_the_start_and_counted() -> None:
    metrics = Metrics()
    name = "ansible_operator_proxy_reads_total"
    assert lines(metrics, name) == [f'{name}{{result="hit"}} 0.0', f'{name}{{result="miss"}} 0.0']
    metrics.read_through_proxy("hit")
    assert lines(metrics, name)[0] == f'{name}{{result="hit"}} 1.0'


def test_kinds_of_dependents_show_whether_they_are_watched() -> None:
    metrics = Metrics()
    live = {GVK("apps", "v1", "Deployment"): True, GVK("", "v1", "Secret"): False}
    metrics.add_dependents(lambda: live, lambda: 4096)
    assert lines(metrics, "ansible_operator_dependents_") == [
        'ansible_operator_dependents_watched{GVK="apps/v1, Kind=Deployment"} 1.0',
        'ansible_operator_dependents_watched{GVK="v1, Kind=Secret"} 0.0',
        "ansible_operator_dependents_kept_bytes 4096.0",
    ]
