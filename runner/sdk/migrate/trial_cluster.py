"""Comparable objects of a trial run, and Python environments with other versions of ansible-core for it."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from pathlib import Path
from typing import Any, TypeAlias

from runner.base.config.locks import FileLock
from runner.sdk.devcluster import folders
from runner.values.errors import OperatorError

Leaves: TypeAlias = Mapping[str, Any]
"""Values of an object by path."""
Objects: TypeAlias = Mapping[str, Leaves]
"""Objects by `Kind/name`."""

_OF_THE_CLUSTER = {
    *("Endpoints", "EndpointSlice", "Event", "Lease", "ReplicaSet", "ControllerRevision", "PodMetrics"),
}
"""Kinds that controllers of the cluster write."""
_CONTROLLERS = {"apps", "batch"}
"""API groups whose objects own objects that controllers of the cluster create."""
_DEFAULTS = {"ServiceAccount/default", "ConfigMap/kube-root-ca.crt"}
_METADATA = {"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink", "namespace"}
_ASSIGNED = {"clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort", "volumeName", "nodeName"}
"""Fields of a spec with values that the cluster chooses."""


def normalised(objects: Iterable[Mapping[str, Any]]) -> Objects:
    """Return the objects without what differs from run to run: status, identities, chosen values, data of Secrets."""
    leaves: dict[str, Leaves] = {}
    for obj in objects:
        metadata = obj.get("metadata", {})
        name = f"{obj.get('kind')}/{metadata.get('name')}"
        groups = {str(owner.get("apiVersion")).partition("/")[0] for owner in metadata.get("ownerReferences", ())}
        if obj.get("kind") in _OF_THE_CLUSTER or name in _DEFAULTS or groups & _CONTROLLERS:
            continue
        content = {key: value for key, value in obj.items() if key != "status"}
        content["metadata"] = {key: value for key, value in metadata.items() if key not in _METADATA}
        if obj.get("kind") == "Secret":
            content["data"] = dict.fromkeys(obj.get("data") or {}, "…")
        leaves[name] = dict(_leaves(content, ""))
    return leaves


def differences(first: Objects, second: Objects) -> list[str]:
    """Return the paths at which two sets of objects differ, as `Kind/name: path`; without a path, the whole object."""
    differing = sorted(first.keys() ^ second.keys())
    for name in sorted(first.keys() & second.keys()):
        paths = first[name].keys() | second[name].keys()
        differing += [f"{name}: {path}" for path in sorted(paths) if first[name].get(path) != second[name].get(path)]
    return differing


def _leaves(value: Any, path: str) -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            if key not in _ASSIGNED and not (path.endswith("ownerReferences[0]") and key == "uid"):
                yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    else:
        yield path, value


_PACKAGE = "ansible-operator-runner"
_CORE = "ansible-core"
_PATIENCE = 900.0
_FIRST_PYTHON = {"2.20": (3, 12), "2.21": (3, 12)}
"""First Python of an ansible-core; others run on every Python that this package supports."""


def python_of(core: str, environ: Mapping[str, str], say: Callable[[str], None]) -> Path:
    """Return the interpreter of an environment with this ansible-core; make the environment if necessary.

    Raises:
        OperatorError: this Python cannot run it, or its packages cannot be installed.

    An environment contains the dependencies of this package in the installed versions, and a link to the package
    itself.
    """
    if version(_CORE).startswith(f"{core}."):
        return Path(sys.executable)
    first = _FIRST_PYTHON.get(core, (3, 11))
    if sys.version_info[:2] < first:
        raise OperatorError(f"ansible-core {core} requires Python {'.'.join(map(str, first))} or later")
    needed = [f"{_CORE}~={core}.0", *_dependencies()]
    source = Path(__file__).parents[2]
    digest = hashlib.sha256("\n".join([sys.executable, str(source), *needed]).encode()).hexdigest()[:12]
    folder = folders.binaries(environ).with_name("migrate") / f"core-{core}-{digest}"
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    if not lock.acquire(_PATIENCE):
        raise OperatorError(f"another process has been making {folder} for {_PATIENCE:.0f} s; try again later")
    try:
        if not (folder / "complete").exists():
            say(f"Installing ansible-core {core} into {folder}")
            shutil.rmtree(folder, ignore_errors=True)
            _make(folder, needed, source, environ)
            (folder / "complete").touch()
    finally:
        lock.release()
    return folder / "bin/python"


def _dependencies() -> list[str]:
    """Return the dependencies of this package, but ansible-core, in the installed versions."""
    requirements = []
    for requirement in requires(_PACKAGE) or ():
        matched = re.match(r"[A-Za-z0-9._-]+", requirement)
        name = matched[0] if matched else ""
        if name and name != _CORE and ";" not in requirement:
            try:
                requirements.append(f"{name}=={version(name)}")
            except PackageNotFoundError:
                requirements.append(requirement)
    return sorted(requirements)


def _make(folder: Path, needed: Sequence[str], source: Path, environ: Mapping[str, str]) -> None:
    python = str(folder / "bin/python")
    uv = shutil.which("uv", path=environ.get("PATH")) or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv:
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
        _run([uv, "pip", "install", "--quiet", "--python", python, *needed])
    else:
        _run([sys.executable, "-P", "-m", "venv", str(folder)])
        _run([python, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *needed])
    (packages,) = folder.glob("lib/python3.*/site-packages")
    (packages / source.name).symlink_to(source, target_is_directory=True)
    # The metadata of this package: the operator reads its version and its entry points there.
    metadata = packages / f"{_PACKAGE.replace('-', '_')}-{version(_PACKAGE)}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(distribution(_PACKAGE).read_text("METADATA") or "", encoding="utf-8")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise OperatorError(f"`{' '.join(command[:4])} …` failed: {done.stderr.strip() or done.stdout.strip()}")
