"""`ansible-operator generate chart`, `generate bundle` and `generate manifests`.

Owns: the arguments, what stands for those that are not given, and how what was made before is replaced.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from runner.errors import ConfigError

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no public name for it
    Files = dict[PurePosixPath, str]

_PLACEHOLDERS = frozenset({"", "controller", "controller:latest"})
"""What stands for the image in config/."""
_CHART = """\
Write a Helm chart of what `kubectl kustomize config/default` gives: CRDs, rights, the operator, its Service, and
whatever was added to config/. Names, namespaces, image, replicas, resources, the scope of the rights and metrics become
values of the chart. Its versions are those of the last git tag (v1.2.3)."""
_BUNDLE = """\
Write a bundle for OLM to bundle/ and bundle.Dockerfile, of what `kubectl kustomize config/manifests` gives: the
ClusterServiceVersion with kinds, examples, rights and Deployment, the CRDs, and how catalogs list it. What people write
about the operator stands in config/manifests/bases, which is made the first time. The bundle is checked by the rules
that catalogs have; nothing is written where it breaks one."""

_MANIFESTS = """\
Write what `kubectl kustomize config/default` gives, for an operator that looks after a few namespaces: it has its
rights in these, by a Role in each, and none elsewhere but about what belongs to no namespace. To standard output."""


def add_commands(commands: Subparsers) -> None:
    """Add `chart`, `bundle` and `manifests` to the commands of `generate`."""
    chart = _command(commands, "chart", _chart, "write a Helm chart of the project", _CHART)
    chart.add_argument("--output", type=Path, metavar="FOLDER", help="where to [dist/chart/NAME]")
    chart.add_argument("--chart-version", metavar="VERSION", help="[that of the last git tag, or 0.0.1]")
    bundle = _command(commands, "bundle", _bundle, "write a bundle for OLM", _BUNDLE)
    bundle.add_argument("--bundle-version", metavar="VERSION", help="[that of the last git tag, or 0.0.1]")
    bundle.add_argument("--channels", default="alpha", metavar="NAMES", help="with commas between [alpha]")
    bundle.add_argument("--default-channel", metavar="NAME", help="[the first one]")
    bundle.add_argument(
        "--replaces", metavar="NAME", help="the bundle that this one upgrades [that in bundle/, if it is older]"
    )
    bundle.add_argument("--skip-range", default="", metavar="RANGE", help="versions that may go to this one at once")
    manifests = _command(
        commands, "manifests", _manifests, "write the manifests of an operator of single namespaces", _MANIFESTS
    )
    manifests.add_argument("--namespaces", required=True, metavar="NAMES", help="which to watch, with commas between")


def _command(commands: Subparsers, name: str, run: Any, text: str, description: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=text,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--manifests", metavar="FILE", help="manifests to use instead of kustomize's; - is standard input"
    )
    parser.add_argument("--image", metavar="IMAGE", help="the operator's image [that of the manifests]")
    parser.set_defaults(func=run)
    return parser


def _chart(arguments: argparse.Namespace) -> int:
    from runner.packaging import chart, manifests  # noqa: PLC0415 - help needs no YAML

    known = manifests.known_project()
    version = manifests.version(arguments.chart_version, "--chart-version")
    documents = manifests.read(arguments.manifests, "config/default")
    image = arguments.image or next(manifests.images(documents), "")
    repository, tag = _image(image, f"{known.domain}/{known.name}")
    files = chart.make(documents, chart.Release(known.name, version, version, repository, tag))
    output: Path = arguments.output or Path("dist/chart") / known.name
    if output.exists() and any(output.iterdir()) and not (output / "Chart.yaml").is_file():
        raise ConfigError(f"{output}: holds something that is no chart; name another folder by --output")
    _replace(output, files)
    sys.stdout.write(f"{output}: {known.name} {version}, {len(files)} files\n")
    return 0


def _bundle(arguments: argparse.Namespace) -> int:
    from runner.packaging import bundle, bundle_rules, csv_base, manifests  # noqa: PLC0415 - the same

    known = manifests.known_project()
    version = manifests.version(arguments.bundle_version, "--bundle-version")
    base = csv_base.ensure(known)
    channels = tuple(each.strip() for each in arguments.channels.split(",") if each.strip())
    before = csv_base.name_before(known.name, version)
    documents = manifests.read(arguments.manifests, "config/manifests")
    image = arguments.image or next(manifests.images(documents), "")
    edition = bundle.Edition(
        known.name,
        version,
        channels,
        arguments.default_channel or (channels[0] if channels else ""),
        before if arguments.replaces is None else arguments.replaces,
        arguments.skip_range,
        f"{known.domain}/{known.name}:v{version}" if image in _PLACEHOLDERS else image,
        csv_base.created_at(),
    )
    made, files = bundle.make(documents, edition)
    problems = bundle_rules.check(made)
    if problems:
        raise ConfigError("\n".join([f"the bundle would be refused, so it was not written; see {base}", *problems]))
    folder = PurePosixPath("bundle")
    _replace(Path("bundle"), {path.relative_to(folder): text for path, text in files.items() if folder in path.parents})
    Path("bundle.Dockerfile").write_text(files[PurePosixPath("bundle.Dockerfile")], encoding="utf-8")
    upgrades = f", upgrades {edition.replaces}" if edition.replaces else ""
    sys.stdout.write(f"bundle: {made.csv['metadata']['name']}, channels {', '.join(channels)}{upgrades}\n")
    return 0


def _manifests(arguments: argparse.Namespace) -> int:
    import yaml  # noqa: PLC0415 - the same

    from runner.packaging import confined, deployments, manifests, scopes  # noqa: PLC0415 - the same

    documents = manifests.read(arguments.manifests, "config/default")
    made = confined.make(documents, scopes.namespaces(arguments.namespaces))
    if arguments.image:
        deployments.container(deployments.operators(made))["image"] = arguments.image
    yaml.safe_dump_all(made, sys.stdout, sort_keys=False, allow_unicode=True, explicit_start=True)
    return 0


def _image(image: str, default: str) -> tuple[str, str]:
    """Repository and tag; no tag: that of the chart's app."""
    if image in _PLACEHOLDERS:
        return default, ""
    if "@" in image:
        raise ConfigError(
            f"the image {image} is pinned by its digest, which a chart's tag cannot replace; give --image"
        )
    head, colon, tag = image.rpartition(":")
    return (head, tag) if colon and "/" not in tag else (image, "")


def _replace(folder: Path, files: Files) -> None:
    """Put files in the place of the folder that was made before."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
        made = Path(temporary) / "made"
        for path, text in files.items():
            (made / path).parent.mkdir(parents=True, exist_ok=True)
            (made / path).write_text(text, encoding="utf-8")
        if folder.exists():
            folder.rename(Path(temporary) / "before")
        made.rename(folder)
