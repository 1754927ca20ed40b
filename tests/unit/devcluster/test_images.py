from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from runner.sdk.devcluster import images
from runner.values.errors import ClusterError, ConfigError

NAME = "example.com/shop-operator:v1"
LAYER = b"files of the image"

Files = Mapping[str, bytes]


def docker_files(*tags: str) -> dict[str, bytes]:
    manifest = [{"Config": "config.json", "RepoTags": list(tags), "Layers": ["layer.tar"]}]
    return {"layer.tar": LAYER, "config.json": b"{}", "manifest.json": json.dumps(manifest).encode()}


def oci_files(*annotations: Mapping[str, str]) -> dict[str, bytes]:
    manifest = json.dumps({"layers": []}).encode()
    digest = hashlib.sha256(manifest).hexdigest()
    described = [{"digest": f"sha256:{digest}", "annotations": dict(each)} for each in annotations or ({},)]
    index = json.dumps({"schemaVersion": 2, "manifests": described}).encode()
    return {"oci-layout": b"{}", "index.json": index, f"blobs/sha256/{digest}": manifest}


def tar(path: Path, files: Files) -> Path:
    with tarfile.open(path, "w") as archived:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archived.addfile(info, io.BytesIO(content))
    return path


def write(folder: Path, files: Files) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def content(path: Path) -> dict[str, bytes]:
    with tarfile.open(path, "r:") as opened:
        return {each.name: file.read() for each in opened if (file := opened.extractfile(each))}


def names(path: Path) -> list[str]:
    """Return the names under which containerd imports the images: an OCI index has precedence."""
    found = content(path)
    if "index.json" in found:
        manifests = json.loads(found["index.json"])["manifests"]
        return [each["annotations"]["io.containerd.image.name"] for each in manifests]
    return [tag for image in json.loads(found["manifest.json"]) for tag in image["RepoTags"]]


@pytest.fixture
def convert(tmp_path: Path) -> Callable[..., Path]:
    """Return the function under test, with no tool in PATH."""
    (tmp_path / "out").mkdir()
    (tmp_path / "bin").mkdir()

    def call(source: str | Path, tag: str | None = None, **environ: str) -> Path:
        environ["PATH"] = str(tmp_path / "bin")
        return images.archive(str(source), tag, tmp_path / "out", environ, sys.stderr)

    return call


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("memcached:1.6-alpine", "docker.io/library/memcached:1.6-alpine"),
        ("team/shop:v1", "docker.io/team/shop:v1"),
        ("localhost/shop:v1", "localhost/shop:v1"),
        ("registry:5000/team/shop", "registry:5000/team/shop:latest"),
        (NAME, NAME),
    ],
)
def test_a_name_is_completed_as_the_kubelet_completes_it(given: str, full: str) -> None:
    assert images.full_name(given) == full


@pytest.mark.parametrize("given", ["", "Shop:v1", "shop:v 1", "https://example.com/shop:v1", "-shop", "shop:", "/shop"])
def test_an_invalid_name_is_refused_with_an_example(given: str) -> None:
    with pytest.raises(ConfigError, match=r"invalid image name.*example.com/shop-operator:v1"):
        images.full_name(given)


def test_a_compressed_archive_becomes_a_plain_one(convert: Callable[..., Path], tmp_path: Path) -> None:
    plain = tar(tmp_path / "shop.tar", docker_files("shop:v1"))
    (tmp_path / "shop.tar.gz").write_bytes(gzip.compress(plain.read_bytes()))
    made = convert(tmp_path / "shop.tar.gz")
    assert content(made)["layer.tar"] == LAYER
    assert names(made) == ["docker.io/library/shop:v1"]


@pytest.mark.parametrize("form", ["archive", "layout"])
@pytest.mark.parametrize(
    ("annotations", "tag", "named"),
    [
        ([{"io.containerd.image.name": NAME}], None, [NAME]),
        ([{"org.opencontainers.image.ref.name": "localhost/shop:v1"}], None, ["localhost/shop:v1"]),
        ([{"org.opencontainers.image.ref.name": "latest"}], "shop:v1", ["docker.io/library/shop:v1"]),
        ([{}], NAME, [NAME]),
        ([{"io.containerd.image.name": "a:v1"}, {"io.containerd.image.name": "a:v2"}], NAME, [NAME]),
    ],
)
def test_an_oci_image_has_its_own_name_or_the_given_one(
    convert: Callable[..., Path],
    tmp_path: Path,
    form: str,
    annotations: Sequence[Mapping[str, str]],
    tag: str | None,
    named: Sequence[str],
) -> None:
    files = oci_files(*annotations)
    source = tar(tmp_path / "shop.tar", files) if form == "archive" else write(tmp_path / "shop", files)
    made = convert(source, tag)
    assert names(made) == named
    assert content(made).keys() == files.keys()


def test_an_archive_with_both_indexes_has_the_given_name_in_both(convert: Callable[..., Path], tmp_path: Path) -> None:
    files = {**oci_files({"io.containerd.image.name": "other:v1"}), **docker_files("other:v1")}
    found = content(convert(tar(tmp_path / "shop.tar", files), NAME))
    assert json.loads(found["manifest.json"])[0]["RepoTags"] == [NAME]
    assert json.loads(found["index.json"])["manifests"][0]["annotations"]["io.containerd.image.name"] == NAME


@pytest.mark.parametrize("files", [docker_files(), oci_files({"org.opencontainers.image.ref.name": "v1"})])
def test_an_image_without_a_name_needs_the_option(
    convert: Callable[..., Path], tmp_path: Path, files: dict[str, bytes]
) -> None:
    with pytest.raises(ConfigError, match=r"shop\.tar has no name: .*--tag"):
        convert(tar(tmp_path / "shop.tar", files))


def test_one_name_for_several_images_is_refused(convert: Callable[..., Path], tmp_path: Path) -> None:
    files = docker_files("a:v1")
    files["manifest.json"] = json.dumps(json.loads(files["manifest.json"]) * 2).encode()
    with pytest.raises(ConfigError, match="contains 2 images: omit --tag"):
        convert(tar(tmp_path / "shop.tar", files), NAME)


def _without(files: dict[str, bytes], name: str) -> dict[str, bytes]:
    return {path: text for path, text in files.items() if path != name}


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({}, "contains no image"),
        ({"etc/passwd": b"root"}, "contains no image"),
        ({"manifest.json": b"[]"}, "contains no image"),
        ({"manifest.json": b"no json"}, "manifest.json of the image is not valid JSON"),
        ({"manifest.json": b'{"layers": []}'}, "is not an image archive"),
        ({"manifest.json": b'[{"Config": "x"}]'}, "is not an image archive: .*Layers"),
        ({"index.json": b'{"manifests": [{}]}'}, "is not an image archive: .*digest"),
        ({"index.json": b"[]"}, "is not an image archive"),
        (_without(docker_files("a:v1"), "layer.tar"), "is incomplete: layer.tar is missing"),
        ({"index.json": oci_files()["index.json"]}, "is incomplete: blobs/sha256/.* is missing"),
    ],
)
def test_a_tar_file_that_is_no_image_is_refused_with_the_reason(
    convert: Callable[..., Path], tmp_path: Path, files: dict[str, bytes], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        convert(tar(tmp_path / "shop.tar", files))


def test_files_that_are_no_archive_are_refused(convert: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ConfigError, match=r"text is not a tar archive: create one with `docker save`"):
        convert(tmp_path / "text")
    whole = tar(tmp_path / "shop.tar", {**docker_files("shop:v1"), "layer.tar": bytes(200_000)}).read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[:100_000])
    with pytest.raises(ConfigError, match=r"cut\.tar"):
        convert(tmp_path / "cut.tar")
    (tmp_path / "cut.tar.gz").write_bytes(gzip.compress(whole)[:200])
    with pytest.raises(ConfigError, match=r"cut\.tar\.gz"):
        convert(tmp_path / "cut.tar.gz")


def test_a_directory_without_an_image_is_refused(convert: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="contains neither oci-layout nor a Dockerfile"):
        convert(tmp_path)
    write(tmp_path, {"Dockerfile": b"FROM scratch\n"})
    with pytest.raises(ConfigError, match=r"has no name: .*--tag"):
        convert(tmp_path)


def test_without_a_tool_the_error_contains_the_package_to_install(convert: Callable[..., Path], tmp_path: Path) -> None:
    write(tmp_path / "project", {"Dockerfile": b"FROM scratch\n"})
    for source, tag in ((tmp_path / "project", NAME), ("shop:v1", None)):
        with pytest.raises(ClusterError, match=r"none of docker, podman, buildah works .*apt-get install buildah"):
            convert(source, tag)


def test_a_missing_path_is_not_searched_as_an_image(convert: Callable[..., Path]) -> None:
    with pytest.raises(ConfigError, match=r"\./shop\.tar: no such file or directory$"):
        convert("./shop.tar")


TOOL = """#!{python}
import shutil, sys
from pathlib import Path
own = Path(__file__)
with own.with_suffix(".calls").open("a") as calls:
    print(*sys.argv[1:], file=calls)
if sys.argv[1] == "version":
    sys.exit({version})
if sys.argv[1] == "inspect":
    sys.exit(0 if sys.argv[-1] in {images!r} else 1)
if sys.argv[1] == "build":
    print("STEP 1: FROM scratch", flush=True)
    sys.exit({build})
target = next(each.partition("=")[2] or each.partition(":")[2] for each in sys.argv if "saved.tar" in each)
shutil.copy({archive!r}, target)
"""


@pytest.fixture
def install(tmp_path: Path) -> Callable[..., Path]:
    """Return what puts a tool into PATH; its archive contains the image without its name."""
    archive = tar(tmp_path / "of-tool.tar", docker_files())

    def put(name: str, *stored: str, version: int = 0, build: int = 0) -> Path:
        program = tmp_path / "bin" / name
        values: dict[str, Any] = {"version": version, "build": build, "images": stored, "archive": str(archive)}
        program.write_text(TOOL.format(python=sys.executable, **values))
        program.chmod(0o755)
        return program.with_suffix(".calls")

    return put


@pytest.mark.lengthy
def test_the_first_tool_that_works_builds_a_directory(
    convert: Callable[..., Path], install: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A docker client without an engine does not."""
    docker, podman, buildah = install("docker", version=1), install("podman"), install("buildah")
    folder = write(tmp_path / "project", {"Dockerfile": b"FROM scratch\n"})
    assert names(convert(folder, "shop-operator:v1")) == ["docker.io/library/shop-operator:v1"]
    assert docker.read_text() == "version\n"
    assert "build --tag docker.io/library/shop-operator:v1 " in podman.read_text()
    assert "build" not in buildah.read_text()
    assert "STEP 1: FROM scratch" in capfd.readouterr().err


@pytest.mark.lengthy
def test_the_tool_of_the_environment_comes_first(convert: Callable[..., Path], install: Callable[..., Path]) -> None:
    docker, podman = install("docker", NAME), install("podman", NAME)
    assert names(convert(NAME, CONTAINER_TOOL="podman")) == [NAME]
    assert "save" in podman.read_text()
    assert "save" not in docker.read_text()


def test_a_failed_build_is_one_error(
    convert: Callable[..., Path], install: Callable[..., Path], tmp_path: Path
) -> None:
    install("buildah", build=125)
    folder = write(tmp_path / "project", {"Containerfile": b"FROM nothing\n"})
    with pytest.raises(ClusterError, match=r"`buildah build .*` failed with exit code 125; see its output above"):
        convert(folder, NAME)


@pytest.mark.lengthy
def test_an_image_is_found_in_the_store_of_any_tool(
    convert: Callable[..., Path], install: Callable[..., Path], tmp_path: Path
) -> None:
    install("docker"), install("buildah", "shop-operator:v1")
    assert names(convert("shop-operator:v1")) == ["docker.io/library/shop-operator:v1"]
    assert names(convert("shop-operator:v1", NAME)) == [NAME]
    with pytest.raises(ConfigError, match="other:v1: no such file or directory, and no image of docker or buildah"):
        convert("other:v1")
