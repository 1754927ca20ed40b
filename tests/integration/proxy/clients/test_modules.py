"""kubernetes.core's modules through the proxy, each as a role would use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runner.sdk.devcluster import kwok

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.proxy.bed import Standing
    from tests.integration.proxy.clients.tools import Play
    from tests.kit.cluster import Kubectl


STATES = """
    - k8s:
        namespace: "{{ ns }}"
        definition:
          - {apiVersion: v1, kind: ConfigMap, metadata: {name: mine, labels: {set: one}}, data: {a: b}}
          - {apiVersion: v1, kind: ConfigMap, metadata: {generateName: gen-, labels: {set: one}}}
          - {apiVersion: v1, kind: Secret, metadata: {name: mine}, stringData: {a: b}}
      register: created
    - k8s:
        state: patched
        definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: mine, namespace: "{{ ns }}"}, data: {c: d}}
      register: patched
    - k8s:
        state: patched
        definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: none, namespace: "{{ ns }}"}, data: {c: d}}
      register: nothing
    - k8s:
        apply: true
        definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: applied, namespace: "{{ ns }}"}, data: {a: b}}
      register: applied
      loop: [1, 2]
    - k8s:
        apply: true
        server_side_apply: {field_manager: role}
        definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: served, namespace: "{{ ns }}"}, data: {a: b}}
      register: served
    - k8s: {template: {path: "{{ folder }}/template.yaml"}}
      register: templated
    - k8s_json_patch:
        {kind: ConfigMap, name: served, namespace: "{{ ns }}", patch: [{op: add, path: /data/d, value: e}]}
    - k8s_cluster_info:
      register: cluster
    - k8s:
        state: present
        force: true
        definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: applied, namespace: "{{ ns }}"}, data: {e: f}}
      register: forced
    - k8s:
        {state: absent, kind: ConfigMap, api_version: v1, namespace: "{{ ns }}", label_selectors: [set=one]}
      register: removed
    - k8s: {state: absent, kind: ConfigMap, name: mine, namespace: "{{ ns }}"}
      register: again
    - k8s_info: {kind: ConfigMap, namespace: "{{ ns }}", label_selectors: [set=one]}
      register: left
    - ansible.builtin.set_fact:
        result:
          created: "{{ created.result.results | map(attribute='result.metadata.name') }}"
          owners: "{{ created.result.results | map(attribute='result.metadata.ownerReferences.0.name') }}"
          patched: "{{ patched.result.data }}"
          nothing: "{{ nothing.result }}"
          applied: "{{ applied.results | map(attribute='changed') }}"
          forced: "{{ [forced.result.data, forced.result.metadata.ownerReferences.0.name] }}"
          removed: "{{ [removed.changed, again.changed] }}"
          left: "{{ left.resources }}"
          others: "{{ [served, templated] | map(attribute='result.metadata.ownerReferences.0.name') }}"
          present: "{{ lookup('kubernetes.core.k8s', kind='ConfigMap', namespace=ns, resource_name='served').data }}"
          absent: "{{ lookup('kubernetes.core.k8s', kind='ConfigMap', namespace=ns, resource_name='mine') }}"
          version: "{{ lookup('kubernetes.core.k8s', cluster_info='version') | string | length > 0 }}"
          kinds: "{{ cluster.apis.keys() | length > 5 }}"
"""


TEMPLATE = "apiVersion: v1\nkind: Secret\nmetadata: {name: templated, namespace: '{{ ns }}'}\n"


@pytest.mark.full
def test_every_state_of_an_object(play: Play, standing: Standing, tmp_path: Path) -> None:
    (tmp_path / "template.yaml").write_text(TEMPLATE)
    result = play(STATES).result
    name, generated, secret = result.pop("created")
    assert result.pop("version")
    assert result.pop("kinds")
    assert (name, generated[:4], secret) == ("mine", "gen-", "mine")
    assert result == {
        "owners": ["owner", "owner", "owner"],
        "patched": {"a": "b", "c": "d"},
        "nothing": {},
        "applied": [True, False],
        "forced": [{"e": "f"}, "owner"],
        "removed": [True, False],
        "left": [],
        "others": ["owner", "owner"],
        "present": {"a": "b", "d": "e"},
        "absent": [],
    }
    # What clients discover is kept under one name, whatever the run.
    assert len([*tmp_path.glob("k8srcp-*.json"), *tmp_path.glob("osrcp-*.json")]) == 1
    assert {f"deleted configmaps {each} of owner" for each in ("mine", generated)} <= set(standing.observer.reports)


WORKLOADS = """
    - k8s: &web
        wait: true
        wait_sleep: 1
        wait_timeout: 60
        wait_condition: {type: Progressing, status: "True", reason: NewReplicaSetAvailable}
        definition:
          apiVersion: apps/v1
          kind: Deployment
          metadata: {name: web, namespace: "{{ ns }}"}
          spec:
            selector: {matchLabels: {app: web}}
            template:
              metadata: {labels: {app: web}}
              spec: {containers: [{name: "{{ exec_container }}", image: example.com/web}]}
      register: waited
    - k8s_info:
        kind: Pod
        namespace: "{{ ns }}"
        label_selectors: [app=web]
        wait: true
        wait_sleep: 1
        wait_condition: {type: Ready, status: "True"}
      register: pods
    - ansible.builtin.set_fact: {pod: "{{ pods.resources[0].metadata.name }}"}
    - k8s_scale:
        api_version: apps/v1
        kind: Deployment
        name: web
        namespace: "{{ ns }}"
        replicas: 3
        current_replicas: 1
        wait_sleep: 1
      register: scaled
    - k8s_log: {namespace: "{{ ns }}", name: "{{ pod }}"}
      register: log
    - k8s_log: {api_version: apps/v1, kind: Deployment, namespace: "{{ ns }}", name: web, tail_lines: 1}
      register: log_of_deployment
    - k8s_exec: {namespace: "{{ ns }}", pod: "{{ pod }}", command: sh -c "echo here; echo there >&2"}
      register: executed
    - k8s_cp: {namespace: "{{ ns }}", pod: "{{ pod }}", remote_path: "{{ folder }}/there", content: "words\\n"}
    - ansible.builtin.copy: {dest: "{{ folder }}/large", content: "{{ '0123456789abcdef' * 40000 }}"}
    - k8s_cp:
        namespace: "{{ ns }}"
        pod: "{{ pod }}"
        local_path: "{{ folder }}/large"
        remote_path: "{{ folder }}/in"
    - k8s_cp:
        namespace: "{{ ns }}"
        pod: "{{ pod }}"
        state: from_pod
        remote_path: "{{ folder }}/in"
        local_path: "{{ folder }}/out"
    - k8s_json_patch:
        api_version: apps/v1
        kind: Deployment
        name: web
        namespace: "{{ ns }}"
        patch: [{op: add, path: /metadata/labels, value: {patched: "yes"}}]
      register: patched
    - k8s_service:
        {name: web, namespace: "{{ ns }}", type: NodePort, ports: [{port: 80, name: http}], selector: {app: web}}
      register: service
    - k8s_info: {api_version: apps/v1, kind: Deployment, name: web, namespace: "{{ ns }}"}
      register: web
    - ansible.builtin.set_fact:
        result:
          waited: "{{ waited.result.status.conditions | map(attribute='reason') }}"
          scaled: "{{ scaled.result.spec.replicas }}"
          logs: "{{ [log.log, log_of_deployment.log] }}"
          executed: "{{ [executed.stdout, executed.stderr] }}"
          patched: "{{ patched.result.metadata.labels }}"
          service: "{{ [service.result.spec.type, service.result.metadata.ownerReferences.0.name] }}"
          owner: "{{ web.resources[0].metadata.ownerReferences.0.name }}"
"""


@pytest.mark.full
def test_workloads_are_waited_for_read_from_written_to_and_scaled(play: Play, kubectl: Kubectl, tmp_path: Path) -> None:
    result = play(WORKLOADS).result
    assert "NewReplicaSetAvailable" in result.pop("waited")
    assert result == {
        "scaled": 3,
        "logs": [f"{kwok.NO_LOG}\n"] * 2,
        "executed": ["here\n", "there\n"],
        "patched": {"patched": "yes"},
        "service": ["NodePort", "owner"],
        "owner": "owner",
    }
    assert (tmp_path / "there").read_text() == "words\n"
    assert (tmp_path / "out").read_text() == "0123456789abcdef" * 40000
    assert kubectl("get", "deployment", "web", "-o=jsonpath={.spec.replicas}") == "3"
