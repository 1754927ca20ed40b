"""What follows if the API server refuses the operator's own requests about an object, with real policies.

`test_every_refusal.py` has each refusal of each request, given by a relay.
"""

from __future__ import annotations

import base64
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from tests.kit.objects import GROUP
from tests.kit.wait import wait_until

if TYPE_CHECKING:
    from runner.sdk.devcluster import DevCluster
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Operator, Project

FINALIZER = f"{GROUP}/finalizer"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_HAS = f"has({{0}}.metadata.finalizers) && '{FINALIZER}' in {{0}}.metadata.finalizers"
KEEP = f"!({_HAS.format('oldObject')}) || ({_HAS.format('object')})"
"""The finalizer is not removed."""
MESSAGE = "the policy of the test refuses this"
REFUSED = "The API server refuses a request about the object; retrying with backoff"


class Policy:
    """A ValidatingAdmissionPolicy that keeps the finalizers of the things of one namespace."""

    def __init__(self, things: Things, api: Api) -> None:
        self._api = api
        self._things = things
        self._name = f"refuse-{things.namespace}"

    def install(self, name: str) -> None:
        """Install it, and wait until the API server applies it to a thing."""
        rule = {"apiGroups": [GROUP], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["things"]}
        body = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": self._name}}
        policy = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": KEEP, "reason": "Forbidden", "message": MESSAGE}],
        }
        binding = {
            "policyName": self._name,
            "validationActions": ["Deny"],
            "matchResources": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self._things.namespace}}
            },
        }
        for plural, kind, spec in (
            ("validatingadmissionpolicies", "ValidatingAdmissionPolicy", policy),
            ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", binding),
        ):
            self._api.apply(f"{_ADMISSION}/{plural}/{self._name}", {**body, "kind": kind, "spec": spec})
        path, patch = f"{self._things.path}/{name}", {"metadata": {"finalizers": None}}
        wait_until(lambda: MESSAGE in self._api.refusal(path, patch), "the policy to count")

    def remove(self) -> None:
        for plural in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            self._api.call("DELETE", f"{_ADMISSION}/{plural}/{self._name}")


@pytest.fixture
def policy(things: Things, api: Api) -> Iterator[Policy]:
    policy = Policy(things, api)
    yield policy
    policy.remove()


def _project(project: Project) -> Operator:
    project.role("thing", "- ansible.builtin.debug: {msg: hello}\n")
    project.role("cleanup", "- ansible.builtin.debug: {msg: goodbye}\n")
    project.watch("thing", finalizer={"name": FINALIZER, "role": "cleanup"})
    return project.start()


def _finalizer_runs(operator: Operator, name: str) -> int:
    return len([run for run in operator.runs(name) if run["reason"] in {"deleted", "retry"}])


@pytest.mark.full
def test_a_policy_that_keeps_finalizers_stops_neither_other_objects_nor_runs_a_finalizer_twice(
    project: Project, things: Things, policy: Policy
) -> None:
    operator = _project(project)
    names = [f"thing-{number}" for number in range(4)]
    for name in names:
        things.create(name, {})
    for name in names:
        things.await_success(name)
    policy.install(names[0])
    for name in names:
        things.delete(name)
    for name in names:
        assert MESSAGE in things.await_condition(name, "RequestRefused")["message"]
    things.create("neighbour", {})
    things.await_success("neighbour")
    for name in names:
        operator.await_line(REFUSED, name=name)
        wait_until(lambda name=name: things.events(name, "RequestRefused"), f"the Event about {name}")  # type: ignore[misc]
    policy.remove()
    for name in names:
        things.merge(name, {"metadata": {"annotations": {"the": "policy is gone"}}})
    for name in names:
        things.await_gone(name)
        assert _finalizer_runs(operator, name) == 1
        assert len(operator.lines(msg=REFUSED, name=name)) == 1
        assert len(things.events(name, "RequestRefused")) == 1


class Webhook:
    """A broken webhook for the status of the labeled things of one namespace: a server with HTTPS on loopback."""

    def __init__(self, things: Things, api: Api, certificates: Path) -> None:
        self.calls = 0
        self._api = api
        self._path = f"{_ADMISSION}/validatingwebhookconfigurations/refuse-{things.namespace}"
        handler = type("Handler", (_Reviews,), {"webhook": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificates / "apiserver.crt", certificates / "apiserver.key")
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        url = f"https://127.0.0.1:{self._server.server_port}/"
        authority = base64.b64encode((certificates / "ca.crt").read_bytes()).decode()
        self._hook = {
            "name": "refuse.test.example.com",
            "clientConfig": {"url": url, "caBundle": authority},
            "rules": [
                {"apiGroups": [GROUP], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["things/status"]}
            ],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": things.namespace}},
            "objectSelector": {"matchLabels": {"hooked": "yes"}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }

    def install(self) -> None:
        body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
        name = self._path.rpartition("/")[2]
        self._api.apply(self._path, {**body, "metadata": {"name": name}, "webhooks": [self._hook]})

    def remove(self) -> None:
        self._api.call("DELETE", self._path)

    def close(self) -> None:
        self.remove()
        self._server.shutdown()
        self._server.server_close()


class _Reviews(BaseHTTPRequestHandler):
    """Answers each request with 500."""

    webhook: ClassVar[Webhook]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.webhook.calls += 1
        self.send_response(500)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """No log."""


@pytest.fixture
def webhook(things: Things, api: Api, devcluster: DevCluster) -> Iterator[Webhook]:
    webhook = Webhook(things, api, Path(devcluster.kubeconfig).parent)
    yield webhook
    webhook.close()


def test_a_webhook_that_accepts_no_status_holds_no_worker_and_costs_no_second_run(
    project: Project, things: Things, api: Api, webhook: Webhook
) -> None:
    go = project.folder / "go"
    project.role("thing", f"- ansible.builtin.wait_for: {{path: '{go}'}}\n")
    project.watch("thing", maxConcurrentReconciles=1)
    operator = project.start()
    things.create("one", {}, labels={"hooked": "yes"})
    things.await_condition("one", "Running", current=False)
    webhook.install()
    wait_until(lambda: api.refusal(f"{things.path}/one/status", {"status": {"any": 1}}), "the webhook to count")
    go.touch()
    operator.await_line("Run ended", name="one")
    things.create("neighbour", {})
    things.await_success("neighbour")
    calls = webhook.calls
    wait_until(lambda: webhook.calls > calls, "the status to be repeated")
    assert things.conditions("one")["Running"]["reason"] == "Running"
    webhook.remove()
    things.await_success("one")
    assert len(operator.runs("one")) == 1
    assert things.events("one", "RequestRefused") == []


@pytest.mark.full
def test_rights_that_are_removed_and_restored_while_the_operator_runs_lose_nothing(
    project: Project, things: Things, api: Api
) -> None:
    operator = _project(project)
    for name in ("changed", "deleted"):
        things.create(name, {})
        things.await_success(name)
    given = project.rules
    reading = {"apiGroups": [GROUP], "resources": ["things"], "verbs": ["get", "list", "watch"]}
    project.rules = [reading]
    things.delete("deleted")
    operator.await_line(REFUSED, name="deleted")
    things.merge("changed", {"spec": {"size": 2}})
    wait_until(lambda: len(operator.runs("changed")) == 2, "the second run")
    things.create("created", {})
    operator.await_line(REFUSED, name="created")
    assert things.get("deleted")
    project.rules = given
    for name in ("created", "deleted"):
        things.merge(name, {"metadata": {"annotations": {"rights": "are back"}}})
    things.await_gone("deleted")
    things.await_success("created")
    things.await_success("changed")
    assert [len(operator.runs(name)) for name in ("changed", "created")] == [2, 1]
    assert _finalizer_runs(operator, "deleted") == 1
