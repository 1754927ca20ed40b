"""The sample operator as its developer deploys it on a real node: image, permissions, workload, log, removal."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runner.sdk import devcluster as clusters
from runner.sdk import scaffold
from tests.integration.examples.deployed import copy
from tests.kit import workloads
from tests.kit.images import BASE, Store, needs_images_on_a_node
from tests.kit.shell import Sh, shell
from tests.kit.wait import wait_until

pytestmark = [
    pytest.mark.full,
    pytest.mark.xdist_group("image"),
    pytest.mark.timeout(1500),
    needs_images_on_a_node(),
]

OPERATOR = "memcached-operator"
MANAGER = ("deployment/memcached-operator-controller-manager", f"--namespace={OPERATOR}-system")
NEWER = "example.com/memcached-operator:v0.0.2"
PUBLISHED = "docker.io/library/memcached:1.6-alpine"
"""The image that the role of Memcached runs by default."""
MARIADB = "docker.io/library/mariadb:11.4"
"""The image that the role of MySQLCluster runs by default."""


@pytest.fixture
def sh(
    request: pytest.FixtureRequest, store: Store, galaxy_config: Path, node_cluster: clusters.DevCluster, tmp_path: Path
) -> Sh:
    """Run a command in an example's project, by default the sample; images of buildah are those of the store."""
    folder = copy(getattr(request, "param", "memcached"), tmp_path)
    dockerfile = folder / "Dockerfile"
    environ = store.environ({"/etc/ansible/ansible.cfg": galaxy_config})
    if dockerfile.exists():
        return shell(folder, node_cluster, environ)
    template = Path(scaffold.__file__).with_name("templates") / "project/Dockerfile"
    dockerfile.write_text(template.read_text().replace("@{base_image}", BASE))
    return shell(folder, node_cluster, environ)


def loaded(sh: Sh, *arguments: str) -> list[str]:
    """Load an image, and return the names that the command prints."""
    told = sh("ansible-operator", "cluster", "load", *arguments).splitlines()[-1]
    return told.partition(": ")[2].split(", ")


def answer(sh: Sh, command: str) -> str:
    """Send a line to memcached by the name of its Service, from another pod; return what it answers."""
    script = f"printf '{command}\\r\\nquit\\r\\n' | nc -w 5 cache 11211"
    return sh("kubectl", "exec", "client", "--", "sh", "-c", script, check=False)


def test_the_sample_is_built_deployed_upgraded_and_removed_and_its_memcached_answers_at_a_service(sh: Sh) -> None:
    archives = workloads.archives(sys.stderr, "memcached", "web")
    assert loaded(sh, str(archives["memcached"]), f"--tag={PUBLISHED}") == [PUBLISHED]
    assert loaded(sh, str(archives["web"])) == ["localhost/web:test"]
    sh("kubectl", "run", "client", "--image=localhost/web:test")

    # As it is written in a project's README: the image goes from the build to the node without a registry.
    make = ("make", "docker-build", "deploy", "CONTAINER_TOOL=buildah", f"BASE_IMAGE={BASE}")
    sh(*make)
    sh.await_rollout(*MANAGER)
    sh("kubectl", "apply", "-f", "config/samples/cache_v1alpha1_memcached.yaml")
    sh.wait("--for=condition=Successful", "memcached/memcached-sample")

    sh.await_rollout("deployment/memcached-sample-memcached")
    sh("kubectl", "expose", "deployment", "memcached-sample-memcached", "--name=cache", "--port=11211")
    sh.wait("--for=condition=Ready", "pod/client")
    wait_until(lambda: answer(sh, "version").startswith("VERSION 1."), "an answer of memcached")

    log = sh("kubectl", "logs", *MANAGER, "--container=manager")
    assert "Ansible Task StdOut" in log
    assert "orbidden" not in log
    (pod,) = sh.get("pods", f"--namespace={OPERATOR}-system")["items"]
    (status,) = pod["status"]["containerStatuses"]
    assert (status["restartCount"], pod["spec"]["nodeName"]) == (0, "node-real")

    # Another version of the operator, whose role has another default.
    assert "STAT limit_maxbytes 67108864" in answer(sh, "stats")
    sh("sed", "--in-place", "s/memory_mib: 64/memory_mib: 48/", "roles/memcached/defaults/main.yml")
    sh(*make, f"IMG={NEWER}")
    wait_until(lambda: "STAT limit_maxbytes 50331648" in answer(sh, "stats"), "the new limit")
    images = [
        each["spec"]["containers"][0]["image"] for each in sh.get("pods", f"--namespace={OPERATOR}-system")["items"]
    ]
    assert NEWER in images

    sh("make", "undeploy", "TIMEOUT=120s")
    left = sh("kubectl", "get", "crd,clusterrole,clusterrolebinding,namespace", "--output=name").split()
    assert [each for each in left if OPERATOR in each or "cache.example.com" in each] == []
    wait_until(lambda: [each["metadata"]["name"] for each in sh.get("pods")["items"]] == ["client"], "its pods to go")


@pytest.mark.nightly
@pytest.mark.parametrize("sh", ["mysql"], indirect=True)
def test_the_servers_of_a_mysql_cluster_replicate_what_its_users_write(sh: Sh) -> None:
    archive = workloads.archives(sys.stderr, "mariadb")["mariadb"]
    loaded(sh, str(archive), f"--tag={MARIADB}")
    sh("make", "docker-build", "deploy", "CONTAINER_TOOL=buildah", f"BASE_IMAGE={BASE}")
    system = ("deployment/mysql-operator-controller-manager", "--namespace=mysql-operator-system")
    sh.await_rollout(*system)
    sample = "config/samples/db_v1alpha1_mysql"
    sh("kubectl", "apply", *(f"--filename={sample}{kind}.yaml" for kind in ("cluster", "database", "user")))
    sh("kubectl", "patch", "mysqlcluster/mysqlcluster-sample", "--type=merge", '--patch={"spec": {"replicas": 2}}')
    for kind in ("cluster", "database", "user"):
        sh.wait("--for=condition=Successful", f"mysql{kind}/mysql{kind}-sample")

    def query(server: int, statement: str) -> str:
        login = 'mariadb --user=root --password="$MARIADB_ROOT_PASSWORD" --skip-column-names shop --execute'
        pod = f"mysqlcluster-sample-mysql-{server}"
        return sh("kubectl", "exec", pod, "--", "sh", "-c", f"{login} '{statement}'", check=False).strip()

    query(0, "CREATE TABLE orders (id INT PRIMARY KEY); INSERT INTO orders VALUES (42)")
    wait_until(lambda: query(1, "SELECT id FROM orders") == "42", "the row at the other server")
    sh("make", "undeploy", "TIMEOUT=180s")
    wait_until(lambda: not [e for e in sh.get("pods")["items"] if "mysql" in e["metadata"]["name"]], "no pods")
