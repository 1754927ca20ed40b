"""Roles that work with a real API server do the same there with both engines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from runner.core.watches.watch import Role
from tests.kit.cluster import Kubectl, kubeconfig_of, kubectl_of
from tests.kit.places import ROOT

if TYPE_CHECKING:
    from runner.sdk.devcluster import DevCluster
    from tests.integration.engine.parity.comparison import Parity

pytestmark = [pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture
def kubectl(devcluster: DevCluster) -> Kubectl:
    return kubectl_of(devcluster)


@pytest.fixture
def way(kubeconfig: Path) -> str:
    """The kubeconfig of a run: the administrator's."""
    return kubeconfig.read_text(encoding="utf-8")


@pytest.mark.full
async def test_modules_and_lookups_of_kubernetes_core(parity: Parity, namespace: str, kubectl: Kubectl) -> None:
    with kubectl.proxy() as port:  # without TLS, as through the operator's proxy
        way = kubeconfig_of({"server": f"http://127.0.0.1:{port}"}, {})
        cold = await parity("cluster.yml", extra_vars={"namespace": namespace}, kubeconfig=way, settled=True)

    assert str(cold.task("labelled are")["msg"]) == "['applied', 'one', 'served', 'three', 'two']"
    assert cold.result.requeue_after == 45


@pytest.mark.nightly
async def test_the_sample_role_with_something_to_do(parity: Parity, way: str, namespace: str, kubectl: Kubectl) -> None:
    kubectl("apply", "-k", str(ROOT / "config/crd"))
    kubectl.wait("--for=condition=Established", "crd/memcacheds.cache.example.com")
    resource = {
        "apiVersion": "cache.example.com/v1alpha1",
        "kind": "Memcached",
        "metadata": {"name": "sample", "namespace": namespace},
        "spec": {"size": 1},
    }
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump(resource))
    given: dict[str, Any] = {
        "extra_vars": {"size": 1, "ansible_operator_meta": {"name": "sample", "namespace": namespace}},
        "kubeconfig": way,
    }
    role = Role("memcached", ROOT / "roles" / "memcached")
    await parity.under_test(role, **given)  # makes what takes a moment to settle
    kubectl.wait("--for=condition=Available", "deployment/sample-memcached", "-n", namespace)

    def forget_entry() -> None:
        kubectl("delete", "configmap", f"memcached.{namespace}.sample", "-n", "default")

    cold = await parity(role, before=forget_entry, **given)
    quiet = await parity(role, **given)

    assert cold.result.recap is not None
    assert quiet.result.recap is not None
    assert (cold.result.recap.ok, cold.result.recap.changed) == (4, 1)
    assert (quiet.result.recap.ok, quiet.result.recap.changed) == (4, 0)
