"""Helm through the proxy; the modules of kubernetes.core that start it are in `operator/test_children.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kit.wait import patience

if TYPE_CHECKING:
    from tests.integration.proxy.bed import Standing
    from tests.integration.proxy.clients.tools import Helm
    from tests.kit.cluster import Kubectl


RELEASE = "sh.helm.release.v1.shop.v{}"
PRIMARY = "operator-sdk/primary-resource"


def test_a_release_and_helms_own_records_are_owned_throughout_its_life(
    helm: Helm, kubectl: Kubectl, standing: Standing, namespace: str, chart: Path, tmp_path: Path
) -> None:
    def colour() -> str:
        return kubectl("get", "configmap", "shop", "-o=jsonpath={.data.colour}")

    helm("install", "shop", chart, "--wait", f"--timeout={patience():.0f}s")
    assert (colour(), kubectl("get", "deployment", "shop", "-o=jsonpath={.status.readyReplicas}")) == (
        "red",
        "1",
    )
    helm("upgrade", "shop", chart, "--set=colour=blue")
    assert colour() == "blue"
    helm("upgrade", "shop", chart, "--set=colour=green", "--force")  # writes by PUT what others write by PATCH
    assert colour() == "green"
    helm("rollback", "shop", "1")
    assert colour() == "red"
    for kind, name in (
        ("configmap", "shop"),
        ("configmap", "shop-before"),
        ("deployment", "shop"),
        *(("secret", RELEASE.format(revision)) for revision in (1, 2, 3, 4)),
    ):
        assert kubectl.owners(kind, name) == ["owner"], (kind, name)
    assert f"wrote secrets {RELEASE.format(4)} of owner" in standing.observer.reports
    role = json.loads(kubectl("get", "clusterrole", f"{namespace}-shop", "-o=json"))
    assert role["metadata"]["annotations"][PRIMARY] == f"{namespace}/owner"
    assert [(each["name"], each["revision"]) for each in json.loads(helm("list", "-o=json"))] == [("shop", "4")]

    helm("uninstall", "shop", "--wait")
    assert json.loads(helm("list", "-o=json")) == []
    assert {f"deleted {kind} shop of owner" for kind in ("configmaps", "deployments")} <= set(standing.observer.reports)
    assert kubectl("get", "secrets", "--field-selector=type=helm.sh/release.v1", "-o=name") == ""
    # What helm discovers is kept under one name, whatever the run.
    assert len(list((tmp_path / ".kube" / "cache" / "discovery").iterdir())) == 1
