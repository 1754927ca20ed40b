"""Drift checks: what other clients changed is reported, or repaired; what the role does not set is no drift."""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from runner.base.pki import Authority
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.objects import Api, Things
    from tests.kit.operator import Operator, Project

Json = dict[str, Any]
MERGE = "application/merge-patch+json"
ROLE = """
    - debug: msg="{{ lookup('pipe', 'while test -e ' ~ gate ~ '; do touch ' ~ gate ~ '.waits; sleep 0.1; done') }}"
      when: gate is defined
    - kubernetes.core.k8s:
        template: web.yml
        apply: "{{ server_side | default(false) }}"
"""
MANIFEST = """
    apiVersion: apps/v1
    kind: Deployment
    metadata:
      name: "{{ ansible_operator_meta.name }}"
      namespace: "{{ ansible_operator_meta.namespace }}"
    spec:
      selector: {matchLabels: {app: web}}
      template:
        metadata:
          labels: {app: web}
        spec:
          containers:
          - {name: web, image: "example.com/web:1"}
    ---
    apiVersion: v1
    kind: ConfigMap
    metadata:
      name: "{{ ansible_operator_meta.name }}"
      namespace: "{{ ansible_operator_meta.namespace }}"
    data:
      color: blue
"""


class _Defaults(BaseHTTPRequestHandler):
    """A mutating admission webhook that adds an annotation and a field to each Deployment of its namespace."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        patch = [{"op": "add", "path": "/spec/revisionHistoryLimit", "value": 3}]
        if not request["object"]["metadata"].get("annotations", {}).get("defaulted"):
            annotations = {**request["object"]["metadata"].get("annotations", {}), "defaulted": "yes"}
            patch.append({"op": "add", "path": "/metadata/annotations", "value": annotations})
        answer = {
            "uid": request["uid"],
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
        }
        body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Do not write to stderr."""


@pytest.fixture
def defaulting(api: Api, namespace: str, tmp_path: Path) -> Iterator[None]:
    """The API server asks a webhook for defaults of Deployments in the namespace."""
    authority = Authority.create("webhooks")
    pair = authority.issue("localhost", hosts=["localhost", "127.0.0.1"])
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Defaults)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"]}
    client = {
        "url": f"https://127.0.0.1:{server.server_address[1]}/",
        "caBundle": base64.b64encode(authority.pair.certificate).decode(),
    }
    api.call(
        "POST",
        path,
        {
            "metadata": {"name": f"defaults-{namespace}"},
            "webhooks": [
                {
                    "name": "defaults.example.com",
                    "rules": [{**rule, "resources": ["deployments"]}],
                    "clientConfig": client,
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
            ],
        },
    )
    yield
    api.call("DELETE", f"{path}/defaults-{namespace}")
    server.shutdown()
    server.server_close()


class Bed:
    """A project whose objects are checked all the time, and its one object."""

    def __init__(self, project: Project, things: Things, api: Api) -> None:
        self.things, self.api = things, api
        self.deployment = f"/apis/apps/v1/namespaces/{project.namespace}/deployments/one"
        self.config = f"/api/v1/namespaces/{project.namespace}/configmaps/one"
        self.project = project
        self.operator: Operator

    def start(self, then: str) -> None:
        """Start the operator, and wait until the object's first run has ended."""
        self.project.role("web", ROLE)
        self.project.write("roles/web/templates/web.yml", MANIFEST)
        # Only a check can see the changes: otherwise they start a run.
        drift = {"period": "2s", "then": then}
        self.project.watch("web", watchDependentResources=False, onChange="cancel", drift=drift)
        self.operator = self.project.start("--engine=warm")
        self.things.create("one", {})
        self.things.await_success("one")

    def checks(self, result: str) -> float:
        """Return how many checks had a result so far."""
        text = self.operator.get("/metrics")
        found = re.search(rf'^ansible_operator_drift_checks_total{{.*result="{result}"}} (.+)$', text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def await_checks(self, result: str) -> None:
        """Wait until a check that began after this call has ended with a result."""
        before = self.checks(result)
        wait_until(lambda: self.checks(result) >= before + 2, f"two more checks with the result {result}")

    def drift(self) -> Json:
        found: Json = self.things.get("one")["status"].get("drift", {})
        return found

    def objects(self) -> list[tuple[str, str]]:
        """Return verb and kind of each object with drift."""
        return [(each["verb"], each["kind"]) for each in self.drift().get("changes", [])]


@pytest.fixture
def bed(project: Project, things: Things, api: Api) -> Bed:
    return Bed(project, things, api)


@pytest.mark.full
@pytest.mark.usefixtures("defaulting")
def test_changes_by_other_clients_are_reported_and_nothing_else_is_drift(bed: Bed) -> None:
    bed.start("report")
    api = bed.api
    assert api.call("GET", bed.deployment)["metadata"]["annotations"]["defaulted"] == "yes"

    # Defaults of a webhook, and fields that the role leaves out, are no drift: no check writes anything.
    api.call("PATCH", bed.deployment, {"spec": {"replicas": 4}}, MERGE)
    before = bed.things.get("one")
    bed.await_checks("none")
    assert bed.things.get("one") == before
    assert "Drifted" not in bed.things.conditions("one")

    image = {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "example.com/web:hacked"}]}}}}
    api.call("PATCH", bed.deployment, image, "application/strategic-merge-patch+json")
    condition = bed.things.await_condition("one", "Drifted")
    assert "Deployment" in condition["message"]
    assert "spec.template.spec.containers[web].image" in condition["message"]
    assert bed.objects() == [("change", "Deployment")]
    (event,) = wait_until(lambda: bed.things.events("one", "Drifted"), "the Event")
    assert "spec.template.spec.containers[web].image" in event["note"]

    # The same drift is reported once.
    before = bed.things.get("one")
    bed.await_checks("drifted")
    assert bed.things.get("one") == before
    assert [each.get("series") for each in bed.things.events("one", "Drifted")] == [None]

    api.call("DELETE", bed.config)
    wait_until(lambda: len(bed.objects()) == 2, "the drift of both objects")
    assert sorted(bed.objects()) == [("change", "Deployment"), ("create", "ConfigMap")]
    assert api.call("GET", bed.config) is None

    # A run, for whatever reason, repairs the drift.
    bed.things.merge("one", {"spec": {"more": 1}})
    bed.things.await_condition("one", "Drifted", "False", current=False)
    assert bed.drift() == {}
    deployment = api.call("GET", bed.deployment)
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/web:1"
    assert deployment["spec"]["replicas"] == 4
    assert len(bed.operator.runs("one")) == 2


@pytest.mark.full
def test_drift_is_repaired_by_a_run_and_a_check_that_a_change_cancels_is_no_failure(bed: Bed, tmp_path: Path) -> None:
    bed.start("repair")
    bed.await_checks("none")
    bed.api.call("PATCH", bed.config, {"data": {"color": "red"}}, MERGE)
    wait_until(lambda: bed.api.call("GET", bed.config)["data"] == {"color": "blue"}, "the repair")
    begun = bed.operator.await_line("Run started", name="one", reason="drift check")
    assert "data.color" in str(begun["details"])
    bed.things.await_success("one")
    bed.await_checks("none")
    assert bed.things.conditions("one").get("Drifted", {}).get("status") != "True"
    assert [run["reason"] for run in bed.operator.runs("one")] == ["created", "drift check"]
    bed.api.call("DELETE", bed.config)
    wait_until(lambda: bed.api.call("GET", bed.config), "the ConfigMap to be created again")

    # A change cancels a check, which is no failure.
    gate = tmp_path / "gate"
    bed.things.merge("one", {"spec": {"gate": str(gate)}})
    bed.things.await_success("one")
    gate.touch()
    wait_until((tmp_path / "gate.waits").exists, "a check to wait")
    canceled = bed.checks("canceled")
    bed.things.merge("one", {"spec": {"gate": None}})
    wait_until(lambda: bed.checks("canceled") > canceled, "the check to be canceled")
    gate.unlink()
    bed.await_checks("none")
    assert bed.checks("failed") == 0
    assert not bed.operator.lines(msg="Drift check failed; the next one is after the period")
