"""`make docker-build` and `make docker-push` with the container tools of a machine."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.kit.generated import generate

Make = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "shop-operator"
    generate(folder, [["init", "--domain", "example.org"]])
    return folder


@pytest.fixture
def make(project: Path, tmp_path: Path) -> Make:
    """Return what runs make with exactly these tools; those of `broken` are clients without an engine."""

    def run(*arguments: str, tools: str = "", broken: str = "") -> subprocess.CompletedProcess[str]:
        for name in ("make", "sh"):
            found = shutil.which(name)
            assert found is not None
            (tmp_path / name).symlink_to(found)
        for name in (tools + " " + broken).split():
            version = 'test "$1" != version || exit 1\n' if name in broken else ""
            (tmp_path / name).write_text(f'#!/bin/sh\n{version}echo {name} "$@" in "$BUILDAH_ISOLATION"\n')
            (tmp_path / name).chmod(0o755)
        command = ["make", "--silent", *arguments]
        return subprocess.run(
            command, cwd=project, env={"PATH": str(tmp_path)}, check=False, capture_output=True, text=True
        )

    return run


@pytest.mark.parametrize(
    ("tools", "broken", "used"),
    [
        ("docker podman buildah", "", "docker"),
        ("podman buildah", "docker", "podman"),
        ("buildah", "docker", "buildah"),
        ("buildah", "", "buildah"),
    ],
)
def test_the_first_tool_that_works_builds_and_pushes(make: Make, tools: str, broken: str, used: str) -> None:
    done = make("docker-build", "docker-push", "IMG=shop:v1", "BASE_IMAGE=base:v1", tools=tools, broken=broken)
    assert done.stdout.splitlines() == [
        f"{used} build --build-arg BASE_IMAGE=base:v1 --tag shop:v1 . in chroot",
        f"{used} push shop:v1 in chroot",
    ], done.stderr


def test_without_a_tool_that_works_the_error_names_a_package(make: Make) -> None:
    done = make("docker-build", broken="docker")
    assert done.returncode
    assert "No container tool works. Start the Docker engine, or install podman or buildah" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_tool_that_the_user_names_is_used_without_a_check(make: Make) -> None:
    done = make("docker-build", "CONTAINER_TOOL=docker", "IMG=shop:v1", tools="podman", broken="docker")
    assert done.stdout.startswith("docker build ")


@pytest.mark.parametrize(
    ("context", "loads"),
    [("ansible-operator-dev", ["ansible-operator cluster load shop:v1 with buildah"]), ("kind-dev", []), ("", [])],
)
def test_a_development_cluster_of_the_kubeconfig_loads_the_built_image(
    make: Make, tmp_path: Path, context: str, loads: list[str]
) -> None:
    programs = {
        "kubectl": f"test -n '{context}' || exit 1\necho {context}",
        "ansible-operator": 'echo ansible-operator "$@" with "$CONTAINER_TOOL"',
    }
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    done = make("docker-build", "IMG=shop:v1", tools="buildah")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == loads


def test_a_catalog_is_file_based_and_contains_all_bundles(make: Make, project: Path, tmp_path: Path) -> None:
    for name in ("rm", "mkdir"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    (tmp_path / "opm").write_text('#!/bin/sh\necho opm "$@"\n')
    (tmp_path / "opm").chmod(0o755)
    done = make("catalog-build", "BUNDLE_IMGS=shop-bundle:v1 shop-bundle:v2", "CATALOG_IMG=catalog:v2", tools="buildah")
    assert done.stdout.splitlines() == [
        "opm validate catalog",
        "opm generate dockerfile catalog",
        "buildah build --file catalog.Dockerfile --tag catalog:v2 . in chroot",
    ], done.stderr
    rendered = "opm alpha render-template semver --output yaml dist/catalog.template.yaml"
    assert (project / "catalog/catalog.yaml").read_text() == f"{rendered}\n"
    template = yaml.safe_load((project / "dist/catalog.template.yaml").read_text())
    assert template["stable"]["bundles"] == [{"image": "shop-bundle:v1"}, {"image": "shop-bundle:v2"}]


def test_a_catalog_of_the_earlier_format_is_refused(make: Make) -> None:
    refused = make("catalog-build", "CATALOG_BASE_IMG=catalog:v1", tools="buildah")
    assert refused.returncode
    assert "Name all bundles in BUNDLE_IMGS" in refused.stderr
