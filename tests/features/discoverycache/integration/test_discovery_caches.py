"""What clients keep of discovery on disk: it goes with the run that it was for."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runner.sdk.devcluster import DevCluster
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Things
    from tests.kit.operator import Project

ROLE = """
- kubernetes.core.k8s_info: {{api_version: v1, kind: ConfigMap, namespace: "{{{{ ansible_operator_meta.namespace }}}}"}}
- ansible.builtin.command: {kubectl} get --raw /apis
- ansible.builtin.command: {kubectl} get configmaps --namespace "{{{{ ansible_operator_meta.namespace }}}}"
- ansible.builtin.shell: 'find "$TMPDIR" "$KUBECACHEDIR" -name "*rcp-*.json" -o -name servergroups.json'
  register: kept
- operator_sdk.util.k8s_status:
    api_version: test.example.com/v1
    kind: Thing
    name: "{{{{ ansible_operator_meta.name }}}}"
    namespace: "{{{{ ansible_operator_meta.namespace }}}}"
    status: {{kept: "{{{{ kept.stdout_lines | length }}}}", generation: "{{{{ generation }}}}"}}
"""


KEPT = re.compile(r"rcp-.*\.json|servergroups\.json|pymp-|^kube$")


@pytest.mark.full
def test_discovery_caches_are_removed_after_runs(
    project: Project, things: Things, devcluster: DevCluster, tmp_path: Path, temporary: Path
) -> None:
    project.role("caches", ROLE.format(kubectl=devcluster.kubectl))
    project.watch("caches", vars={"ansible_python_interpreter": "{{ ansible_playbook_python }}"})
    home = tmp_path / "home"
    home.mkdir()
    operator = project.start(environment={"TMPDIR": "", "TEMP": str(temporary), "HOME": str(home)})
    for generation in (1, 2):
        if generation == 1:
            things.create("a", {"generation": 1})
        else:
            things.merge("a", {"spec": {"generation": generation}})
        things.await_success("a")
        found = things.get("a")
        assert int(found["status"]["generation"]) == generation  # text on ansible-core 2.18
        assert int(found["status"]["kept"]) >= 2, "both clients kept something while the run went on"
    assert len(operator.runs("a")) == 2
    assert [path for path in home.rglob("*") if ".ansible" not in path.parts] == []

    def left() -> list[Path]:
        # `Path.rglob` of Python 3.11 raises an error if a folder is removed meanwhile; `os.walk` does not.
        walks = (each for place in (temporary, project.folder) for each in os.walk(place))
        found = (Path(where, name) for where, folders, files in walks for name in (*folders, *files))
        return [path for path in found if KEPT.search(path.name)]

    wait_until(lambda: not left(), lambda: f"the last run's folders to be cleared of {left()}")
