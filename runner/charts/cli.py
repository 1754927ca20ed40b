"""`ansible-operator generate chart`.

Owns: where manifests, names and versions come from (kustomize, PROJECT, git), and how the chart's folder is replaced.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.charts.chart import Files

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no public name for it

_DESCRIPTION = """\
Write a Helm chart of what `kubectl kustomize config/default` gives: CRDs, rights, the operator, its Service, and
whatever was added to config/. Names, namespaces, image, replicas, resources, the scope of the rights and metrics become
values of the chart. Its versions are those of the last git tag (v1.2.3)."""
_TAG = re.compile(r"v?(\d+)\.(\d+)\.(\d+)((?:-[0-9A-Za-z.-]+?)?)-(\d+)-g([0-9a-f]+)")
_SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
_MINUTE = 60


def add_command(commands: Subparsers) -> None:
    """Add `chart` to the commands of `generate`."""
    parser = commands.add_parser(
        "chart",
        help="write a Helm chart of the project",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--manifests", metavar="FILE", help="manifests to use instead of kustomize's; - is standard input"
    )
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where to [dist/chart/NAME]")
    parser.add_argument("--chart-version", metavar="VERSION", help="[that of the last git tag, or 0.0.1]")
    parser.add_argument("--image", metavar="IMAGE", help="the operator's image [that of the manifests]")
    parser.set_defaults(func=_chart)


def _chart(arguments: argparse.Namespace) -> int:
    import yaml  # noqa: PLC0415 - help needs no YAML

    from runner.charts import chart  # noqa: PLC0415 - the same
    from runner.scaffold import project  # noqa: PLC0415 - the same

    try:
        known = project.parse(Path(project.FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no file {project.FILE} here; go to a project's folder, see init --help") from None
    version = _version(arguments.chart_version)
    try:
        documents = [each for each in yaml.safe_load_all(_manifests(arguments.manifests)) if each]
    except yaml.YAMLError as error:
        raise ConfigError(f"{arguments.manifests}: is no valid YAML: {error}") from None
    repository, tag = _image(arguments.image, documents, f"{known.domain}/{known.name}")
    release = chart.Release(known.name, version, version, repository, tag)
    output: Path = arguments.output or Path("dist/chart") / known.name
    files = chart.make(documents, release)
    _replace(output, files)
    sys.stdout.write(f"{output}: {known.name} {version}, {len(files)} files\n")
    return 0


def _manifests(given: str | None) -> str:
    if given == "-":
        return sys.stdin.read()
    if given:
        try:
            return Path(given).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{given}: cannot be read: {error.strerror}") from None
    kubectl = shutil.which(os.environ.get("KUBECTL", "kubectl"))
    if kubectl is None:
        raise ConfigError("kubectl is not in PATH; install it, or give --manifests what `kustomize build` wrote")
    done = _run([kubectl, "kustomize", "config/default"])
    if done.returncode:
        raise ConfigError(f"`kubectl kustomize config/default` failed: {done.stderr.strip()}")
    return done.stdout


def _version(given: str | None) -> str:
    """The version to write: given, or that of the last tag; between two tags, one that comes before the next patch."""
    if given is None:
        git = shutil.which("git")
        done = _run([git, "describe", "--tags", "--long", "--match", "v[0-9]*"]) if git else None
        found = _TAG.fullmatch(done.stdout.strip()) if done and done.returncode == 0 else None
        return "0.0.1" if found is None else _of_tag(found)
    version = given.removeprefix("v")
    if not _SEMVER.fullmatch(version):
        raise ConfigError(f"--chart-version: {given!r} is no version such as 1.2.3 or 1.2.3-rc.1 (https://semver.org)")
    return version


def _of_tag(found: re.Match[str]) -> str:
    major, minor, patch, pre, distance, commit = found.groups()
    if distance == "0":
        return f"{major}.{minor}.{patch}{pre}"
    base = f"{major}.{minor}.{patch}{pre}" if pre else f"{major}.{minor}.{int(patch) + 1}"
    return f"{base}{'.' if pre else '-'}dev.{distance}+g{commit}"


def _image(given: str | None, documents: list[dict[str, Any]], default: str) -> tuple[str, str]:
    """Repository and tag; no tag: that of the chart's app."""
    image = given or next(_images(documents), "")
    if image in {"", "controller", "controller:latest"}:
        return default, ""
    if "@" in image:
        raise ConfigError(
            f"the image {image} is pinned by its digest, which a chart's tag cannot replace; give --image"
        )
    head, colon, tag = image.rpartition(":")
    return (head, tag) if colon and "/" not in tag else (image, "")


def _images(documents: list[dict[str, Any]]) -> Iterator[str]:
    for each in documents:
        if each.get("kind") == "Deployment":
            for container in each["spec"]["template"]["spec"]["containers"]:
                if container.get("name") == "manager":
                    yield container.get("image") or ""


def _replace(folder: Path, files: Files) -> None:
    """Put a chart in the place of the one before; anything else that stands there stays, and is an error."""
    if folder.exists() and any(folder.iterdir()) and not (folder / "Chart.yaml").is_file():
        raise ConfigError(f"{folder}: holds something that is no chart; name another folder by --output")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
        made = Path(temporary) / "chart"
        for path, text in files.items():
            (made / path).parent.mkdir(parents=True, exist_ok=True)
            (made / path).write_text(text, encoding="utf-8")
        if folder.exists():
            folder.rename(Path(temporary) / "before")
        made.rename(folder)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=_MINUTE)
