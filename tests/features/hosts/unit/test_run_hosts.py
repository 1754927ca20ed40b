"""What a run gets to reach hosts. The client is made up; the real one is in tests/features/hosts/integration."""

from __future__ import annotations

import base64
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.core.engine.job import Outcome, RunResult
from runner.core.kube.client import Client
from runner.core.kube.discovery import ApiResource
from runner.core.kube.meaning import Request
from runner.core.queue import reasons
from runner.core.reconcile.attempt import Attempt
from runner.core.reconcile.hooks import RequestFailedError
from runner.core.status.report import StatusReport
from runner.core.watches.spec_paths import SpecPath
from runner.core.watches.watch import Watch
from runner.features.hosts.fields import INVENTORY, AllowedHosts, InventoryPolicy, with_hosts
from runner.features.hosts.inventory import HOST_KEYS, Hosts
from runner.features.hosts.run_hosts import HOSTS, RunHosts
from runner.values.errors import ForbiddenError, NotFoundError, TerminalError
from runner.values.objects import Object, ObjectKey
from runner.values.slots import EMPTY
from tests.kit.watch_values import watch_value
from tests.unit.controller.attempts import THINGS, attempt_value


class Server:
    """A client of an API server at 10.96.0.1 with Secrets, all of them lent to Things."""

    def __init__(self, **secrets: dict[str, str]) -> None:
        self.credentials = SimpleNamespace(base_url="https://10.96.0.1:443", proxy=None)
        self.secrets = secrets
        self.forbids = False
        self.asked: list[ObjectKey] = []

    async def get(self, _resource: ApiResource, key: ObjectKey) -> Object:
        self.asked.append(key)
        if self.forbids:
            raise ForbiddenError("forbidden", status=403)
        if key.name not in self.secrets:
            raise NotFoundError("not found", status=404)
        data = {name: base64.b64encode(value.encode()).decode() for name, value in self.secrets[key.name].items()}
        labels = {"test.example.com/lend-to-thing": "true"}
        return {"metadata": {"name": key.name, "namespace": key.namespace, "labels": labels}, "data": data}


def watch(**different: Any) -> Watch:
    inventory = InventoryPolicy(
        hosts=SpecPath.parse("spec.hosts"),
        group="web",
        file=None,
        credentials=SpecPath.parse("spec.credentials"),
        allow=AllowedHosts((ip_network("10.0.0.0/8"),), ()),
        first_use=False,
        fact_cache=0.0,
    )
    return watch_value(gvk=THINGS, more=with_hosts(replace(inventory, **different)))


def attempt(spec: Any, status: Any = None, *, namespace: str = "ns", finalizing: bool = False) -> Attempt:
    obj: Object = {"metadata": {"name": "one", "namespace": namespace, "uid": "u"}, "spec": spec, "status": status}
    return attempt_value(obj, finalizing=finalizing)


KEYS = {"username": "ops", "known_hosts": "10.0.0.1 ssh-ed25519 AAAA"}
LENT = {"credentials": "login"}


class Writer:
    """Collects written statuses."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    async def write(self, _resource: Any, _obj: Any, change: StatusReport, _guard: Any) -> None:
        self.written.append(change.fields["hosts"])


async def apply(server: Server, to: Attempt, of: Watch | None = None, writer: Writer | None = None) -> Attempt:
    return await RunHosts(of or watch(), cast("Client", server), cast("Any", writer)).before(to)


def hosts_of(attempt: Attempt) -> Hosts:
    hosts = attempt.more.get(HOSTS)
    assert hosts is not None
    return hosts


async def test_a_run_gets_hosts_and_credentials() -> None:
    server = Server(login={"username": "ops", "password": "secret"})
    spec = {"hosts": ["10.0.0.1"], "credentials": "login"}
    found = await apply(server, attempt(spec))
    assert (hosts_of(found).hosts[0].address, hosts_of(found).credentials.username) == ("10.0.0.1", "ops")
    assert found.interim["hosts"].during == [{"name": "10.0.0.1", "address": "10.0.0.1"}]
    assert "secret" not in repr(found)


async def test_the_address_of_the_api_server_needs_an_entry_of_its_own() -> None:
    with pytest.raises(TerminalError, match=r"host 10\.96\.0\.1: it is an address of the API server"):
        await apply(Server(), attempt({"hosts": ["10.96.0.1"]}))


async def test_a_removed_host_that_is_not_allowed_any_more_is_forgotten() -> None:
    gone = [{"name": "far", "address": "192.168.0.1"}, {"name": "near", "address": "10.0.0.9"}]
    found = await apply(Server(login=KEYS), attempt({"hosts": ["10.0.0.1"], **LENT}, {"hosts": gone}))
    assert hosts_of(found).removed == ("near",)


async def test_a_finalizer_runs_without_a_secret_that_is_gone_and_another_run_does_not() -> None:
    spec = {"hosts": ["10.0.0.1"], "credentials": "login"}
    found = await apply(Server(), attempt(spec, finalizing=True))
    assert hosts_of(found).credentials.secrets == ()
    with pytest.raises(TerminalError, match=r"spec\.credentials: Secret ns/login not found"):
        await apply(Server(), attempt(spec))


@pytest.mark.parametrize("named", [{}, {"credentials": ""}, {"credentials": None}])
async def test_without_a_secret_no_host_key_can_be_known(named: dict[str, Any]) -> None:
    spec = {"hosts": ["10.0.0.1"], **named}
    with pytest.raises(TerminalError, match=r"spec\.credentials: it names no Secret, so no host key is known"):
        await apply(Server(), attempt(spec))
    assert (await apply(Server(), attempt({**spec, "hosts": []}))).more.get(HOSTS) is not None
    assert (await apply(Server(), attempt(spec, finalizing=True))).more.get(HOSTS) is not None
    policy = watch().more.get(INVENTORY)
    assert policy is not None
    for different in ({"first_use": True}, {"file": Path("/project.yml")}, {"credentials": None}):
        assert (await apply(Server(), attempt(spec), watch(**different))).more.get(HOSTS) is not None


async def test_only_some_runs_try_to_reach_a_removed_host_that_the_last_one_could_not_reach() -> None:
    gone = {"hosts": [{"name": "dead", "address": "10.0.0.9", "unreachable": 1, "removed": True}]}
    for reason, removed in (
        (reasons.RETRY, ()),
        (reasons.CHANGED, ()),
        (reasons.RESYNC, ("dead",)),
        (reasons.REQUESTED, ("dead",)),
        (reasons.DELETED, ("dead",)),
    ):
        to = attempt({"hosts": []}, gone)
        found = await apply(Server(), replace(to, request=replace(to.request, reason=reason)))
        assert hosts_of(found).removed == removed
        entries = cast("list[dict[str, str]]", found.interim["hosts"].during)
        assert [entry["name"] for entry in entries] == ["dead"]


async def test_a_host_key_that_a_plan_accepted_is_kept() -> None:
    policy = watch().more.get(INVENTORY)
    assert policy is not None
    before = {"hosts": [{"name": "db", "address": "10.0.0.2", "ok": 1, "hostKey": "ssh-rsa OLD"}]}
    trusting = watch(first_use=True)
    writer = Writer()
    found = await apply(
        *(Server(), attempt({"hosts": ["10.0.0.1", {"name": "db", "address": "10.0.0.2"}]}, before), trusting, writer)
    )
    keys = {"10.0.0.1": "ssh-ed25519 NEW", "10.0.0.2": "ssh-rsa IMPOSTER"}
    result = RunResult(Outcome.SUCCEEDED, None, (), "", None, 1.0, more=EMPTY.having(HOST_KEYS, keys))
    kept = await found.learned(result)
    assert writer.written == [
        [
            {"name": "10.0.0.1", "address": "10.0.0.1", "hostKey": "ssh-ed25519 NEW"},
            {"name": "db", "address": "10.0.0.2", "ok": 1, "hostKey": "ssh-rsa OLD"},
        ]
    ]
    assert [each.key for each in hosts_of(kept).hosts] == ["ssh-ed25519 NEW", "ssh-rsa OLD"]
    assert await kept.learned(result) is kept, "no second write"
    assert len(writer.written) == 1


async def test_a_secret_that_cannot_be_read_is_a_failed_request() -> None:
    server = Server()
    server.forbids = True
    with pytest.raises(RequestFailedError) as error:
        await apply(server, attempt({"credentials": "login"}))
    assert error.value.request is Request.LENT


@pytest.mark.parametrize(
    ("value", "namespace", "result"),
    [
        ("login", "ns", ObjectKey("ns", "login")),
        ({"name": "login"}, "ns", ObjectKey("ns", "login")),
        ({"name": "login", "namespace": "other"}, "", ObjectKey("other", "login")),
        ({"name": "login", "namespace": "other"}, "ns", "Secret other/login is in another namespace; use one in ns"),
        ("login", "", "the object has no namespace"),
        (["login", "second"], "ns", "not the name of one Secret"),
        ("../login", "ns", "not the name of one Secret"),
        (7, "ns", "not the name of one Secret"),
    ],
)
async def test_a_spec_names_one_secret_of_its_own_namespace(
    value: Any, namespace: str, result: ObjectKey | str
) -> None:
    server, to = Server(login={"password": "x"}), attempt({"credentials": value}, namespace=namespace)
    if isinstance(result, str):
        with pytest.raises(TerminalError, match=result):
            await apply(server, to)
        assert server.asked == []
        return
    await apply(server, to)
    assert server.asked == [result]
