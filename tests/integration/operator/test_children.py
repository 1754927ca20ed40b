"""Children that others define: of kinds that are installed later, and of a Helm chart."""

from __future__ import annotations

import os
import sys
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.go_programs import get_helm
from tests.kit.objects import CRDS, Objects, definition
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Project

ROLE = """
- name: Make a part
  kubernetes.core.k8s:
    definition:
      apiVersion: GROUP/v1
      kind: Part
      metadata: {name: "{{ ansible_operator_meta.name }}", namespace: "{{ ansible_operator_meta.namespace }}"}
      spec: {size: 1}
"""


def test_a_kind_that_is_installed_later_is_watched_in_whatever_version_it_is_edited(
    project: Project, api: Api, namespace: str
) -> None:
    group = f"c{uuid.uuid4().hex[:8]}.example.com"
    selector = {"matchLabels": {"watched": "yes"}}
    project.role("maker", ROLE.replace("GROUP", group))
    project.watch("maker", group="", kind="ConfigMap", manageStatus=False, selector=selector)
    project.permit({"apiGroups": ["", group], "resources": ["configmaps", "parts"], "verbs": ["*"]})
    operator = project.start()
    parts, old = (Objects(api, f"/apis/{group}/{each}/namespaces/{namespace}/parts") for each in ("v1", "v1beta1"))
    api.install(definition(group, "Part", versions=("v1beta1", "v1")))
    wait_until(lambda: api.call("GET", parts.path) and api.call("GET", old.path), "the kind to be served")
    maker = {"metadata": {"name": "one", "labels": {"watched": "yes"}}}
    uid = api.call("POST", f"/api/v1/namespaces/{namespace}/configmaps", maker)["metadata"]["uid"]

    def size() -> int | None:
        found: int | None = parts.get("one").get("spec", {}).get("size")
        return found

    wait_until(lambda: size() == 1, "the part to be made")
    assert parts.get("one")["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "one", "uid": uid}
    ]
    operator.await_line("Run ended", name="one", reason="created")
    old.merge("one", {"spec": {"size": 9}})
    wait_until(lambda: size() == 1, "the part to be put right")
    old.delete("one")
    wait_until(lambda: size() == 1, "the part to come back")
    runs = wait_until(lambda: [*operator.runs("one")][2:] and operator.runs("one"), "the last run's end")
    assert [run["outcome"] for run in runs] == ["succeeded"] * len(runs)
    assert {run["reason"] for run in runs[1:]} == {"dependent changed"}
    assert not operator.lines(level="error")
    assert not [line for line in operator.lines(level="warning") if "status" in line["msg"]]
    assert operator.stop() == 0
    api.call("DELETE", f"{CRDS}/parts.{group}")


RELEASE = """
- name: Install the chart
  kubernetes.core.helm:
    name: "{{ ansible_operator_meta.name }}"
    release_namespace: "{{ ansible_operator_meta.namespace }}"
    chart_ref: "CHART"
    values: {size: "{{ size }}"}
"""


@pytest.mark.nightly
def test_a_release_of_helm_causes_no_runs_and_is_collected_with_its_records(
    project: Project, things: Things, api: Api
) -> None:
    project.write("chart/Chart.yaml", "{apiVersion: v2, name: shop, version: 1.0.0}")
    metadata = "metadata: {name: {{ .Release.Name }}}"
    config = "apiVersion: v1\nkind: ConfigMap\n" + metadata + "\ndata: {size: '{{ .Values.size }}'}\n"
    project.write("chart/templates/config.yaml", config)
    project.role("shop", RELEASE.replace("CHART", str(project.folder / "chart")))
    project.watch("shop")
    project.permit({"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["*"]})
    helm = get_helm(os.environ, sys.stderr)
    operator = project.start(environment={"PATH": f"{helm.parent}{os.pathsep}{os.environ['PATH']}"})
    maps, records = (
        Objects(api, f"/api/v1/namespaces/{things.namespace}/{each}") for each in ("configmaps", "secrets")
    )

    def made() -> dict[str, Any]:
        found = [maps.get("one"), *(records.get(f"sh.helm.release.v1.one.v{revision}") for revision in (1, 2))]
        return {obj["metadata"]["name"]: obj for obj in found if obj}

    things.create("one", {"size": 1})
    things.await_success("one")
    things.merge("one", {"spec": {"size": 2}})
    things.await_success("one")
    # Whatever these writes would have started is served before this one.
    things.create("two", {"size": 1})
    things.await_success("two")
    assert [run["reason"] for run in operator.runs("one")] == ["created", "changed"]
    children = made()
    assert len(children) == 3
    assert {obj["metadata"]["ownerReferences"][0]["name"] for obj in children.values()} == {"one"}
    assert children["one"]["data"] == {"size": "2"}
    things.delete("one")
    wait_until(lambda: not made(), "the release and its records to be collected")
    assert operator.stop() == 0
