from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.sdk import devcluster
from runner.sdk.migrate import image, trial, trial_cluster
from runner.sdk.migrate.project import Project
from runner.sdk.migrate.trial import Trial
from runner.values.errors import ConfigError, OperatorError
from tests.unit.migrate.projects import Write


def an_object(kind: str, name: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "uid": "1"}, **content}


def test_parts_that_differ_from_run_to_run_are_not_compared() -> None:
    owned = an_object("Pod", "of-a-replica-set")
    owned["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a"}]
    shop = an_object("ConfigMap", "shop", data={"a": "b"}, status={"x": 1})
    shop["metadata"]["ownerReferences"] = [{"apiVersion": "example.com/v1", "kind": "Shop", "uid": "7"}]
    found = trial_cluster.normalised(
        [
            an_object("Secret", "password", data={"key": "random"}),
            an_object("Service", "web", spec={"clusterIP": "10.0.0.1", "ports": [{"port": 80, "nodePort": 30000}]}),
            an_object("ConfigMap", "kube-root-ca.crt"),
            owned,
            shop,
        ]
    )
    assert found == {
        "Secret/password": {"apiVersion": "v1", "kind": "Secret", "metadata.name": "password", "data.key": "…"},
        "Service/web": {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata.name": "web",
            "spec.ports[0].port": 80,
        },
        "ConfigMap/shop": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata.name": "shop",
            "metadata.ownerReferences[0].apiVersion": "example.com/v1",
            "metadata.ownerReferences[0].kind": "Shop",
            "data.a": "b",
        },
    }


def test_differences_are_missing_objects_and_paths() -> None:
    first = {"A/a": {"x": 1, "y": 2}, "B/b": {"x": 1}}
    assert trial_cluster.differences(first, {"A/a": {"x": 2, "z": 2}, "C/c": {}}) == [
        "B/b",
        "C/c",
        "A/a: x",
        "A/a: y",
        "A/a: z",
    ]
    assert trial_cluster.differences(first, first) == []


def test_values_that_differ_within_one_version_are_random() -> None:
    def tried(core: str, engine: str, outcome: str = "succeeded", **values: object) -> Trial:
        return Trial(core, engine, {"S/s": outcome}, {"A/a": values})

    result = trial.compared(
        [
            tried("2.18", "exec", password=1, size=1),
            tried("2.18", "warm", password=2, size=1),
            tried("2.20", "exec", password=3, size=1),
            tried("2.20", "warm", "failed: no\n\n  size", password=3, size=1),
            tried("2.21", "exec", password=4, size="1"),
        ]
    )
    assert result.fitting == ("2.18",)
    assert [list(each) for each in result.differences.values()] == [[], [], [], [], ["A/a: size"]]
    assert list(result.lines())[3:] == [
        "  ansible-core 2.20, exec: 1 of 1 samples succeeded, 1 objects",
        "  ansible-core 2.20, warm: 0 of 1 samples succeeded, 1 objects",
        "    S/s: failed: no size",
        "  ansible-core 2.21, exec: 1 of 1 samples succeeded, 1 objects",
        "    differs from ansible-core 2.18, exec: A/a: size",
        "  First sample with ansible-core 2.21: S/s started no task: succeeded",
        "  The samples work and give the same objects with ansible-core: 2.18",
    ]


def test_a_project_without_samples_cannot_be_tried(project: Path) -> None:
    with pytest.raises(ConfigError, match="requires samples"):
        trial.run(Project({"HOME": str(project)}))


@pytest.mark.lengthy
def test_a_run_that_does_not_end_is_reported_with_its_task(
    project: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(name: str, text: str) -> Path:
        path = write(name, f"#!/bin/sh\n{text}\n")
        path.chmod(0o700)
        return path

    ended = {"msg": "Run ended", "gvk": "shop.example.com/v1, Kind=Shop", "name": "corner", "outcome": "failed"}
    start = {**ended, "msg": "Task started", "ansible_event": "playbook_on_task_start"}
    started = "".join(json.dumps({**start, "task": task}) + "\n" for task in ("Read", "Wait"))
    end = {**ended, "error": "the run was ended during task 'Wait'"}
    tasks, log = write("tasks", started), write("log", json.dumps(end) + "\n")  # the operator prints them so
    operator = program(
        "bin/python",
        f'echo "$@" > {project}/arguments\ntrap "cat {tasks}; cat {log} >&2; exit 0" TERM\nwhile :; do sleep .1; done',
    )
    kubectl = program("bin/kubectl", """echo '{"items": []}'""")
    cluster = SimpleNamespace(kubectl=kubectl, kubeconfig=project / "kubeconfig")
    monkeypatch.setattr(devcluster, "start", lambda **_: contextlib.nullcontext(cluster))
    monkeypatch.setattr(trial_cluster, "python_of", lambda *_: operator)
    monkeypatch.setattr(trial, "_LONGEST", 1.0)
    sample = "{apiVersion: shop.example.com/v1, kind: Shop, metadata: {name: %s}}\n"
    names = ("corner", "a", "b", "c", "d")  # one more than run at the same time
    write("config/samples/shop.yaml", "---\n".join(sample % name for name in names))
    environ = {"HOME": str(project), "PATH": os.environ["PATH"], "ANSIBLE_COLLECTIONS_PATH": "/nowhere"}
    result = trial.run(Project(environ), cores=["2.18"])
    reason = "failed: the run did not end within 2 s: the run was ended during task 'Wait'"
    assert {each.outcomes["Shop/corner"] for each in result.trials} == {reason}
    assert {str(each.tasks["Shop/corner"]) for each in result.trials} == {"reached task 2, 'Wait'"}
    # Contract: roles count the parts of a path in /tmp/ansible-operator/runner.
    arguments = (project / "arguments").read_text()
    assert re.search(r" --runner-dir=/tmp/[^/ ]+/runner ", arguments)
    assert " --max-concurrent-reconciles=5" in arguments


@pytest.mark.lengthy
def test_collections_that_cannot_be_installed_are_an_error_with_advice(project: Path, write: Write) -> None:
    sample = "{apiVersion: shop.example.com/v1, kind: Shop, metadata: {name: a}}\n"
    write("config/samples/shop.yaml", sample)
    write("requirements.yml", "collections: [{name: a.b, source: 'file:///nowhere', type: dir}]\n")
    with pytest.raises(OperatorError, match=r"^`ansible-galaxy collection install .* set ANSIBLE_COLLECTIONS_PATH"):
        trial.run(Project({"HOME": str(project)}))


def test_the_installed_ansible_core_needs_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_cluster, "version", lambda _: "2.21.5")
    assert trial_cluster.python_of("2.21", {}, print) == Path(sys.executable)


def test_an_ansible_core_that_this_python_cannot_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_cluster, "version", lambda _: "2.18.1")
    monkeypatch.setattr(sys, "version_info", (3, 11, 2))
    with pytest.raises(OperatorError, match=r"2\.21 requires Python 3\.12 or later"):
        trial_cluster.python_of("2.21", {}, print)


@pytest.mark.lengthy
def test_an_operator_that_does_not_start_is_reported_with_its_last_line(
    project: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, kubectl = (
        write("bin/python", "#!/bin/sh\necho 'no such flag' >&2\nexit 2\n"),
        write("bin/kubectl", "#!/bin/sh\necho '{\"items\": []}'\n"),
    )
    for program in (operator, kubectl):
        program.chmod(0o700)
    cluster = SimpleNamespace(kubectl=kubectl, kubeconfig=project / "kubeconfig")
    monkeypatch.setattr(devcluster, "start", lambda **_: contextlib.nullcontext(cluster))
    monkeypatch.setattr(trial_cluster, "python_of", lambda *_: operator)
    write("config/samples/shop.yaml", "{apiVersion: shop.example.com/v1, kind: Shop, metadata: {name: corner}}\n")
    environ = {"HOME": str(project), "PATH": os.environ["PATH"], "ANSIBLE_COLLECTIONS_PATH": "/nowhere"}
    result = trial.run(Project(environ), cores=["2.21"])
    outcome = "the operator ended; the operator's log: no such flag"
    assert {each.outcomes["Shop/corner"] for each in result.trials} == {outcome}
    assert f"  First sample with ansible-core 2.21: Shop/corner started no task: {outcome}" in result.lines()


def test_a_trial_has_the_files_in_the_places_of_the_image(
    project: Path, write: Write, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("staged")
    assert image.stage(Project({}).search_path.image, folder) == project
    go = "FROM quay.io/operator-framework/ansible-operator:v1.42.3\n"
    write("ansible/roles/till/tasks/main.yml", "[]\n")
    write("ansible/site.yml", "[]\n")
    write(
        "Dockerfile",
        f"{go}COPY roles /usr/share/ansible/roles/\nCOPY ansible/roles ${{HOME}}/roles\n"
        "COPY ansible/*.yml ${HOME}/playbooks/\nCOPY watches.yaml /etc/other/\n",
    )
    assert image.stage(Project({}).search_path.image, folder) == folder
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert found == ["playbooks/site.yml", "roles/shop/tasks/main.yml", "roles/till/tasks/main.yml"]
