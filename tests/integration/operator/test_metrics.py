"""Metrics as Prometheus gets them: over TLS, by those alone who may read them, judged by the real authorizer."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import urllib3
import yaml
from prometheus_client.parser import text_string_to_metric_families

from runner.base.pki import Authority
from tests.kit.promtool import problems_of_metrics
from tests.kit.rights import granted
from tests.kit.wait import patience, wait_until

if TYPE_CHECKING:
    from tests.kit.objects import Api, Things
    from tests.kit.operator import Operator, Project

CONFIG = Path(__file__).resolve().parents[3] / "config" / "rbac"


def grant(api: Api, file: str, namespace: str, account: str) -> None:
    """Give an account the ClusterRole of a file of config/rbac."""
    role = yaml.safe_load((CONFIG / file).read_text(encoding="utf-8"))
    name = f"{namespace}-{role['metadata']['name']}"
    api.grant(*granted(name, role["rules"], account=(namespace, account)))


def token_of(api: Api, namespace: str, account: str) -> str:
    base = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.call("POST", base, {"metadata": {"name": account}})
    token: str = api.call("POST", f"{base}/{account}/token", {"spec": {}})["status"]["token"]
    return token


class Scraper:
    """A Prometheus, as far as this endpoint sees it."""

    def __init__(self, operator: Operator) -> None:
        self._port = operator.port("/metrics")

    def get(self, token: str = "", **tls: Any) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        with urllib3.PoolManager(**{"cert_reqs": ssl.CERT_NONE, **tls}, headers=headers) as pool:
            answer = pool.request("GET", f"https://localhost:{self._port}/metrics", retries=False, timeout=patience())
        return answer.status, answer.data.decode()

    def is_trusted(self, authority: Path) -> bool:
        try:
            self.get(cert_reqs=ssl.CERT_REQUIRED, ca_certs=str(authority))
        except urllib3.exceptions.SSLError:
            return False
        return True


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    folder = tmp_path / "certificates"
    folder.mkdir()
    return folder


def issue(folder: Path, name: str) -> Path:
    """Put a certificate in the folder, as cert-manager does; return its authority's."""
    authority = Authority.create(f"authority of {name}")
    pair = authority.issue(name, hosts=["localhost"])
    (folder / "tls.key").write_bytes(pair.key)
    (folder / "tls.crt").write_bytes(pair.certificate)
    ca = folder / f"{name}.pem"
    ca.write_bytes(authority.pair.certificate)
    return ca


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_metrics_require_rbac_and_use_tls_with_the_current_certificate(
    project: Project, things: Things, api: Api, certificates: Path
) -> None:
    space = project.namespace
    first = issue(certificates, "first")
    project.role("thing", "- name: Say hello\n  ansible.builtin.debug: {msg: hello}\n")
    project.watch("thing")
    operator = project.start(
        "--metrics-secure", f"--metrics-cert-path={certificates}", "--metrics-require-rbac", "--log-level=debug"
    )
    scraper = Scraper(operator)
    reader, nobody = token_of(api, space, "reader"), token_of(api, space, "nobody")

    # The operator may not ask yet, and says which rules it needs.
    assert scraper.get(reader) == (500, "the operator may not review tokens; see its log\n")
    assert (
        "tokenreviews"
        in operator.await_line(
            "Cannot authorize clients of metrics: the operator may not create token and access reviews"
        )["rules"]
    )
    grant(api, "metrics_auth_role.yaml", space, "operator")
    grant(api, "metrics_reader_role.yaml", space, "reader")
    wait_until(lambda: scraper.get(reader)[0] == 200, "the rights to count")

    assert scraper.get() == (401, "bearer token required\n")
    assert scraper.get("made-up") == (401, "invalid token\n")
    refused = f"system:serviceaccount:{space}:nobody may not get /metrics; add to its ClusterRole: "
    assert scraper.get(nobody) == (403, refused + "{nonResourceURLs: [/metrics], verbs: [get]}\n")

    assert scraper.is_trusted(first)
    second = issue(certificates, "second")
    wait_until(lambda: scraper.is_trusted(second), "the renewed certificate to be used")
    assert not scraper.is_trusted(first)

    things.create("one", {})
    things.await_success("one")
    text = wait_until(lambda: _with_run(scraper, reader), "the run to be counted")
    assert problems_of_metrics(text) == ""
    assert reader not in operator.log


def _with_run(scraper: Scraper, token: str) -> str:
    """What is exposed, once the first run is in it."""
    text = scraper.get(token)[1]
    families = {family.name: family for family in text_string_to_metric_families(text)}
    named = [sample.labels["name"] for sample in families["resource_created_at_seconds"].samples]
    ran = sum(
        sample.value for sample in families["ansible_operator_run_seconds"].samples if sample.name.endswith("_count")
    )
    return text if ran and named == ["one"] else ""
