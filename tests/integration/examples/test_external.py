"""The example `external`: a Record is what a DNS service outside of the cluster says, through edits and outages."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.examples.deployed import EXAMPLES, Example, Install, Resources
from tests.integration.examples.dns_service import Service, running
from tests.kit.wait import wait_until

# Many runs of Ansible a test: on a machine with much to do they take their time.
pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("examples-external")]

PERIOD = "ansible.sdk.operatorframework.io/reconcile-period"
SPEC = {"zone": "example.org", "host": "www", "values": ["192.0.2.1"], "tokenSecret": {"name": "dns-token"}}
WWW = "example.org/www/A"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running(EXAMPLES / "external/server/dns_server.py", tmp_path / "dns") as service:
        yield service


@pytest.fixture
def example(install: Install, service: Service) -> Example:
    """The operator, configured with the address of the service as its page describes."""
    example = install("external")
    example.tell(DNS_SERVER=service.url)
    example.start()
    return example


@pytest.fixture
def records(example: Example, service: Service, namespace: str) -> Resources:
    give_token(example, namespace, service.token)
    return example.resources("Record", namespace)


def give_token(example: Example, namespace: str, token: str) -> None:
    secrets = example.objects("v1", "secrets", namespace)
    data = {"token": base64.b64encode(token.encode()).decode()}
    if secrets.get("dns-token"):
        secrets.merge("dns-token", {"data": data})
    else:
        secrets.post({"metadata": {"name": "dns-token"}, "data": data})


def retries(example: Example, name: str) -> list[float]:
    """The waits after each failure of an object, in seconds."""
    assert example.operator is not None
    lines = example.operator.lines(msg="Retrying the object with backoff")
    return [line["seconds"] for line in lines if line.get("name") == name]


def test_a_record_is_created_changed_corrected_and_removed_at_the_service(
    example: Example, service: Service, records: Resources, namespace: str
) -> None:
    made = records.create("www", SPEC)
    records.await_success("www")
    owner = f"{namespace}/www/{made['metadata']['uid']}"
    assert service.ask("GET", WWW) == {"values": ["192.0.2.1"], "ttl": 300, "owner": owner}
    seen = example.sh("kubectl", "get", "record", "www", f"--namespace={namespace}", "--no-headers").split()
    assert seen[:-1] == ["www", "www.example.org", "A", '["192.0.2.1"]', "True"]

    before = len(service.requests())
    example.upgrades((records, "www"))
    assert {each["method"] for each in service.requests()[before:]} == {"GET"}

    # The period of one object counts from its next run on.
    often = {"metadata": {"annotations": {PERIOD: "1s"}}}
    records.merge("www", {**often, "spec": {"values": ["192.0.2.1", "192.0.2.2"], "ttl": 60}})
    records.await_success("www")
    assert service.ask("GET", WWW) == {"values": ["192.0.2.1", "192.0.2.2"], "ttl": 60, "owner": owner}

    service.ask("PUT", WWW, {"values": ["203.0.113.9"], "ttl": 60, "owner": owner})
    wait_until(lambda: service.values(WWW) == ["192.0.2.1", "192.0.2.2"], "the edit at the service to be undone")
    service.ask("DELETE", WWW)
    wait_until(lambda: service.values(WWW), "what was removed at the service to come back")

    records.delete("www")
    records.await_gone("www")
    assert service.ask("GET", WWW) is None

    records.create("www", SPEC)
    records.await_success("www")
    example.remove()
    assert service.ask("GET", WWW) is None


def test_an_outage_of_the_service_is_retried_and_loses_no_record(
    example: Example, service: Service, records: Resources
) -> None:
    records.create("www", SPEC)
    records.await_success("www")
    service.stop()
    records.change("www", values=["192.0.2.7"])
    records.await_condition("www", "Failure", saying=f"The DNS service at {service.url} cannot be reached")
    waits = wait_until(lambda: retries(example, "www")[2:] and retries(example, "www")[:3], "three retries")
    assert waits is not None
    assert waits == sorted(waits)
    assert waits[0] < waits[2]
    service.start()
    records.await_success("www")
    assert service.values(WWW) == ["192.0.2.7"]

    service.stop()
    records.delete("www")
    records.await_condition("www", "Failure", saying="cannot be reached")
    assert records.get("www")["metadata"]["finalizers"] == ["dns.example.com/finalizer"]
    service.start()
    records.await_gone("www")
    assert service.ask("GET", WWW) is None

    records.create("www", SPEC, annotations={PERIOD: "off"})
    records.await_success("www")
    service.ask("DELETE", WWW)
    before = len(service.requests())
    records.delete("www")
    records.await_gone("www")
    assert {each["method"] for each in service.requests()[before:]} == {"GET"}
    example.remove()


def test_refusals_of_the_service_are_reported_and_succeed_after_a_correction(
    example: Example, service: Service, records: Resources, namespace: str
) -> None:
    records.create("www", SPEC)
    records.await_success("www")

    records.create("same", {**SPEC, "values": ["192.0.2.66"]})
    records.await_condition("same", "Failure", saying=f"www.example.org (A) belongs to {namespace}/www/")
    records.delete("same")
    records.await_gone("same")
    assert service.values(WWW) == ["192.0.2.1"]

    records.create("api", {**SPEC, "host": "api", "values": ["my-host"]})
    records.await_condition("api", "Stalled", saying="The DNS service refuses the record: my-host is no address that A")
    records.change("api", values=["192.0.2.3"])
    records.await_success("api")
    assert service.values("example.org/api/A") == ["192.0.2.3"]

    service.change_token("the second token")
    records.change("www", ttl=60)
    records.await_condition("www", "Failure", saying=f"refuses the token in the Secret {namespace}/dns-token")
    give_token(example, namespace, service.token)
    records.await_success("www")
    assert (service.ask("GET", WWW) or {})["ttl"] == 60

    records.create("mail", {**SPEC, "host": "mail", "tokenSecret": {"name": "dns-token", "key": "other"}})
    records.await_condition("mail", "Failure", saying=f"no Secret {namespace}/dns-token with the key other")
    other = base64.b64encode(service.token.encode()).decode()
    example.objects("v1", "secrets", namespace).merge("dns-token", {"data": {"other": other}})
    records.await_success("mail")
    reported = json.dumps([records.get("www"), records.get("mail")]) + example.output("all")
    assert not [secret for secret in ("the first token", "the second token") if secret in reported]
    example.remove()
    assert [service.ask("GET", f"example.org/{host}/A") for host in ("www", "api", "mail")] == [None] * 3
