"""The release workflow on this machine: package, index, registry, images, chart and manifests, and a stranger."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from runner import __version__
from runner.sdk import devcluster as clusters
from runner.sdk.scaffold.project import BASE_IMAGE
from tests.kit import newcomer, registry
from tests.kit.go_programs import get_helm
from tests.kit.images import BASE, DEBIAN, Store, build_store, needs_images_on_a_node
from tests.kit.places import ROOT
from tests.kit.processes import captured
from tests.kit.shell import Sh, shell
from tests.kit.wait import patience

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.xdist_group("image"),
    pytest.mark.timeout(2400),
    needs_images_on_a_node(),
]
SYSTEM = "memcached-operator-system"
SAMPLE = "config/samples/cache_v1alpha1_memcached.yaml"
PREFIX = "ghcr.io/owner"
PUBLISHED = f"{PREFIX}/{BASE_IMAGE}"


@dataclass(frozen=True)
class Release:
    """What was built and published."""

    wheel: Path
    sdist: Path
    index: str
    registry: registry.Registry
    sample: str
    """The image of the sample operator, as the chart and install.yaml name it."""


@pytest.fixture(scope="module")
def release(
    store: Store, wheel: Path, galaxy_config: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Release]:
    folder = tmp_path_factory.mktemp("release")
    (sdist,) = wheel.parent.glob("*.tar.gz")
    program = registry.get_program(sys.stderr)
    with (
        registry.index("ansible-operator-runner", wheel, sdist, folder=folder) as index,
        registry.serve(program, folder, PREFIX) as images,
    ):
        environ = {"CONTAINERS_REGISTRIES_CONF": str(images.names)}
        base = f"{images.address}/{PUBLISHED.partition('/')[2]}"
        sample = f"{images.address}/{PREFIX.partition('/')[2]}/memcached-operator:{__version__}"
        _buildah(store, environ, "push", "--quiet", BASE, f"docker://{base}")
        with build_store() as cached:
            mounts = {"/etc/ansible/ansible.cfg": galaxy_config}
            context, debian = _context(folder), f"--build-arg=DEBIAN={DEBIAN}"
            cached.build(context, BASE, "--target=base", debian)  # writes the file that is mounted below
            cached.build(context, sample, "--target=sample", debian, mounts=mounts)
            _buildah(cached, environ, "push", "--quiet", sample, f"docker://{sample}")
            _buildah(cached, environ, "rmi", sample)
        yield Release(wheel, sdist, index, images, sample)


def _context(folder: Path) -> Path:
    """Copy the files of the repository that an image can contain."""
    context = folder / "context"
    names = ("runner", "requirements", "hack", "roles", "playbooks")
    for name in names:
        shutil.copytree(ROOT / name, context / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("Dockerfile", ".dockerignore", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(ROOT / file, context)
    for file in ("requirements.yml", "watches.yaml"):
        shutil.copy(ROOT / file, context)
    return context


def _buildah(store: Store, environ: dict[str, str], *arguments: str) -> str:
    done = captured("buildah", *arguments, env={**os.environ, **store.environ(), **environ})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass(frozen=True)
class Stranger:
    """A user with a virtual environment, an empty container store and an empty folder."""

    sh: Sh
    store: Store
    images: dict[str, str]
    project: Path

    def pull(self, image: str, folder: Path) -> None:
        """Load a published image into the node, as a cluster with access to the registry pulls it."""
        _buildah(self.store, self.images, "pull", "--quiet", image)
        archive = folder / "pulled.tar"
        _buildah(self.store, self.images, "push", "--quiet", image, f"docker-archive:{archive}:{image}")
        self.sh("ansible-operator", "cluster", "load", str(archive))
        archive.unlink()


@pytest.fixture(scope="module")
def stranger(
    release: Release, node_cluster: clusters.DevCluster, galaxy_config: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stranger]:
    home = tmp_path_factory.mktemp("stranger")
    venv.create(home / "venv", symlinks=True)
    uv = Path(sys.executable).with_name("uv")
    python, wanted = home / "venv/bin/python", f"ansible-operator-runner=={__version__}"
    install = ("pip", "install", "--quiet", "--python", python, "--constraint", newcomer.locked())
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environ["UV_INDEX"] = f"{release.index} {environ.get('UV_INDEX', '')}".strip()
    subprocess.run([str(uv), *map(str, install), wanted], env=environ, check=True)
    project = home / "shop-operator"
    project.mkdir()
    store = Store(home / "images")
    images = {"CONTAINERS_REGISTRIES_CONF": str(release.registry.names)}
    own = {**store.environ({"/etc/ansible/ansible.cfg": galaxy_config}), **images}
    helm = get_helm(os.environ, sys.stderr)
    sh = shell(project, node_cluster, own, home / "venv/bin/ansible-operator", helm)
    try:
        found_first = {"PATH": f"{home / 'venv/bin'}:{sh.environ['PATH']}"}
        yield Stranger(replace(sh, environ={**sh.environ, **found_first}), store, images, project)
    finally:
        store.remove()


def test_the_sdist_builds_the_wheel_and_both_have_types_and_links(release: Release, tmp_path: Path) -> None:
    with tarfile.open(release.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    build = (sys.executable, "-m", "build", "--no-isolation", "--wheel")
    command = [*build, f"--outdir={tmp_path / 'again'}", str(source)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (again,) = (tmp_path / "again").glob("*.whl")

    def contents(wheel: Path) -> dict[str, bytes]:
        with zipfile.ZipFile(wheel) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    built = contents(release.wheel)
    assert contents(again) == built
    assert "runner/py.typed" in built
    metadata = built[f"ansible_operator_runner-{__version__}.dist-info/METADATA"].decode()
    assert "Project-URL: Source, https://" in metadata
    assert "Description-Content-Type: text/markdown" in metadata


def test_a_stranger_builds_pushes_and_deploys_a_project_on_the_published_base_image(
    release: Release, stranger: Stranger, record_property: Callable[[str, object], None]
) -> None:
    began = time.monotonic()
    sh, image = stranger.sh, f"{release.registry.address}/stranger/shop-operator:v0.0.1"
    assert f"ansible-operator {__version__}" in sh("ansible-operator", "--version")
    assert sh("which", "ansible-operator").startswith(str(stranger.project.parent))
    sh("ansible-operator", "init", "--domain", "example.org")
    sh("ansible-operator", "create", "api", "--group", "shop", "--kind", "Basket")
    make = (
        "make",
        "docker-build",
        "docker-push",
        "deploy",
        "CONTAINER_TOOL=buildah",
        f"IMG={image}",
        f"BASE_IMAGE={PUBLISHED}",
    )
    sh(*make)
    repository = PUBLISHED.partition("/")[2].partition(":")[0]
    assert any(f"GET /v2/{repository}/blobs/" in each for each in release.registry.requests()), "the base was pulled"
    assert any("PUT /v2/stranger/shop-operator/manifests/v0.0.1" in each for each in release.registry.requests())
    sh.await_rollout("deployment/shop-operator-controller-manager", "--namespace=shop-operator-system")
    sh("kubectl", "apply", "-f", "config/samples/shop_v1alpha1_basket.yaml")
    sh.wait("--for=condition=Successful", "basket/basket-sample")
    sh("make", "undeploy", "TIMEOUT=120s", f"IMG={image}")
    record_property("empty folder to Successful on a real node, seconds", round(time.monotonic() - began))


def test_the_chart_and_the_manifests_of_the_release_start_the_sample_and_the_chart_is_upgraded(
    release: Release, stranger: Stranger, tmp_path: Path
) -> None:
    sh, dist = stranger.sh, tmp_path / "dist"
    stranger.pull(release.sample, tmp_path)
    later = release.sample.rpartition(":")[0] + ":later"
    _buildah(stranger.store, stranger.images, "tag", release.sample, later)
    archive = tmp_path / "later.tar"
    _buildah(stranger.store, stranger.images, "push", "--quiet", later, f"docker-archive:{archive}:{later}")
    sh("ansible-operator", "cluster", "load", str(archive))
    for image, version in ((release.sample, __version__), (later, "99.0.0")):
        made = (
            "make",
            f"--directory={ROOT}",
            "--old-file=.venv/.made-from",
            "release-manifests",
            f"DIST={dist}/{version}",
        )
        sh(*made, f"IMG={image}", f"CHART_VERSION={version}", "ANSIBLE_OPERATOR=ansible-operator")

    def succeeds() -> None:
        sh("kubectl", "apply", f"--filename={ROOT / SAMPLE}")
        sh.wait("--for=condition=Successful", "memcached/memcached-sample")

    def images() -> set[str]:
        pods = sh.get("pods", f"--namespace={SYSTEM}", "--field-selector=status.phase=Running")["items"]
        return {pod["spec"]["containers"][0]["image"] for pod in pods}

    chart = f"memcached-operator-{__version__}.tgz"
    helm = ("--namespace", SYSTEM, "--create-namespace", "--wait", f"--timeout={patience():.0f}s")
    sh("helm", "install", "sample", str(dist / __version__ / chart), *helm)
    assert images() == {release.sample}
    succeeds()
    uid = sh.get("deployment/memcached-sample-memcached")["metadata"]["uid"]
    sh("helm", "upgrade", "sample", str(dist / "99.0.0/memcached-operator-99.0.0.tgz"), *helm)
    sh("kubectl", "patch", "memcached/memcached-sample", "--type=merge", '--patch={"spec": {"size": 2}}')
    sh.wait("deployment/memcached-sample-memcached", "--for=jsonpath={.spec.replicas}=2")
    assert sh.get("deployment/memcached-sample-memcached")["metadata"]["uid"] == uid, "the upgrade keeps objects"
    sh("kubectl", "delete", "memcached/memcached-sample", f"--timeout={patience():.0f}s")
    sh("helm", "uninstall", "sample", "--namespace", SYSTEM, "--wait")
    sh("kubectl", "delete", "namespace", SYSTEM, f"--timeout={patience():.0f}s")

    manifests = str(dist / __version__ / "install.yaml")
    sh("kubectl", "apply", "--server-side", "--force-conflicts", f"--filename={manifests}")
    sh.await_rollout("deployment/memcached-operator-controller-manager", f"--namespace={SYSTEM}")
    assert images() == {release.sample}
    succeeds()
    sh("kubectl", "delete", "memcached/memcached-sample", f"--timeout={patience():.0f}s")
    sh("kubectl", "delete", f"--filename={manifests}", f"--timeout={patience():.0f}s")
