"""Container images for a development cluster, which has no registry.

`archive` accepts a docker or OCI archive, an OCI layout, a directory with a Dockerfile, or the name of an image in
a container tool. It writes an archive that containerd imports under complete image names.

Raises `ConfigError` for invalid input, and `ClusterError` if a container tool is missing or fails.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from runner.values.errors import ClusterError, ConfigError

MANIFEST, INDEX, LAYOUT = "manifest.json", "index.json", "oci-layout"
_DOCKERFILES = ("Dockerfile", "Containerfile")
_CONTAINERD_NAME, _OCI_NAME = "io.containerd.image.name", "org.opencontainers.image.ref.name"
_PROBE_WITHIN = 30.0

_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:(?P<first>[A-Za-z0-9][A-Za-z0-9._-]*(?::[0-9]+)?)/)?(?P<path>{_PART}(?:/{_PART})*)"
    r"(?P<tag>:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
)


@dataclass(frozen=True, slots=True)
class ContainerTool:
    """A program that builds and stores images; `save` returns its arguments that write an image into a file."""

    name: str
    save: Callable[[str, Path], Sequence[str]]


TOOLS = (
    ContainerTool("docker", lambda image, file: ("save", f"--output={file}", image)),
    ContainerTool(
        "podman", lambda image, file: ("save", "--quiet", "--format=docker-archive", f"--output={file}", image)
    ),
    ContainerTool("buildah", lambda image, file: ("push", "--quiet", image, f"docker-archive:{file}")),
)
"""In the order of preference, as in the Makefile of a project."""


def archive(source: str, tag: str | None, folder: Path, environ: Mapping[str, str], progress: TextIO) -> Path:
    """Write the images of `source` into an archive in `folder`, and return its path.

    `tag` is the image's name in the cluster. It is required if `source` contains no name. `progress` receives the
    output of builds.
    """
    name = None if tag is None else full_name(tag)
    source_path, path = Path(source), Path(source)
    if source_path.is_dir() and not (source_path / LAYOUT).exists():
        path = _build(source_path, name, folder / "saved.tar", environ, progress)
    elif not source_path.exists():
        path = _find(source, folder / "saved.tar", environ)
        name = name or full_name(source)
    target = folder / "images.tar"
    try:
        archived = _packed(path, folder / "layout.tar") if path.is_dir() else path
        with _opened(archived) as content:
            indexes = _indexes(content, path if path.is_dir() else Path())
            _check(content.getnames(), indexes, path)
            _write(content, _named(indexes, name, source), target)
    except (OSError, tarfile.TarError, zlib.error, EOFError) as error:
        raise ConfigError(f"cannot read the image {source}: {error}") from error
    if archived != source_path:
        archived.unlink()
    return target


def full_name(image: str) -> str:
    """Return an image name with registry and tag, as the kubelet completes it. Raises ConfigError if it is invalid."""
    match = _IMAGE.fullmatch(image)
    if match is None:
        raise ConfigError(f"invalid image name {image!r}: use a name with a tag such as example.com/shop-operator:v1")
    first, path = match["first"], match["path"]
    if first is None:
        return f"docker.io/library/{path}{match['tag'] or ':latest'}"
    is_registry = "." in first or ":" in first or first == "localhost"
    return f"{'' if is_registry else 'docker.io/'}{first}/{path}{match['tag'] or ':latest'}"


def working_tools(environ: Mapping[str, str]) -> list[ContainerTool]:
    """Return the tools that work, first the one of $CONTAINER_TOOL. A docker client without an engine does not work."""
    preferred = environ.get("CONTAINER_TOOL")
    ordered = sorted(TOOLS, key=lambda tool: tool.name != preferred)
    return [tool for tool in ordered if _succeeds([tool.name, "version"], environ)]


def _build(folder: Path, name: str | None, target: Path, environ: Mapping[str, str], progress: TextIO) -> Path:
    if not any((folder / dockerfile).exists() for dockerfile in _DOCKERFILES):
        raise ConfigError(
            f"{folder} contains neither {LAYOUT} nor a Dockerfile: "
            "use an image archive, an OCI layout, or a directory with a Dockerfile"
        )
    if name is None:
        raise ConfigError(f"the image of {folder} has no name: add an option such as --tag=shop-operator:v1")
    tools = working_tools(environ)
    if not tools:
        raise _missing_tool(f"cannot build {folder}")
    command = [tools[0].name, "build", "--tag", name, str(folder)]
    done = subprocess.run(
        command, env=_settings(environ), check=False, stdin=subprocess.DEVNULL, stdout=progress, stderr=progress
    )
    if done.returncode:
        raise ClusterError(f"`{shlex.join(command)}` failed with exit code {done.returncode}; see its output above")
    return _save(tools[0], name, target, environ)


def _find(image: str, target: Path, environ: Mapping[str, str]) -> Path:
    """Save an image of the first tool that has it."""
    if _IMAGE.fullmatch(image) is None:
        raise ConfigError(f"{image}: no such file or directory")
    tools = working_tools(environ)
    for tool in tools:
        if _succeeds([tool.name, "inspect", "--type=image", image], environ):
            return _save(tool, image, target, environ)
    if not tools:
        raise _missing_tool(f"{image} is not a file")
    raise ConfigError(
        f"{image}: no such file or directory, and no image of {' or '.join(tool.name for tool in tools)}; "
        "build it first, for example with `make docker-build`"
    )


def _save(tool: ContainerTool, image: str, target: Path, environ: Mapping[str, str]) -> Path:
    command = [tool.name, *tool.save(image, target)]
    done = subprocess.run(command, env=environ, check=False, text=True, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode:
        raise ClusterError(f"`{shlex.join(command)}` failed: {done.stderr.strip()}")
    return target


def _settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a build: in a chroot, buildah needs no container runtime."""
    return {"BUILDAH_ISOLATION": "chroot", **environ}


def _succeeds(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    try:
        done = subprocess.run(
            command, env=environ, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_WITHIN
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _missing_tool(problem: str) -> ClusterError:
    return ClusterError(
        f"{problem}: none of {', '.join(tool.name for tool in TOOLS)} works on this machine. "
        "Start the Docker engine, or install buildah (Debian: apt-get install buildah)"
    )


def _packed(layout: Path, target: Path) -> Path:
    """Write an archive of an OCI layout, and return its path."""
    with tarfile.open(target, "w", dereference=True) as packed:
        for name in (LAYOUT, INDEX, "blobs"):
            if (layout / name).exists():
                packed.add(layout / name, name)
    return target


def _opened(path: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(path)
    except tarfile.ReadError as error:
        raise ConfigError(f"{path} is not a tar archive: create one with `docker save` or `buildah push`") from error


def _indexes(content: tarfile.TarFile, folder: Path) -> dict[str, Any]:
    """Return the parsed index files of an archive. Messages name them in `folder`."""
    members = {member.name: member for member in content}
    files = {name: content.extractfile(members[name]) for name in (MANIFEST, INDEX) if name in members}
    return {name: _parsed(file.read(), folder / name) for name, file in files.items() if file is not None}


def _parsed(text: bytes, where: object) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{where} of the image is not valid JSON: {error}") from error


def _check(files: Iterable[str], indexes: Mapping[str, Any], path: Path) -> None:
    """Raise ConfigError if an archive lacks a file of its indexes, or has no image."""
    try:
        needed = [
            *(name for image in indexes.get(MANIFEST, ()) for name in (image["Config"], *image["Layers"])),
            *(f"blobs/{manifest['digest'].replace(':', '/')}" for manifest in _manifests(indexes)),
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is not an image archive: {MANIFEST} or {INDEX} lacks {error}") from error
    if not needed:
        raise ConfigError(
            f"{path} contains no image: it has neither images in {MANIFEST} (docker) nor in {INDEX} (OCI)"
        )
    present = frozenset(files)
    missing = [name for name in needed if name not in present]
    if missing:
        raise ConfigError(f"{path} is incomplete: {missing[0]} is missing; create it again")


def _manifests(indexes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(indexes.get(INDEX, {}).get("manifests") or ())


def _named(indexes: Mapping[str, Any], name: str | None, source: str) -> dict[str, Any]:
    """Return the index files with full image names: `name`, otherwise those that they contain."""
    manifests = _manifests(indexes)
    count = max(len(indexes.get(MANIFEST, ())), len({manifest["digest"] for manifest in manifests}))
    if name is not None and count > 1:
        raise ConfigError(f"{source} contains {count} images: omit --tag, which names a single one")
    named: dict[str, Any] = {}
    full_names: list[str] = []
    if MANIFEST in indexes:
        images = []
        for image in indexes[MANIFEST]:
            tags = [name] if name else [full_name(tag) for tag in image.get("RepoTags") or ()]
            images.append({**image, "RepoTags": tags})
            full_names += tags
        named[MANIFEST] = images
    if INDEX in indexes:
        tagged = []
        for manifest in manifests[:1] if name else manifests:
            annotations = dict(manifest.get("annotations") or {})
            tag = name or _tag_of(annotations)
            if tag:
                annotations[_CONTAINERD_NAME] = tag
                full_names.append(tag)
            tagged.append({**manifest, "annotations": annotations})
        named[INDEX] = {**indexes[INDEX], "manifests": tagged}
    if not full_names:
        raise ConfigError(f"the image of {source} has no name: add an option such as --tag=shop-operator:v1")
    return named


def _tag_of(annotations: Mapping[str, str]) -> str | None:
    """Return the full name in a manifest's annotations; a tag alone, such as `latest`, is not a name."""
    if _CONTAINERD_NAME in annotations:
        return full_name(annotations[_CONTAINERD_NAME])
    name = annotations.get(_OCI_NAME, "")
    return full_name(name) if re.search("[:/]", name) else None


def _write(content: tarfile.TarFile, indexes: Mapping[str, Any], target: Path) -> None:
    """Copy an archive uncompressed, with other index files."""
    with tarfile.open(target, "w") as archived:
        for member in content:
            if member.name in indexes:
                text = json.dumps(indexes[member.name]).encode()
                member.size = len(text)
                archived.addfile(member, io.BytesIO(text))
            else:
                archived.addfile(member, content.extractfile(member) if member.isreg() else None)
