"""kubernetes.core through the proxy: a playbook as a role would have it, with no login anywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kit.wait import patience

if TYPE_CHECKING:
    from tests.integration.proxy.bed import Standing
    from tests.kit.cluster import Kubectl

PLAYBOOK = """
- hosts: localhost
  gather_facts: false
  vars: {ansible_python_interpreter: "{{ ansible_playbook_python }}"}
  tasks:
    - k8s: {definition: "{{ mine }}"}
      vars: {mine: {apiVersion: v1, kind: ConfigMap, metadata: {name: mine, namespace: "{{ ns }}"}, data: {a: b}}}
    - kubernetes.core.k8s:
        force: true
        definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: mine, namespace: "{{ ns }}"}, data: {a: c}}
    - kubernetes.core.k8s:
        apply: true
        definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: applied, namespace: "{{ ns }}"}, data: {a: b}}
    - kubernetes.core.k8s:
        apply: true
        server_side_apply: {field_manager: role}
        definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: served, namespace: "{{ ns }}"}, data: {a: b}}
    - kubernetes.core.k8s:
        template: {path: "{{ folder }}/several.yaml"}
    - kubernetes.core.k8s_info: {kind: ConfigMap, name: mine, namespace: "{{ ns }}"}
      register: mine
    - kubernetes.core.k8s_json_patch:
        kind: ConfigMap
        name: mine
        namespace: "{{ ns }}"
        patch: [{op: add, path: /data/d, value: e}]
    - kubernetes.core.k8s:
        {state: absent, kind: ConfigMap, name: applied, namespace: "{{ ns }}", wait: true, wait_sleep: 1}
    - kubernetes.core.k8s_cluster_info:
      register: cluster
    - ansible.builtin.copy:
        dest: "{{ folder }}/result.json"
        content: "{{ result | to_json }}"
      vars:
        result:
          mine: "{{ mine.resources[0].data }}"
          present: "{{ lookup('kubernetes.core.k8s', kind='ConfigMap', namespace=ns, resource_name='mine').data }}"
          absent: "{{ lookup('kubernetes.core.k8s', kind='ConfigMap', namespace=ns, resource_name='none') }}"
          gone: "{{ lookup('kubernetes.core.k8s', kind='ConfigMap', namespace=ns, resource_name='applied') }}"
          version: "{{ lookup('kubernetes.core.k8s', cluster_info='version') | string | length > 0 }}"
          kinds: "{{ cluster.apis.keys() | length > 5 }}"
  collections: [kubernetes.core]
"""
SEVERAL = """
apiVersion: v1
kind: ConfigMap
metadata: {name: one, namespace: NS}
---
apiVersion: v1
kind: Secret
metadata: {name: two, namespace: NS}
"""


def test_a_playbook_needs_no_login_and_all_it_makes_is_owned(
    environ: dict[str, str], kubectl: Kubectl, standing: Standing, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "play.yml").write_text(PLAYBOOK)
    (tmp_path / "several.yaml").write_text(SEVERAL.replace("NS", namespace))
    extra = json.dumps({"ns": namespace, "folder": str(tmp_path)})
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "play.yml", "-i", "localhost,", "-c", "local"]
    played = subprocess.run(
        [*command, "-e", extra],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(),
    )
    assert played.returncode == 0, played.stdout + played.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["mine"] == {"a": "c"}
    assert result["present"] == {"a": "c", "d": "e"}
    assert (result["absent"], result["gone"]) == ([], [])
    assert result["version"]
    assert result["kinds"]
    for kind, name in (
        ("configmap", "mine"),
        ("configmap", "served"),
        ("configmap", "one"),
        ("secret", "two"),
    ):
        found = json.loads(kubectl("get", kind, name, "-o=json"))
        assert [owner["name"] for owner in found["metadata"]["ownerReferences"]] == ["owner"], (kind, name)
    assert "deleted configmaps applied of owner" in standing.observer.reports
    assert standing.run.stats.calls > 20
    # What clients discover is kept under one name, whatever the run.
    assert len([*tmp_path.glob("k8srcp-*.json"), *tmp_path.glob("osrcp-*.json")]) == 1
