"""Requested representations, and large objects of the Python client, through the proxy."""

from __future__ import annotations

import gzip
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kubernetes.client
import kubernetes.config
import pytest

from tests.kit.wait import patience

if TYPE_CHECKING:
    from tests.integration.proxy.bed import Standing

kube: Any = kubernetes
"""The client is typed in part only."""


@pytest.fixture
def client(standing: Standing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A client from the run's kubeconfig; what it keeps on disk stays in the test's folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with kube.config.new_client_from_config(str(standing.kubeconfig)) as made:
        yield made


def named(name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **fields}


def raw(standing: Standing, path: str, **headers: str) -> tuple[dict[str, str], bytes]:
    """Ask without a client's help."""
    request = urllib.request.Request(f"{standing.proxy.url}{path}")  # noqa: S310 - the proxy's own address
    for name, value in {"Authorization": f"Bearer {standing.token}", **headers}.items():
        request.add_header(name.replace("_", "-"), value)
    with urllib.request.urlopen(request, timeout=patience()) as answer:  # noqa: S310 - the same
        return dict(answer.headers), answer.read()


def test_requested_representations_are_returned(standing: Standing, namespace: str) -> None:
    for accept, start in (
        ("application/json;as=Table;v=v1;g=meta.k8s.io", b'{"kind":"Table"'),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", b'{"kind":"PartialObjectMetadataList"'),
        ("application/vnd.kubernetes.protobuf", b"k8s\x00"),
        ("application/yaml", b"apiVersion: v1"),
    ):
        _, body = raw(standing, f"/api/v1/namespaces/{namespace}/configmaps", Accept=accept)
        assert body.startswith(start)


def test_large_objects_and_packed_lists_pass(client: Any, standing: Standing, namespace: str) -> None:
    core = kube.client.CoreV1Api(client)
    for number in range(3):
        core.create_namespaced_config_map(namespace, named(f"large-{number}", data={"x": "y" * 900_000}))
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    # A list tells the version of the whole store, so it changes with whatever anybody writes: of answers that are
    # to be compared, the same must come before and after.
    while True:
        _, plain = raw(standing, path)
        headers, packed = raw(standing, path, Accept_Encoding="gzip")
        _, again = raw(standing, path)
        if plain == again:
            break
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed) == plain
    assert len(plain) > 2_700_000
