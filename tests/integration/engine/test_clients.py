"""Modules of Kubernetes share a process and a client, and nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from bench.recorder import Call, recording
from runner.core.engine.job import Outcome
from runner.engines.warm import task_record
from tests.integration.engine.runs import ENGINE
from tests.kit.cluster import Kubectl, kubeconfig_of, kubectl_of
from tests.kit.engines import ProcessEngines
from tests.kit.objects import definition

if TYPE_CHECKING:
    from runner.sdk.devcluster import DevCluster
    from tests.integration.engine.runs import Ran, Runs

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(ENGINE != "warm", reason="modules have new interpreters"),
    # All cases share one fork server and one proxy.
    pytest.mark.xdist_group("clients"),
]

READ = "kubernetes.core.k8s_info: {api_version: v1, kind: ConfigMap, namespace: default}"
USED = f"""
- {READ}
- operator_sdk.util.requeue_after: {{time: 1h}}
- kubernetes.core.k8s: {{state: absent, api_version: v1, kind: ConfigMap, name: missing, namespace: default}}
- operator_sdk.util.k8s_status: {{api_version: v1, kind: Pod, name: missing, namespace: default}}
  ignore_errors: true
"""


@dataclass
class Bed:
    """An engine, and two ways to one API server."""

    runs: Runs
    kubectl: Kubectl
    calls: list[Call]
    way: str
    other_calls: list[Call]
    other_way: str

    async def run(self, tasks: str, expected: Outcome = Outcome.SUCCEEDED, **changes: Any) -> Ran:
        """Run tasks; forget the calls of earlier runs."""
        self.calls.clear()
        self.other_calls.clear()
        ran = await self.runs.run(self.runs.tasks(tasks), kubeconfig=self.way, **changes)
        assert ran.result.outcome is expected, ran.result
        return ran

    def connections(self, target: str) -> list[int]:
        """Return the connections of the calls whose target contains this."""
        return [call.connection for call in self.calls if target in call.target]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ways(devcluster: DevCluster) -> AsyncIterator[tuple[Kubectl, list[tuple[list[Call], str]]]]:
    kubectl = kubectl_of(devcluster)
    async with contextlib.AsyncExitStack() as stack:
        port = stack.enter_context(kubectl.proxy())
        relays = [await stack.enter_async_context(recording("127.0.0.1", port)) for _ in range(2)]
        yield kubectl, [(each.calls, kubeconfig_of({"server": f"http://127.0.0.1:{each.port}"}, {})) for each in relays]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def warm(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[ProcessEngines, Path]]:
    root = tmp_path_factory.mktemp("clients") / "runner"
    engine = ProcessEngines(root)
    yield engine, root
    await engine.close(0)


@pytest_asyncio.fixture(loop_scope="session")
async def bed(
    warm: tuple[ProcessEngines, Path], ways: Any, tmp_path: Path, runs_of: Callable[[ProcessEngines, Path, Path], Runs]
) -> Bed:
    kubectl, ((calls, way), (other_calls, other_way)) = ways
    made = Bed(runs_of(*warm, tmp_path), kubectl, calls, way, other_calls, other_way)
    if not made.runs.engine.pool.servers():  # it has what modules import from their second run on
        await made.run(USED)
        await made.runs.engine.settle()
    return made


def crd_of(kind: str) -> dict[str, Any]:
    known = {"type": "object", "properties": {"known": {"type": "string"}}}
    return definition("clients.example.com", kind, schema={"type": "object", "properties": {"status": known}})


def instance_of(kind: str) -> dict[str, Any]:
    return {"apiVersion": "clients.example.com/v1", "kind": kind, "metadata": {"name": "a", "namespace": "default"}}


def status_of(kind: str) -> str:
    """Return the arguments that name the instance."""
    return f"api_version: clients.example.com/v1, kind: {kind}, name: a, namespace: default"


def results(ran: Ran) -> list[dict[str, Any]]:
    """Return the results of tasks that succeeded, in order."""
    return [event["event_data"]["res"] for event in ran.of("runner_on_ok")]


@pytest.mark.full
async def test_modules_of_a_run_share_one_client_and_their_results_are_their_own(bed: Bed) -> None:
    ran = await bed.run(f"""
- {READ}
- kubernetes.core.k8s:
    definition: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: shared, namespace: default}}, data: {{a: "1"}}}}
- {READ}
- kubernetes.core.k8s: {{state: absent, api_version: v1, kind: ConfigMap, name: shared, namespace: default}}
""")

    (connection,) = set(bed.connections("/configmaps"))
    assert bed.connections("/api") == [connection] * len(bed.connections("/api"))
    names = [[each["metadata"]["name"] for each in found.get("resources", [])] for found in results(ran)]
    assert ["shared" in each for each in names] == [False, False, True, False]


async def test_other_credentials_have_a_client_of_their_own(bed: Bed) -> None:
    ran = await bed.run(f"""
- {READ}
- {READ.replace("}", ", impersonate_user: nobody}")}
  ignore_errors: true
- {READ}
- {READ}
  environment: {{K8S_AUTH_IMPERSONATE_USER: nobody}}
  ignore_errors: true
- {READ}
""")

    reads = [call for call in bed.calls if "/configmaps" in call.target]
    as_nobody = [("Impersonate-User", "nobody") in call.headers for call in reads]
    assert as_nobody == [False, True, False, True, False]
    refused = [event["event_data"]["res"]["msg"] for event in ran.of("runner_on_failed")]
    assert ["forbidden" in message for message in refused] == [True, True]


async def test_a_kubeconfig_that_the_role_replaces_is_used_at_once(bed: Bed, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text(bed.other_way, encoding="utf-8")

    await bed.run(f"""
- {READ}
- copy: {{src: "{other}", dest: "{{{{ lookup('env', 'K8S_AUTH_KUBECONFIG') }}}}"}}
- {READ}
""")

    assert [sum("/configmaps" in call.target for call in calls) for calls in (bed.calls, bed.other_calls)] == [1, 1]


async def test_a_kind_that_the_run_created_is_known_to_the_next_tasks(bed: Bed) -> None:
    kinds = ("First", "Second")
    tasks = "".join(
        f"""
- kubernetes.core.k8s:
    definition: {crd_of(kind)}
    wait: true
    wait_condition: {{type: Established, status: "True"}}
- kubernetes.core.k8s: {{definition: {instance_of(kind)}}}
  register: made
  until: made is succeeded
  retries: 50
  delay: 0.1
- operator_sdk.util.k8s_status: {{{status_of(kind)}, status: {{known: "yes"}}}}
"""
        for kind in kinds
    )
    try:
        ran = await bed.run(tasks)
    finally:
        for kind in kinds:
            bed.kubectl("delete", "crd", crd_of(kind)["metadata"]["name"], "--ignore-not-found")

    assert [found["result"]["kind"] for found in results(ran)] == [
        *("CustomResourceDefinition", "First", "First"),
        *("CustomResourceDefinition", "Second", "Second"),
    ]


async def test_what_one_module_reports_is_not_reported_by_the_next(bed: Bed) -> None:
    bed.kubectl.apply(crd_of("Warned"))
    bed.kubectl.wait("--for=condition=Established", "crd/warneds.clients.example.com")
    bed.kubectl.apply(instance_of("Warned"))
    try:
        ran = await bed.run(f"""
- {{operator_sdk.util.k8s_status: {{{status_of("Warned")}, status: {{unknown: "a"}}}}, register: first}}
- {{operator_sdk.util.k8s_status: {{{status_of("Warned")}, status: {{known: "b"}}}}, register: second}}
- {{{READ}, register: third}}
- {{operator_sdk.util.requeue_after: {{time: 1h}}, register: fourth}}
- {{name: said, debug: {{msg: "{{{{ [first, second, third, fourth] | map(attribute='warnings', default=[]) }}}}"}}}}
""")
    finally:
        bed.kubectl("delete", "crd", "warneds.clients.example.com", "--ignore-not-found")

    first, *others = ran.said("said")
    assert "does not keep status.unknown" in str(first)
    assert others == [[], [], []]


async def test_after_a_module_that_fails_the_next_one_has_a_new_client(bed: Bed) -> None:
    ran = await bed.run(f"""
- {READ}
- kubernetes.core.k8s:
    definition: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: "Not A Name", namespace: default}}}}
  ignore_errors: true
- {READ}
""")

    assert (len(ran.of("runner_on_ok")), len(ran.of("runner_on_failed"))) == (2, 1)
    before, *between, after = bed.connections("/configmaps")
    assert set(between) == {before}
    assert after != before


async def test_lookups_of_a_run_share_one_client_without_a_worker(bed: Bed) -> None:
    found = "query('kubernetes.core.k8s', kind='ConfigMap', namespace='default')"
    ran = await bed.run(f"""
- {{name: said, debug: {{msg: "{{{{ {found} | map(attribute='metadata.name') }}}}"}}}}
- kubernetes.core.k8s:
    definition: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: looked-up, namespace: default}}}}
- {{name: said, debug: {{msg: "{{{{ {found} | map(attribute='metadata.name') }}}}"}}}}
- kubernetes.core.k8s: {{state: absent, api_version: v1, kind: ConfigMap, name: looked-up, namespace: default}}
- {{name: said, debug: {{msg: "{{{{ {found.replace("ConfigMap", "NoSuchKind")} }}}}"}}, ignore_errors: true}}
- {{name: said, debug: {{msg: "{{{{ {found} | map(attribute='metadata.name') }}}}"}}}}
""")

    lists = [call.connection for call in bed.calls if call.method == "GET" and call.target.endswith("/configmaps")]
    assert (len(lists), len(set(lists))) == (3, 1)
    said = [
        event["event_data"]["res"]["msg"] for event in ran.of("runner_on_ok") if "msg" in event["event_data"]["res"]
    ]
    assert ["looked-up" in each for each in said] == [False, True, False]
    assert task_record.WORKER not in {each.way for each in ran.executions}


async def test_a_lookup_with_other_credentials_has_a_worker_and_leaves_nothing_to_the_next(bed: Bed) -> None:
    own = "query('kubernetes.core.k8s', kind='ConfigMap', namespace='default')"
    await bed.run(f"""
- {{set_fact: {{found: "{{{{ {own} }}}}"}}}}
- {{set_fact: {{found: "{{{{ {own.replace("kind", "impersonate_user='nobody', kind")} }}}}"}}, ignore_errors: true}}
- {{set_fact: {{found: "{{{{ {own} }}}}"}}}}
""")

    lists = [call for call in bed.calls if call.target.endswith("/configmaps")]
    assert [("Impersonate-User", "nobody") in call.headers for call in lists] == [False, True, False]
    assert lists[0].connection == lists[2].connection != lists[1].connection


async def test_a_task_that_needs_a_worker_after_a_lookup_does_not_use_its_connection(bed: Bed) -> None:
    own = "query('kubernetes.core.k8s', kind='ConfigMap', namespace='default')"
    await bed.run(f"""
- {{set_fact: {{found: "{{{{ {own} }}}}"}}}}
- {{set_fact: {{found: "{{{{ [lookup('pipe', 'true'), {own}] }}}}"}}}}
- {{set_fact: {{found: "{{{{ {own} }}}}"}}}}
""")

    first, second, third = bed.connections("/configmaps")
    assert first == third != second


async def test_a_lookup_finds_a_kind_that_the_run_created(bed: Bed) -> None:
    looked_up = "query('kubernetes.core.k8s', api_version='clients.example.com/v1', kind='Third', namespace='default')"
    try:
        ran = await bed.run(f"""
- {{set_fact: {{found: "{{{{ query('kubernetes.core.k8s', kind='ConfigMap', namespace='default') }}}}"}}}}
- kubernetes.core.k8s:
    definition: {crd_of("Third")}
    wait: true
    wait_condition: {{type: Established, status: "True"}}
- kubernetes.core.k8s: {{definition: {instance_of("Third")}}}
  register: made
  until: made is succeeded
  retries: 50
  delay: 0.1
- {{name: said, debug: {{msg: "{{{{ {looked_up} | map(attribute='metadata.name') }}}}"}}}}
""")
    finally:
        bed.kubectl("delete", "crd", crd_of("Third")["metadata"]["name"], "--ignore-not-found")

    assert ran.said("said") == ["a"]


async def test_modules_of_several_hosts_at_once_have_their_own_results(bed: Bed) -> None:
    playbook = bed.runs.playbook(f"""
- hosts: localhost
  gather_facts: false
  tasks:
    - add_host:
        name: "host-{{{{ item }}}}"
        ansible_connection: local
        ansible_python_interpreter: "{{{{ ansible_playbook_python }}}}"
      loop: [a, b, c, d]
- hosts: host-*
  gather_facts: false
  tasks:
    - kubernetes.core.k8s:
        definition:
          {{apiVersion: v1, kind: ConfigMap, metadata: {{name: "{{{{ inventory_hostname }}}}", namespace: default}}}}
    - {READ.replace("}", ', name: "{{ inventory_hostname }}"}')}
    - kubernetes.core.k8s:
        {{state: absent, api_version: v1, kind: ConfigMap, name: "{{{{ inventory_hostname }}}}", namespace: default}}
""")

    ran = await bed.runs.run(playbook, kubeconfig=bed.way)

    assert ran.result.outcome is Outcome.SUCCEEDED, ran.result
    read = [event["event_data"] for event in ran.of("runner_on_ok") if "resources" in event["event_data"]["res"]]
    assert sorted((each["host"], each["res"]["resources"][0]["metadata"]["name"]) for each in read) == [
        (f"host-{name}", f"host-{name}") for name in "abcd"
    ]
