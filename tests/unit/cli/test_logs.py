"""`ansible-operator logs` on run folders as engines leave them."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.base.config.paths import run_dir
from runner.cli import logs as logs_cli
from runner.cli import main
from runner.core.engine import output, processes
from runner.core.engine.artifacts import KeptRuns, point_latest
from runner.core.engine.job import Job
from runner.values.objects import GVK, ObjectKey

THING = GVK("test.example.com", "v1", "Thing")
OTHER = GVK("other.example.com", "v1beta1", "Thing")
CONFIG_MAP = GVK("", "v1", "ConfigMap")
POLICY = GVK("apps", "v1", "Policy")


class Folders:
    """Run folders below a root."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, gvk: GVK, name: str, *said: str, namespace: str = "shop") -> Path:
        """Leave a run for each thing said."""
        folder = run_dir(self.root, gvk, ObjectKey(namespace, name))
        (folder / "env").mkdir(parents=True)
        (folder / "env/envvars").write_text("{}")
        for number, text in enumerate(said):
            run = folder / f"artifacts/2026-{number}"
            run.mkdir(parents=True)
            (run / "stdout").write_text(text)
            (run / "status").write_text("successful")
        if said:
            (folder / "artifacts/latest").symlink_to(f"2026-{len(said) - 1}")
        return folder


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


@pytest.fixture
def logs(
    folders: Folders, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Call the command, without a cluster; return its exit code and its output on either stream."""
    for variable in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(folders.root / "home"))

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main.main(["logs", f"--runner-dir={folders.root}", *arguments])
        said = capfdbinary.readouterr()
        return code, said.out.decode(), said.err.decode()

    return call


Logs = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    "kind",
    ["Thing", "thing", "things", "Thing.test.example.com", "things.test.example.com", "thing.v1.test.example.com"],
)
def test_kinds_are_written_as_for_kubectl(folders: Folders, logs: Logs, kind: str) -> None:
    folders.add(THING, "one", "first", "second")
    assert logs(f"{kind}/one") == (0, "second", "run 2026-1 of Thing shop/one ended: successful\n")


@pytest.mark.parametrize(
    ("gvk", "wanted"), [(CONFIG_MAP, "configmaps/one"), (POLICY, "policies/one"), (POLICY, "Policy.apps/one")]
)
@pytest.mark.parametrize("namespace", ["shop", ""])
def test_core_groups_and_cluster_scoped_objects_have_shorter_folders(
    folders: Folders, gvk: GVK, wanted: str, namespace: str
) -> None:
    folder = folders.add(gvk, "one", "said", namespace=namespace)
    found = output.find(folders.root, wanted, None)
    assert (found.folder, found.gvk, found.key) == (folder, gvk, ObjectKey(namespace, "one"))


def test_control_characters_are_shown_as_text(folders: Folders, logs: Logs) -> None:
    folders.add(THING, "one", "\x1b[0;32mok\x1b[0m: \x1b]0;title\x07 ä\r\nnext\n")
    assert logs("thing/one")[1] == "ok: \\x1b]0;title\\x07 ä\nnext\n"


def test_lines_in_which_ansible_describes_itself_are_omitted_and_long_ones_shortened(
    folders: Folders, logs: Logs
) -> None:
    header = """\
ansible-playbook [core 2.21.1]
  config file = None
  configured module search path = ['/root/.ansible/plugins/modules']
  python version = 3.13.0 (main, Oct 16 2024) [Clang 18.1.8 ] (/work/.venv/bin/python)
  jinja version = 3.1.6
  libyaml = True
No config file found; using defaults
Skipping callback 'default', as we already have a stdout callback.
PLAYBOOK: 3f.json **************
1 plays in /tmp/3f.json
"""
    text = f"\nPLAY [localhost] ***\nok: [localhost] => {'x' * 400}\n"
    folders.add(THING, "one", header + text)
    assert logs("thing/one")[1] == f"\nPLAY [localhost] ***\nok: [localhost] => {'x' * 281}… (119 more characters)\n"
    assert logs("thing/one", "--all")[1] == header + text


def test_a_failed_run_begins_with_its_cause_and_has_the_result_of_its_task(folders: Folders, logs: Logs) -> None:
    run = folders.add(THING, "one", "all of it") / "artifacts/2026-0"
    (run / "status").write_text("failed")
    (run / "job_events").mkdir()
    data = {"task": "Deploy", "task_path": "/roles/a/tasks/main.yml:3", "host": "localhost", "task_action": "k8s"}
    result = {
        "msg": "no\nsuch \x1b[2Jthing",
        "changed": False,
        "_ansible_no_log": False,
        "invocation": {"a": 1},
        "stderr": "e" * 400,
        "list": list(range(30)),
        "stdout": "\n".join(map(str, range(50))),
    }
    events = [
        {"event": "playbook_on_task_start", "event_data": data},
        {"event": "runner_on_failed", "event_data": {**data, "task": "Rescued", "res": {"msg": "rescued"}}},
        {"event": "runner_on_failed", "event_data": {**data, "res": result}},
        {"event": "playbook_on_stats", "event_data": {"failures": {"localhost": 1}}},
    ]
    for number, event in enumerate(events, 1):
        (run / f"job_events/{number}-x.json").write_text(json.dumps(event))
    lines = logs("thing/one")[1].splitlines()
    assert lines[0].startswith(r"no such \x1b[2Jthing: eeee")
    assert lines[1:5] == [
        "  task 'Deploy', /roles/a/tasks/main.yml:3",
        "",
        "TASK [Deploy]",
        "failed on localhost:",
    ]
    assert "  stderr: " + "e" * 300 + "… (100 more characters)" in lines
    assert "  - … 10 more" in lines
    assert "    … 30 more lines" in lines
    assert not {"rescued", "invocation", "changed"} & set(re.findall(r"\w+", "\n".join(lines)))
    assert lines[-1].endswith("--all shows all output of the run.")
    assert logs("thing/one", "--all")[1] == "all of it"


@pytest.mark.parametrize("text", ["ERROR! no such file\nhere\n", ""])
def test_a_run_that_failed_before_its_tasks_has_its_output(folders: Folders, logs: Logs, text: str) -> None:
    run = folders.add(THING, "one", "all of it") / "artifacts/2026-0"
    (run / "status").write_text("failed")
    (run / "job_events").mkdir()
    (run / "job_events/1-x.json").write_text(json.dumps({"event": "verbose", "stdout": text}))
    out = logs("thing/one")[1]
    assert out.startswith("no such file here") if text else out == "all of it"


def test_the_run_before_is_shown_on_request(folders: Folders, logs: Logs) -> None:
    folders.add(THING, "one", "first", "second")
    folders.add(THING, "two", "only")
    assert logs("thing/one", "--previous")[1] == "first"
    code, out, err = logs("thing/two", "--previous")
    assert (code, out) == (1, "")
    assert "contains no run before the last one of Thing shop/two" in err


@pytest.mark.parametrize("wanted", ["thing", "thing/", "/one", "thing/one/two"])
def test_an_argument_that_is_not_an_object_name_has_exit_code_2(folders: Folders, logs: Logs, wanted: str) -> None:
    code, _, err = logs(wanted)
    assert code == 2
    assert "write KIND/NAME" in err


def test_an_error_for_an_unknown_object_lists_the_stored_ones(folders: Folders, logs: Logs) -> None:
    assert "no run is kept below" in logs("thing/one")[2]
    folders.add(THING, "one", "said")
    folders.add(CONFIG_MAP, "settings", "said")
    for wanted, said in (
        (["thin/one"], "no run of a kind 'thin' is kept"),
        (["thin/one"], "there are ConfigMap, Thing.test.example.com"),
        (["thing/ones"], "no run of thing 'ones' is kept"),
        (["thing/ones"], "deleted object is kept for some minutes; afterwards, use the log of the operator"),
        (["thing/ones"], "there are shop/one"),
        (["thing/one", "-n", "mall"], "in namespace mall"),
    ):
        code, out, err = logs(*wanted)
        assert (code, out) == (1, "")
        assert said in err


def test_an_ambiguous_name_is_an_error_that_lists_all_objects_of_that_name(folders: Folders, logs: Logs) -> None:
    folders.add(THING, "one", "in shop")
    folders.add(THING, "one", "in mall", namespace="mall")
    folders.add(OTHER, "one", "of another group", namespace="mall")
    code, _, err = logs("thing/one")
    assert code == 1
    assert "Thing.other.example.com mall/one, Thing.test.example.com mall/one, Thing.test.example.com shop/one" in err
    assert logs("thing/one", "-n", "shop")[1] == "in shop"
    assert logs("thing.other.example.com/one")[1] == "of another group"


def test_a_run_without_output_is_reported(folders: Folders, logs: Logs) -> None:
    folder = folders.add(THING, "one", "said")
    (folder / "artifacts/2026-0/stdout").unlink()
    code, out, err = logs("thing/one")
    assert (code, out) == (0, "")
    assert "the run has no output" in err


def _go_on(folder: Path, ident: str) -> Path:
    """Make a run look as one that goes on under this process."""
    marker = processes.run_id(folder, ident)
    (folder / "env/envvars").write_text(json.dumps({processes.MARKER: marker}))
    mark = folder / "env/extravars"
    mark.write_text("{}")
    point_latest(folder / "artifacts", ident)
    return mark


def test_a_live_run_is_followed_to_its_end(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folders.add(THING, "one", "first\n")
    mark = _go_on(folder, "2026-0")
    seen: list[Any] = []

    class Out(io.BytesIO):
        def flush(self) -> None:
            """What was written so far has been seen: go on."""
            seen.append(self.getvalue())
            if len(seen) == 1:
                with (folder / "artifacts/2026-0/stdout").open("a") as file:
                    file.write("second\n")
            elif len(seen) == 2:
                with (folder / "artifacts/2026-0/stdout").open("a") as file:
                    file.write("third")
                mark.unlink()

    monkeypatch.setattr(logs_cli, "_POLL_INTERVAL", 0)
    kept = output.find(folders.root, "thing/one", None)
    assert kept.is_live("2026-0")
    out = Out()
    logs_cli._show(kept, "2026-0", out, follow=True, whole=False)
    assert seen == [b"first\n", b"first\nsecond\n", b"first\nsecond\nthird"]
    assert not kept.is_live("2026-0")


def test_a_run_in_a_pod_names_the_command_for_the_log_of_its_pod(folders: Folders, logs: Logs) -> None:
    folder = folders.add(THING, "one", "first\n") / "artifacts/2026-0"
    (folder / "pod").write_text("shop/run-7b0c-3")
    command = "log of its pod: kubectl logs -n shop job/run-7b0c-3\n"
    assert logs("thing/one") == (0, "first\n", f"run 2026-0 of Thing shop/one ended: successful\n{command}")
    (folder / "status").unlink()
    assert logs("thing/one") == (0, "first\n", f"run 2026-0 of Thing shop/one is active\n{command}")
    assert output.find(folders.root, "thing/one", None).is_live("2026-0")


def test_a_run_whose_operator_is_dead_is_not_followed(folders: Folders, logs: Logs) -> None:
    folder = folders.add(THING, "one", "cut short")
    _go_on(folder, "2026-0")
    (folder / "env/envvars").write_text(json.dumps({processes.MARKER: "digest:1:0:2026-0"}))
    (folder / "artifacts/2026-0/status").unlink()
    assert logs("thing/one", "-f") == (0, "cut short", "run 2026-0 of Thing shop/one ended: unknown\n")


def test_the_last_run_of_a_deleted_object_is_shown_until_another_one_has_the_name(folders: Folders, logs: Logs) -> None:
    for gvk in (THING, CONFIG_MAP):
        KeptRuns(folders.root, 0).retire(folders.add(gvk, "one", "first", "adieu"))
    code, out, err = logs("thing/one", "-n", "shop")
    assert (code, out) == (0, "adieu")
    assert re.fullmatch(
        r"run 2026-1 of Thing shop/one ended: successful; the object was deleted at [-0-9]+T[:0-9]+Z, or is not "
        r"selected any more since then\n",
        err,
    )
    assert "contains no run before the last one" in logs("thing/one", "--previous")[2]
    assert logs("configmap/one")[1] == "adieu"
    folders.add(THING, "one", "again")
    assert logs("thing/one") == (0, "again", "run 2026-0 of Thing shop/one ended: successful\n")


def test_a_closed_standard_output_is_not_an_error(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    folders.add(THING, "one", "x" * 1_000_000)
    reading, writing = os.pipe()
    reader = threading.Thread(target=os.close, args=(reading,))
    reader.start()
    reader.join()
    with os.fdopen(writing, "w", encoding="utf-8") as closed:
        monkeypatch.setattr("sys.stdout", closed)
        assert logs_cli._logs(_arguments(folders.root)) == 0


def _arguments(root: Path) -> Any:

    return argparse.Namespace(
        runner_dir=root, object="thing/one", namespace=None, follow=False, previous=False, all=False
    )


def test_a_failure_names_the_command_that_finds_its_output(
    make_job: Callable[..., Job], tmp_path: Path, logs: Logs, folders: Folders
) -> None:
    root = tmp_path / "elsewhere"
    job = make_job(run_dir=run_dir(root, THING, ObjectKey("shop", "one")), gvk=THING, key=ObjectKey("shop", "one"))
    Folders(root).add(THING, "one", "said")
    sentence = output.pointer(job)
    command = sentence.partition(": ansible-operator ")[2].partition(" (run folder")[0].split()
    assert command[0] == "logs"
    assert logs(*command[1:])[:2] == (0, "said")
    assert str(job.run_dir) in sentence
    usual = make_job(run_dir=Path("/tmp/ansible-operator/runner/g.example.com/v1/Thing/shop/one"))
    assert "--runner-dir" not in output.pointer(usual)
    assert not output.pointer(make_job(max_artifacts=-1))


def test_a_short_name_of_the_projects_crds_names_the_kind(
    folders: Folders, logs: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders.add(THING, "one", "of the project")
    folders.add(OTHER, "one", "of another group")
    crd = {"spec": {"group": THING.group, "names": {"kind": "Thing", "shortNames": ["th"]}}}
    bases = tmp_path / "project/config/crd/bases"
    bases.mkdir(parents=True)
    (bases / "things.yaml").write_text(json.dumps(crd))
    code, out, err = logs("th/one")
    assert (code, out) == (1, "")
    assert "no run of a kind 'th' is kept" in err
    assert "cannot be looked up in a cluster (no credentials for a cluster in" in err
    assert "Use the kind, or set KUBECONFIG to the cluster" in err
    monkeypatch.chdir(tmp_path / "project")
    assert logs("th/one")[:2] == (0, "of the project")


_MANAGED = [{"fieldsV1": {"f:data": {'k:{"name":"]"}': [1, [2]]}}, "manager": 'kubectl "x" ]'}]
_OBJECT = {"kind": "ConfigMap", "metadata": {"labels": {"a": "b"}, "managedFields": _MANAGED, "name": "one"}}
_LAST = {"metadata": {"labels": {"a": "b"}, "managedFields": _MANAGED}}


@pytest.mark.parametrize("indent", [None, 4])
def test_objects_in_the_output_have_no_managed_fields(folders: Folders, logs: Logs, indent: int | None) -> None:
    shown = json.dumps({"result": [_OBJECT, _LAST]}, indent=indent)
    folders.add(THING, "one", f"ok: [localhost] => {shown}\nchanged: [localhost] => {shown}")
    out = logs("thing/one")[1]
    assert "managedFields" not in out
    assert "kubectl" not in out
    wanted = [{**_OBJECT, "metadata": {"labels": {"a": "b"}, "name": "one"}}, {"metadata": {"labels": {"a": "b"}}}]
    for part in out.split(" => ")[1:]:
        text = part.partition("\nchanged")[0]
        assert json.loads(re.sub(r",(\s*})", r"\1", text)) == {"result": wanted}


def test_managed_fields_in_yaml_are_omitted(folders: Folders, logs: Logs) -> None:
    text = """\
ok: [localhost] =>
    result:
        metadata:
            managedFields:
            -   fieldsV1:
                    f:data: {}
                manager: kubectl
            -   manager: other
            name: one
msg: managedFields are not shown
"""
    folders.add(THING, "one", text)
    shown = logs("thing/one")[1]
    assert shown == text[: text.index("            managedFields")] + text[text.index("            name: one") :]


def test_managed_fields_in_a_diff_are_omitted_up_to_the_next_hunk(folders: Folders, logs: Logs) -> None:
    text = """\
 {
     "metadata": {
+        "managedFields": [
+            {
+                "manager": "kubectl"
+            }
+        ],
         "managedFields": [
             {
-                "time": "1"
@@ -42,3 +78,3 @@
-    "replicas": 3
+    "replicas": 4
 }
"""
    folders.add(THING, "one", text)
    lines = text.splitlines()
    assert logs("thing/one")[1].splitlines() == [*lines[:2], *lines[10:]]
