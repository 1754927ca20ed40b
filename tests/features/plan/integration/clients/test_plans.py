"""kubectl, Helm and kubernetes.core in a plan run: they see what they planned, and the cluster stays as it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.proxy.bed import Dump, Standing
    from tests.integration.proxy.clients.tools import Helm, Play
    from tests.kit.cluster import Kubectl


def test_helm_plans_a_release_throughout_its_life(
    helm: Helm, standing: Standing, chart: Path, dump: Dump, all_kinds: str
) -> None:
    before, overlay = dump(all_kinds), standing.plan()
    helm("install", "shop", chart)
    helm("upgrade", "shop", chart, "--set=colour=blue")
    assert [(each["name"], each["revision"]) for each in json.loads(helm("list", "-o=json"))] == [("shop", "2")]
    planned = {f"{each.gvk.kind}/{each.key.name}": each for each in overlay.changes()}
    after = planned["ConfigMap/shop"].after
    assert after is not None
    assert after["data"] == {"colour": "blue"}
    assert {"Deployment/shop", "ConfigMap/shop-before", "Secret/sh.helm.release.v1.shop.v2"} <= planned.keys()
    assert {each.verb for each in planned.values()} == {"create"}
    helm("uninstall", "shop")
    assert [str(each.key.name) for each in overlay.changes()] == ["shop-before"]
    assert overlay.partial_reasons == []
    assert dump(all_kinds) == before


TASKS = """
    - k8s: &web
        state: present
        definition: &definition
          apiVersion: apps/v1
          kind: Deployment
          metadata: {name: web, namespace: "{{ ns }}"}
          spec:
            replicas: 1
            selector: {matchLabels: {app: web}}
            template:
              metadata: {labels: {app: web}}
              spec: {containers: [{name: web, image: "web:1"}]}
      check_mode: true
      register: created
    - k8s: *web
      register: again
    - k8s: {apply: true, definition: {<<: *definition, spec: {
        replicas: 2, selector: {matchLabels: {app: web}}, template: {
          metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: "web:2"}]}}}}}
      check_mode: true
      register: applied
    - k8s_scale: {api_version: apps/v1, kind: Deployment, name: web, namespace: "{{ ns }}", replicas: 4, wait: false}
      register: scaled
    - k8s_json_patch:
        api_version: v1
        kind: ConfigMap
        name: owner
        namespace: "{{ ns }}"
        patch: [{op: add, path: /data, value: {a: b}}]
      register: patched
    - k8s_info: {api_version: apps/v1, kind: Deployment, name: web, namespace: "{{ ns }}"}
      register: info
    - k8s_exec: {namespace: "{{ ns }}", pod: web, command: id}
      register: session
      ignore_errors: true
    - k8s: {state: absent, api_version: v1, kind: ConfigMap, name: kube-root-ca.crt, namespace: "{{ ns }}", wait: true}
      register: removed
    - k8s: {state: absent, api_version: v1, kind: ConfigMap, name: kube-root-ca.crt, namespace: "{{ ns }}"}
      check_mode: true
      register: absent
    - ansible.builtin.set_fact:
        result:
          changed: "{{ [created, again, applied, scaled, patched, removed, absent] | map(attribute='changed') }}"
          replicas: "{{ info.resources[0].spec.replicas }}"
          image: "{{ info.resources[0].spec.template.spec.containers[0].image }}"
          session: "{{ session is failed }}"
"""


@pytest.mark.full
def test_modules_with_and_without_check_mode_see_the_plan(
    play: Play, standing: Standing, dump: Dump, all_kinds: str
) -> None:
    before, overlay = dump(all_kinds), standing.plan()
    result = play(TASKS).result
    assert result | {"replicas": int(result["replicas"])} == {  # ansible-core 2.18 gives text
        "changed": [True, False, True, True, True, True, False],
        "replicas": 4,
        "image": "web:2",
        "session": True,
    }
    changes = {f"{each.verb} {each.gvk.kind} {each.key.name}": each for each in overlay.changes()}
    assert changes.keys() == {
        "create Deployment web",
        "change ConfigMap owner",
        "delete ConfigMap kube-root-ca.crt",
    }
    assert all(not each.reason for each in changes.values())
    assert [each.resource for each in overlay.refusals] == ["pods/exec"]
    assert dump(all_kinds) == before


SETTINGS = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: c}\n"
MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 1
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec: {containers: [{name: web, image: "web:1"}]}
"""


@pytest.mark.parametrize("options", [(), ("--server-side", "--field-manager=role", "--force-conflicts")])
def test_kubectl_applies_scales_and_deletes_in_a_plan(
    kubectl: Kubectl, standing: Standing, dump: Dump, options: tuple[str, ...]
) -> None:
    before, overlay = dump(), standing.plan()

    def summary() -> dict[str, str]:
        return {f"{each.gvk.kind}/{each.key.name}": each.verb for each in overlay.changes()}

    kubectl("apply", *options, "--dry-run=server", "-f", "-", stdin=MANIFEST)
    assert overlay.changes() == []
    assert "serverside-applied" in kubectl("apply", *options, "-f", "-", stdin=MANIFEST) or not options
    kubectl("apply", *options, "-f", "-", stdin=MANIFEST.replace("web:1", "web:2"))
    image = "-o=jsonpath={.spec.template.spec.containers[0].image}"
    assert kubectl("get", "deployment", "shop", image) == "web:2"
    kubectl("scale", "deployment/shop", "--replicas=3")
    kubectl("set", "image", "deployment/shop", "web=web:3")
    kubectl("label", "deployment/shop", "tier=front")
    kubectl("create", "configmap", "settings", "--from-literal=a=b")
    assert "shop" in kubectl("get", "deployments", "-l", "tier=front")
    after = overlay.changes()[0].after
    assert after is not None
    assert (after["spec"]["replicas"], after["spec"]["template"]["spec"]["containers"][0]["image"]) == (3, "web:3")
    assert summary() == {"Deployment/shop": "create", "ConfigMap/settings": "create"}
    assert "deleted" in kubectl("delete", "deployment", "shop", "--wait")
    kubectl("replace", "--force", "-f", "-", stdin=SETTINGS)
    refused = kubectl.run("exec", "web", "--", "id", check=False)
    assert refused.returncode == 1
    assert summary() == {"ConfigMap/settings": "create"}
    assert all(not each.reason for each in overlay.changes())
    assert dump() == before
