"""`ansible-operator migrate --try`, as a user runs it: two projects, each ansible-core, each engine."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ansible_collections
import pytest
import yaml

from tests.kit.objects import definition
from tests.kit.processes import captured

pytestmark = [pytest.mark.nightly]

COMMAND = Path(sys.executable).parent / "ansible-operator"
CRD = definition("example.com", "Shop")
SAMPLE = {
    "apiVersion": "example.com/v1",
    "kind": "Shop",
    "metadata": {"name": "corner", "namespace": "elsewhere"},
    "spec": {"goods": ["bread", "milk"]},
}
TASKS = """\
- name: Claim a volume
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: PersistentVolumeClaim
      metadata:
        name: "{{ ansible_operator_meta.name }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
      spec:
        accessModes: [ReadWriteOnce]
        resources: {requests: {storage: 8Gi}}

- name: Wait for the volume
  kubernetes.core.k8s_info:
    api_version: v1
    kind: PersistentVolumeClaim
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
  register: claim
  until: claim.resources[0].status.phase == "Bound"
  retries: 30
  delay: 1

- name: Keep the goods
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: "{{ ansible_operator_meta.name }}"
        namespace: "{{ ansible_operator_meta.namespace }}"
      data:
        goods: "{{ goods | join(' ') }}"
        random: "{{ lookup('ansible.builtin.password', '/dev/null') }}"
  when: goods | length%s
"""


ELSEWHERE = {
    "watches.yaml": "deploy/watches-shop.yaml",
    "playbooks/shop.yml": "ansible/shop.yml",
    "roles/shop/tasks/main.yml": "ansible/roles/shop/tasks/main.yml",
    "Dockerfile": "build/Dockerfile",
}
"""Other places of files, which the Dockerfile copies to those of the image."""
COPIES = """\
COPY deploy/watches-shop.yaml ${HOME}/watches.yaml
COPY ansible/roles ${HOME}/roles
COPY ansible/shop.yml ${HOME}/playbooks/
"""


def run(folder: Path, tasks: str, places: Mapping[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    files = {
        "watches.yaml": "- {group: example.com, version: v1, kind: Shop, playbook: playbooks/shop.yml}\n",
        "Dockerfile": "FROM example.com/ansible-operator-runner:0.1.0-core2.18\n" + (COPIES if places else ""),
        "requirements.yml": "collections: [kubernetes.core]\n",
        "playbooks/shop.yml": "- hosts: localhost\n  gather_facts: false\n  roles: [shop]\n",
        "roles/shop/tasks/main.yml": tasks,
        "config/crd/bases/shops.yaml": yaml.safe_dump(CRD),
        "config/samples/shop.yaml": yaml.safe_dump(SAMPLE),
    }
    for name, text in files.items():
        path = folder / (places or {}).get(name, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    installed = Path(next(iter(ansible_collections.__path__))).parent
    done = captured(
        COMMAND,
        "migrate",
        str(folder),
        "--try",
        "--output=json",
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(installed)},
    )
    assert done.stdout, done.stderr[-4000:]
    trial: dict[str, Any] = json.loads(done.stdout)["trial"]
    return done.returncode, trial


def test_a_project_that_works_with_both_versions_has_the_same_objects(tmp_path: Path) -> None:
    code, trial = run(tmp_path, TASKS % " > 0")
    assert [(each["ansibleCore"], each["engine"]) for each in trial["trials"]] == [
        ("2.18", "exec"),
        ("2.18", "warm"),
        ("2.21", "exec"),
        ("2.21", "warm"),
    ]
    for each in trial["trials"]:
        assert each["outcomes"] == {"Shop/corner": "succeeded"}
        assert each["objects"] == ["ConfigMap/corner", "PersistentVolumeClaim/corner", "Shop/corner"]
        assert each["differences"] == []
    assert (code, trial["fitting"]) == (0, ["2.18", "2.21"])


def test_a_project_in_other_folders_that_needs_the_old_version_is_found_with_the_last_task(
    tmp_path: Path,
) -> None:
    code, trial = run(tmp_path, TASKS % "", ELSEWHERE)
    assert (code, trial["fitting"]) == (0, ["2.18"])
    for each in trial["trials"]:
        outcome = each["outcomes"]["Shop/corner"]
        if each["ansibleCore"] == "2.18":
            assert (outcome, each["differences"]) == ("succeeded", [])
        else:
            assert each["tasks"] == {"Shop/corner": {"started": 3, "last": "Keep the goods"}}
            assert "Conditionals must have a boolean result" in outcome
            assert each["differences"] == ["ConfigMap/corner"]
