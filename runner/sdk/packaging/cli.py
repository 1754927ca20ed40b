"""`ansible-operator generate chart`, `generate bundle` and `generate manifests`.

Owns the arguments, their defaults, and the replacement of earlier output.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from runner.base.config import commands
from runner.base.config.commands import Subparsers
from runner.values.errors import ConfigError

if TYPE_CHECKING:
    Files = dict[PurePosixPath, str]

_PLACEHOLDERS = frozenset({"", "controller", "controller:latest"})
"""Placeholders for the image in config/."""
_CHART = """\
Write a Helm chart from the output of `kubectl kustomize config/default`: CRDs, RBAC, the operator's Deployment and
Service, and everything else in config/. Names, namespaces, image, replicas, resources, RBAC scope and metrics become
chart values. The last git tag (v1.2.3) sets the chart's version and app version."""
_BUNDLE = """\
Write an OLM bundle to bundle/ and bundle.Dockerfile from the output of `kubectl kustomize config/manifests`: the
ClusterServiceVersion with kinds, examples, permissions and Deployment, the CRDs, and the catalog metadata. Edit the
operator's description in config/manifests/bases; the first run creates it. `operator-sdk bundle validate` checks the
bundle by the rules of catalogs."""
_MANIFESTS = """\
Write the output of `kubectl kustomize config/default` for an operator that watches a few namespaces to standard output.
The operator gets a Role in each of these namespaces, and a ClusterRole only for cluster-scoped resources."""
_EXAMPLES = {
    "chart": "--chart-version 1.2.0",
    "bundle": "--bundle-version 1.2.0 --channels stable",
    "manifests": "--namespaces shop | kubectl apply -f -",
}


def add_commands(subparsers: Subparsers) -> None:
    """Add `chart`, `bundle` and `manifests` to the commands of `generate`."""
    chart = _command(subparsers, "chart", _chart, "write a Helm chart of the project", _CHART)
    chart.add_argument("--output", type=Path, metavar="FOLDER", help="output directory [dist/chart/NAME]")
    chart.add_argument("--chart-version", metavar="VERSION", help="chart version [the last git tag, or 0.0.1]")
    bundle = _command(subparsers, "bundle", _bundle, "write a bundle for OLM", _BUNDLE)
    bundle.add_argument("--bundle-version", metavar="VERSION", help="bundle version [the last git tag, or 0.0.1]")
    bundle.add_argument("--channels", default="alpha", metavar="NAMES", help="comma-separated channels [alpha]")
    bundle.add_argument("--default-channel", metavar="NAME", help="default channel [the first one]")
    bundle.add_argument(
        "--replaces", metavar="NAME", help="bundle that this one upgrades [the one in bundle/, if it is older]"
    )
    bundle.add_argument(
        "--skip-range", default="", metavar="RANGE", help="versions that can upgrade directly to this one"
    )
    manifests = _command(
        subparsers, "manifests", _manifests, "write manifests of an operator that watches some namespaces", _MANIFESTS
    )
    manifests.add_argument("--namespaces", required=True, metavar="NAMES", help="comma-separated namespaces; required")


def _command(subparsers: Subparsers, name: str, run: Any, text: str, description: str) -> argparse.ArgumentParser:
    parser = commands.add(subparsers, name, run, text, description, (_EXAMPLES[name],))
    parser.add_argument(
        "--manifests", metavar="FILE", help="read manifests from FILE instead of kustomize; - is standard input"
    )
    parser.add_argument("--image", metavar="IMAGE", help="operator image [the one in the manifests]")
    return parser


def _chart(arguments: argparse.Namespace) -> int:
    from runner.sdk.packaging import chart, deployments, manifests  # noqa: PLC0415 - help needs no YAML
    from runner.sdk.scaffold import project  # noqa: PLC0415 - the same
    from runner.sdk.scaffold.changeset import ChangeSet  # noqa: PLC0415 - the same

    known = project.read(ChangeSet(Path.cwd()))
    version = manifests.version(arguments.chart_version, "--chart-version")
    documents = manifests.read(arguments.manifests, "config/default")
    image = arguments.image or deployments.image(documents)
    repository, tag = _image(image, f"{known.domain}/{known.name}")
    files = chart.make(documents, chart.Release(known.name, version, version, repository, tag))
    output: Path = arguments.output or Path("dist/chart") / known.name
    if output.exists() and any(output.iterdir()) and not (output / "Chart.yaml").is_file():
        raise ConfigError(f"{output}: exists and contains no chart; choose another folder with --output")
    _replace(output, files)
    sys.stdout.write(f"{output}: {known.name} {version}, {len(files)} files\n")
    return 0


def _bundle(arguments: argparse.Namespace) -> int:
    from runner.sdk.packaging import bundle, deployments, descriptors, manifests  # noqa: PLC0415 - the same
    from runner.sdk.scaffold import project  # noqa: PLC0415 - the same
    from runner.sdk.scaffold.changeset import ChangeSet  # noqa: PLC0415 - the same

    known = project.read(ChangeSet(Path.cwd()))
    version = manifests.version(arguments.bundle_version, "--bundle-version")
    descriptors.ensure(known)
    channels = tuple(channel.strip() for channel in arguments.channels.split(",") if channel.strip())
    before = descriptors.name_before(known.name, version)
    documents = manifests.read(arguments.manifests, "config/manifests")
    image = arguments.image or deployments.image(documents)
    edition = bundle.BundleMetadata(
        known.name,
        version,
        channels,
        arguments.default_channel or (channels[0] if channels else ""),
        before if arguments.replaces is None else arguments.replaces,
        arguments.skip_range,
        f"{known.domain}/{known.name}:v{version}" if image in _PLACEHOLDERS else image,
        descriptors.created_at(),
    )
    csv, files = bundle.make(documents, edition)
    folder = PurePosixPath("bundle")
    _replace(Path("bundle"), {path.relative_to(folder): text for path, text in files.items() if folder in path.parents})
    Path("bundle.Dockerfile").write_text(files[PurePosixPath("bundle.Dockerfile")], encoding="utf-8")
    upgrades = f", upgrades {edition.replaces}" if edition.replaces else ""
    sys.stdout.write(f"bundle: {csv['metadata']['name']}, channels {', '.join(channels)}{upgrades}\n")
    return 0


def _manifests(arguments: argparse.Namespace) -> int:
    import yaml  # noqa: PLC0415 - the same

    from runner.base.yamlfile import edits  # noqa: PLC0415 - the same
    from runner.sdk.packaging import confined, deployments, manifests, scopes  # noqa: PLC0415 - the same

    documents = manifests.read(arguments.manifests, "config/default")
    made = confined.make(documents, scopes.namespaces(arguments.namespaces))
    if arguments.image:
        deployments.container(deployments.operators(made))["image"] = arguments.image
    yaml.dump_all(made, sys.stdout, edits.BlockDumper, sort_keys=False, allow_unicode=True, explicit_start=True)
    return 0


def _image(image: str, default: str) -> tuple[str, str]:
    """Return repository and tag. An empty tag is that of the chart's app."""
    if image in _PLACEHOLDERS:
        return default, ""
    if "@" in image:
        raise ConfigError(f"the image {image} is pinned by digest, which a chart's tag cannot replace; set --image")
    head, colon, tag = image.rpartition(":")
    return (head, tag) if colon and "/" not in tag else (image, "")


def _replace(folder: Path, files: Files) -> None:
    """Replace a folder of earlier output with these files."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
        made = Path(temporary) / "made"
        for path, text in files.items():
            (made / path).parent.mkdir(parents=True, exist_ok=True)
            (made / path).write_text(text, encoding="utf-8")
        if folder.exists():
            folder.rename(Path(temporary) / "before")
        made.rename(folder)
