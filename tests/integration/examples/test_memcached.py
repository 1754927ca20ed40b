"""The sample: scaled by hand and by a real HorizontalPodAutoscaler, two versions of one kind, and upgraded by OLM."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import yaml

from runner.sdk import devcluster as clusters
from tests.integration.scaffold import installed, olm
from tests.integration.scaffold.installed import Json
from tests.kit.places import ROOT
from tests.kit.wait import patience, wait_until

if TYPE_CHECKING:
    from tests.integration.examples.deployed import Example, Install

# Many runs of Ansible a test: on a machine with much to do they take their time.
pytestmark = [pytest.mark.full, pytest.mark.xdist_group("examples-memcached")]

SCALED = "memcached-sample"
"""The one that the autoscaler of config/samples scales."""
CSV = "bundle/manifests/memcached-operator.clusterserviceversion.yaml"


@dataclass
class Caches:
    """The Memcacheds of a namespace, and what they are made of."""

    example: Example
    namespace: str

    def __post_init__(self) -> None:
        self.alpha = self.example.resources("Memcached", self.namespace, "v1alpha1")
        self.stable = self.example.resources("Memcached", self.namespace, "v1")
        self.deployments = self.example.objects("apps/v1", "deployments", self.namespace)
        self.pods = self.example.objects("v1", "pods", self.namespace)
        self.directory = self.example.objects("v1", "configmaps", "default")
        self.scalers = self.example.objects("autoscaling/v2", "horizontalpodautoscalers", self.namespace)

    def entry(self, name: str) -> Json:
        """What the directory of all caches, which is in another namespace, says of one."""
        found: Json = self.directory.get(f"memcached.{self.namespace}.{name}").get("data", {})
        return found

    def uids(self, name: str) -> dict[str, str]:
        """The pods of a Memcached that are not on their way out: uids by names."""
        found = (each["metadata"] for each in self.pods.all(f"app.kubernetes.io/instance={name}"))
        return {each["name"]: each["uid"] for each in found if "deletionTimestamp" not in each}

    def await_size(self, name: str, size: int) -> None:
        """Wait until spec, status, directory and cluster agree."""

        def agree() -> bool:
            found, pods = self.alpha.get(name), sorted(self.uids(name))
            said = found.get("status", {})
            sizes = (found["spec"]["size"], said.get("replicas"), len(pods), int(self.entry(name).get("size", -1)))
            return set(sizes) == {size} and said["nodes"] == pods

        wait_until(agree, f"{name} to have {size} servers; it is {self.alpha.get(name)}")
        assert self.alpha.result(name)["failures"] == 0

    def scale(self, name: str) -> Json:
        """What its scale subresource says, as an autoscaler reads it."""
        found: Json = self.example.api.call("GET", f"{self.stable.path}/{name}/scale")
        return found


@pytest.fixture(scope="module")
def devcluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.DevCluster]:
    """A control plane of its own: other tests count on this kind, and here it is removed with all its objects."""
    with clusters.start(name="memcached", logs=tmp_path_factory.mktemp("devcluster-logs")) as cluster:
        yield cluster


@pytest.fixture
def caches(install: Install, namespace: str) -> Caches:
    caches = Caches(install("memcached"), namespace)
    caches.example.start()
    return caches


def test_caches_have_the_size_that_any_client_writes_in_any_version(caches: Caches) -> None:
    _read_by_prometheus(caches.example)
    caches.alpha.create("one", {"size": 3})
    caches.stable.create(SCALED, {})
    caches.await_size(SCALED, 1)
    caches.scalers.post(yaml.safe_load((ROOT / "config/samples/memcached-autoscaler.yaml").read_text()))
    caches.await_size("one", 3)

    caches.alpha.change("one", size=4)
    caches.await_size("one", 4)
    caches.example.sh("kubectl", "scale", "memcacheds/one", f"--namespace={caches.namespace}", "--replicas=2")
    caches.await_size("one", 2)
    scale = caches.scale("one")
    assert (scale["spec"], scale["status"]["replicas"]) == ({"replicas": 2}, 2)
    assert {each["metadata"]["name"] for each in caches.pods.all(scale["status"]["selector"])} >= {*caches.uids("one")}

    # Below its minimum an autoscaler needs no metrics, which this control plane does not have.
    caches.await_size(SCALED, 4)
    scaled = caches.uids(SCALED)
    _the_same_in_both_versions(caches)
    _broken_by_hand(caches)
    _refused_and_mended(caches)
    caches.example.settles(caches.stable, SCALED)
    assert (caches.alpha.get(SCALED)["spec"]["size"], caches.uids(SCALED)) == (4, scaled)

    caches.stable.delete("one")
    caches.alpha.await_gone("one")
    wait_until(lambda: caches.uids("one") == {}, "its pods to go")
    assert caches.entry("one") == {}
    assert caches.entry(SCALED)["size"] == "4"
    caches.scalers.delete(SCALED)
    caches.example.remove()
    assert caches.entry(SCALED) == {}


def _the_same_in_both_versions(caches: Caches) -> None:
    for name in ("one", SCALED):
        old, new = caches.alpha.get(name), caches.stable.get(name)
        assert (old["apiVersion"], new["apiVersion"]) == ("cache.example.com/v1alpha1", "cache.example.com/v1")
        assert (old["spec"], old["metadata"]["uid"]) == (new["spec"], new["metadata"]["uid"])
        assert old["status"]["nodes"] == new["status"]["nodes"]


def _broken_by_hand(caches: Caches) -> None:
    name, before = "one-memcached", caches.uids("one")
    uid = caches.deployments.get(name)["metadata"]["uid"]
    caches.deployments.merge(name, {"spec": {"replicas": 7}}, "scale")
    wait_until(lambda: caches.deployments.get(name)["spec"]["replicas"] == 2, "its Deployment to be scaled back")
    caches.directory.delete(f"memcached.{caches.namespace}.one")
    wait_until(lambda: caches.entry("one"), "its entry to come back")
    caches.deployments.delete(name)
    wait_until(
        lambda: caches.deployments.get(name).get("metadata", {}).get("uid") not in {None, uid}, "it to come back"
    )
    wait_until(lambda: len(caches.uids("one")) == 2 and not before.keys() & caches.uids("one").keys(), "new pods")
    caches.await_size("one", 2)


def _refused_and_mended(caches: Caches) -> None:
    before = caches.uids("one")
    caches.alpha.change("one", memcachedMemoryMib=-100)
    caches.alpha.await_condition("one", "Failure", saying="must be greater than or equal to 0")
    assert caches.uids("one") == before
    caches.alpha.change("one", memcachedMemoryMib=None)
    caches.await_size("one", 2)
    assert caches.uids("one") == before


def _read_by_prometheus(example: Example) -> None:
    """The ServiceMonitor leads to the operator's pod, and there to its metrics whom the reader's role lets in."""
    made = yaml.safe_load_all(example.sh("kubectl", "kustomize", "config/prometheus"))
    (monitor,) = (each["spec"] for each in made if each["kind"] == "ServiceMonitor")
    (endpoint,) = monitor["endpoints"]
    labels = ",".join(f"{name}={value}" for name, value in monitor["selector"]["matchLabels"].items())
    (service,) = (each["spec"] for each in example.objects("v1", "services", example.home).all(labels))
    pod = installed.pod_of(example.sh, example.home)
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    (target,) = (each["targetPort"] for each in service["ports"] if each["name"] == endpoint["port"])
    assert target in {each["name"] for each in pod["spec"]["containers"][0]["ports"]}

    assert example.operator is not None
    (port,) = {each["port"] for each in example.operator.lines(msg="Serving") if endpoint["path"] in each["paths"]}
    url = f"{endpoint['scheme']}://127.0.0.1:{port}{endpoint['path']}"
    token = example.sh("kubectl", "create", "token", "default", f"--namespace={example.home}").strip()
    assert _scraped(url, "") == "401"
    role = f"--clusterrole={example.home.removesuffix('-system')}-metrics-reader"
    account = f"--serviceaccount={example.home}:default"
    example.sh("kubectl", "create", "clusterrolebinding", "scraper", role, account)
    wait_until(lambda: "ansible_operator_build_info" in _scraped(url, token), "the metrics to be read")
    example.sh("kubectl", "delete", "clusterrolebinding", "scraper")


def _scraped(url: str, token: str) -> str:
    """Return what is answered; the status where that is no success."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})  # noqa: S310 - the URL is our own
    unverified = ssl._create_unverified_context()  # noqa: S323 - as the ServiceMonitor says
    try:
        with urllib.request.urlopen(request, context=unverified, timeout=patience()) as answer:  # noqa: S310 - as above
            found: str = answer.read().decode()
            return found
    except urllib.error.HTTPError as error:
        with error:
            return str(error.code)


@pytest.mark.nightly
def test_the_next_bundle_replaces_the_one_before_and_touches_no_operand(checkout: Install, namespace: str) -> None:
    example = checkout("memcached")
    caches = Caches(example, namespace)

    def by_olm(version: str) -> Json:
        image = f"example.com/memcached-operator:v{version}"
        example.sh("ansible-operator", "generate", "bundle", f"--bundle-version={version}", f"--image={image}")
        made = olm.installed(example.folder / "bundle/manifests", example.home, ())
        (example.folder / "olm.yaml").write_text(yaml.safe_dump_all(made))
        example.upgrade_by("kubectl", "apply", "--filename=olm.yaml")
        (deployment,) = (each for each in made if each["kind"] == "Deployment")
        assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == image
        found: Json = yaml.safe_load((example.folder / CSV).read_text())["spec"]
        return found

    assert "replaces" not in by_olm("0.0.1")
    example.start()
    caches.alpha.create("one", {"size": 2})
    caches.stable.create("two", {"size": 1})
    for name, size in (("one", 2), ("two", 1)):
        caches.await_size(name, size)
    before = [caches.uids(name) for name in ("one", "two")]
    example.stop()

    found = by_olm("0.0.2")
    assert (found["version"], found["replaces"]) == ("0.0.2", "memcached-operator.v0.0.1")
    assert {each["version"] for each in found["customresourcedefinitions"]["owned"]} == {"v1alpha1", "v1"}
    example.start()
    for name in ("one", "two"):
        example.settles(caches.alpha, name)
    assert [caches.uids(name) for name in ("one", "two")] == before
    caches.stable.change("one", size=3)
    caches.await_size("one", 3)
    assert before[0].items() <= caches.uids("one").items()
    example.sh("make", "uninstall", "TIMEOUT=120s")
    example.sh("kubectl", "delete", "--filename=olm.yaml", "--ignore-not-found", f"--timeout={patience():.0f}s")
    example.nothing_is_left()
