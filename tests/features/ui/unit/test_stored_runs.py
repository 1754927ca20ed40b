"""Runs of an earlier operator, read from their folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.core.engine import run_dir
from runner.core.engine.artifacts import point_latest
from runner.features.ui import stored_runs
from runner.features.ui.stored_runs import RunDetails
from runner.values.objects import GVK, ObjectKey
from tests.kit.page_values import ended, start

THING, KEY = GVK("test.example.com", "v1", "Thing"), ObjectKey("shop", "bread")
FIRST, SECOND = "20261121T110000.500000Z-aaaaaa", "20261121T120000.000000Z-bbbbbb"


@pytest.fixture
def artifacts(tmp_path: Path) -> Path:
    folder = tmp_path / "test.example.com/v1/Thing/shop/bread/artifacts"
    for ident, status in ((FIRST, "failed"), (SECOND, "successful")):
        (folder / ident / "job_events").mkdir(parents=True)
        (folder / ident / "status").write_text(status)
    (folder / "latest").symlink_to(SECOND)
    (folder / "strange").mkdir()
    return folder


def keep(artifacts: Path, ident: str, *events: dict[str, Any]) -> None:
    for number, event in enumerate(events, start=1):
        (artifacts / ident / "job_events" / f"{number}-uuid.json").write_text(json.dumps(event))


def test_stored_runs_are_listed_latest_first(artifacts: Path, tmp_path: Path) -> None:
    found = stored_runs.runs(tmp_path, THING, KEY)
    assert [(run.ident, run.outcome) for run in found] == [(SECOND, "succeeded"), (FIRST, "failed")]
    assert found[1].began == 1_795_258_800.5
    assert all(run.ended for run in found)
    assert stored_runs.runs(tmp_path, THING, ObjectKey("shop", "milk")) == []


def test_tasks_are_in_order_and_the_run_has_the_message_of_the_last_failure(artifacts: Path, tmp_path: Path) -> None:
    events = [start(f"t{number}", number) for number in range(11)]
    keep(
        artifacts, FIRST, *events, start("Deploy", 20, "/r/main.yml:7"), ended("on_failed", 21, res={"msg": "no image"})
    )
    (artifacts / FIRST / "job_events" / "14-uuid-partial.json").write_text("{")
    run = stored_runs.run(tmp_path, THING, KEY, FIRST)
    assert run is not None
    assert [task.name for task in run.timeline.tasks] == [*(f"t{number}" for number in range(11)), "Deploy"]
    assert (run.task, run.place, run.message) == ("Deploy", "/r/main.yml:7", "no image")


@pytest.mark.parametrize("ident", ["", "..", "strange", "latest", f"../{FIRST}", "20261121T130000.000000Z-cccccc"])
def test_only_stored_runs_are_read(artifacts: Path, tmp_path: Path, ident: str) -> None:
    assert stored_runs.run(tmp_path, THING, KEY, ident) is None


@pytest.mark.parametrize("key", [("shop", "../shop/bread"), ("shop/.", "bread"), ("..", "shop/bread"), (".", "bread")])
def test_no_folder_is_read_but_that_of_an_object(artifacts: Path, tmp_path: Path, key: tuple[str, str]) -> None:
    inside = tmp_path / "test.example.com/v1/Thing/shop"
    assert stored_runs.runs(tmp_path, THING, KEY)
    assert stored_runs.runs(tmp_path, THING, ObjectKey(*key)) == []
    assert stored_runs.runs(inside.parent.parent, GVK("", "", "Thing"), ObjectKey("", "../Thing/shop/bread")) == []


def test_a_run_whose_files_are_not_masked_yet_is_not_read(artifacts: Path, tmp_path: Path) -> None:
    folder = artifacts.parent
    (folder / "env").mkdir()
    (folder / "env" / "envvars").write_text("{}")
    (folder / run_dir._EXTRAVARS).write_text("{}")
    point_latest(artifacts, SECOND)
    assert [run.ident for run in stored_runs.runs(tmp_path, THING, KEY)] == [FIRST]
    assert stored_runs.run(tmp_path, THING, KEY, SECOND) is None


CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop", "uid": "7"}}
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}, "data": {"password": "aHVudGVyMg=="}}
SELF = {"apiVersion": "test.example.com/v1", "kind": "Thing", "metadata": {"name": "bread", "namespace": "shop"}}


def details(root: Path) -> RunDetails:
    found = stored_runs.details(root, THING, KEY, SECOND)
    assert found is not None
    return found


def test_objects_that_tasks_return_are_shown_without_values_of_secrets(artifacts: Path, tmp_path: Path) -> None:
    several = {"changed": True, "result": {"results": [{"result": CONFIG_MAP, "method": "delete", "changed": True}]}}
    keep(
        artifacts,
        SECOND,
        start("One"),
        ended(
            "on_ok",
            res={"changed": True, "method": "create", "result": SECRET, "diff": {"before": {}, "after": SECRET}},
        ),
        start("Two"),
        ended("item_on_ok", res={"changed": False, "result": CONFIG_MAP}),
        ended("on_ok", res={"results": [{"changed": False, "result": CONFIG_MAP}]}),
        start("Three"),
        ended("on_ok", res=several),
        start("Status"),
        ended("on_ok", res={"changed": True, "result": SELF}),
        start("Other"),
        ended("on_ok", res={"changed": True, "result": "text"}),
    )
    found = details(tmp_path)
    assert [(each.task, each.kind, each.name, each.change) for each in found.objects] == [
        (1, "Secret", "b", "created"),
        (2, "ConfigMap", "a", "unchanged"),
        (3, "ConfigMap", "a", "deleted"),
    ]
    assert "password: (hidden)" in found.objects[0].yaml
    assert found.objects[1].yaml == "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  namespace: shop\n"
    assert [each.text for each in found.diffs] == ["The differences of a Secret are not shown."]
    assert "aHVudGVyMg" not in str(found)


@pytest.mark.lengthy
def test_only_what_is_shown_of_many_large_objects_is_written(
    artifacts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = {**CONFIG_MAP, "spec": {"text": "a" * 100_000, "list": [{"a": number} for number in range(6000)]}}
    several = {"changed": True, "result": {"results": [{"result": large}] * 2 + [{"result": CONFIG_MAP}] * 200}}
    diff = {"before": {"a": 1}, "after": large}
    keep(artifacts, SECOND, start("One"), *[ended("item_on_ok", res={**several, "diff": diff})] * 3)
    written: list[int] = []
    dump = yaml.safe_dump

    def counted(value: Any, **form: Any) -> str:
        written.append(len(json.dumps(value)))
        text: str = dump(value, **form)
        return text

    monkeypatch.setattr(yaml, "safe_dump", counted)
    found = details(tmp_path)
    assert [len(each.yaml) for each in found.objects[:2]] == [20_000, 20_000]
    assert found.objects[0].yaml.startswith("apiVersion: v1\nkind: ConfigMap\n")
    assert (len(found.objects), len(found.diffs)) == (100, 3)
    assert len(written) == 100 + 3 * 2
    assert max(written) < 60_000


@pytest.mark.parametrize(
    ("diff", "wanted"),
    [
        ({"before": {"a": 1}, "after": {"a": 2}}, "--- before\n+++ after\n@@ -1 +1 @@\n-a: 1\n+a: 2"),
        (
            {"before": {"metadata": {"generation": 1}, "a": 1}, "after": {"metadata": {"managedFields": []}, "a": 2}},
            "--- before\n+++ after\n@@ -1,2 +1,2 @@\n metadata: {}\n-a: 1\n+a: 2",
        ),
        ([{"before": "a\n", "after": "b\n"}], "--- before\n+++ after\n@@ -1 +1 @@\n-a\n+b"),
        ({"prepared": "- a\n+ \x1b[2Jb"}, "- a\n+ \\x1b[2Jb"),
    ],
)
def test_the_diff_of_a_task_is_shown(artifacts: Path, tmp_path: Path, diff: Any, wanted: str) -> None:
    keep(artifacts, SECOND, start("One"), start("Two"), ended("on_ok", res={"changed": True, "diff": diff}))
    assert [(each.task, each.text) for each in details(tmp_path).diffs] == [(2, wanted)]


def test_the_end_of_the_output_is_shown_without_managed_fields(
    artifacts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert details(tmp_path).output is None
    (artifacts / SECOND / "stdout").write_text('first\nok => {"managedFields": [{"a": "]"}], "b": "\x1b[2J"}\n')
    found = details(tmp_path)
    assert (found.output, found.output_is_cut) == ('first\nok => {"b": "\\x1b[2J"}\n', False)
    monkeypatch.setattr(stored_runs, "MOST_OUTPUT", 40)
    found = details(tmp_path)
    assert (found.output, found.output_is_cut) == ("", True)
