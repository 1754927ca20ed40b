"""The engine of runs in pods with a real API server. A test is the node: it sets the states of pods, and is the agent.

On a real node, the same is tested in tests/integration/image.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runner.base.credentials import auth
from runner.core.kube.client import Client
from runner.engines.pod import states
from runner.engines.pod.certificates import Certificates, make_authority
from runner.sdk.devcluster import DevCluster
from runner.values.objects import GVK, ObjectKey, ObjectRef
from tests.engines.pod.integration.bed import Bed
from tests.kit.agents import NAME


@pytest.fixture
async def bed(devcluster: DevCluster, namespace: str, tmp_path: Path) -> AsyncIterator[Bed]:
    """Short times, so that tests need not wait."""
    credentials = await auth.load(str(devcluster.kubeconfig), None, auth.HostEnvironment.of_process())
    async with Client(credentials) as client:
        nobody = ObjectRef(GVK("", "v1", "ConfigMap"), ObjectKey(namespace, ""), "")
        bed = Bed(client, namespace, tmp_path, Certificates(make_authority(), [NAME]), nobody)
        await bed.another_owner("one")
        yield bed
        for operator in bed.operators:
            await operator.links.close()


@pytest.fixture(autouse=True)
def _without_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.engines.pod.execution._LOOK", 0.05)
    short = states.Patience(broken=0.1, lost=0.1, ended=0.1, gone=0.1)
    monkeypatch.setattr("runner.engines.pod.engine.Patience", lambda: short)
