"""Sources of a project's manifests, and its version by git and https://semver.org."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from runner.base.yamlfile import edits
from runner.sdk.devcluster.cluster import find_kubectl
from runner.values.errors import ConfigError
from runner.values.objects import mapping

_SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?")
_Key = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]


def key(text: str) -> _Key:
    """Return the sort key of a version. A version with a suffix is lower than the same version without one.

    Raises:
        ValueError: `text` is not a version.
    """
    match = _SEMVER.fullmatch(text)
    if match is None:
        raise ValueError(text)
    parts = (match[4] or "").split(".") if match[4] else []
    suffix = tuple((not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts)
    return int(match[1]), int(match[2]), int(match[3]), not parts, suffix


Json = dict[str, Any]

_TAG = re.compile(r"v?(\d+)\.(\d+)\.(\d+)((?:-[0-9A-Za-z.-]+?)?)-(\d+)-g([0-9a-f]+)")
_MINUTE = 60


def read(file: str | None, folder: str) -> list[Json]:
    """Return the documents of a file, of standard input (`-`), or of the output of kustomize for a folder."""
    try:
        documents = [document for document in yaml.load_all(_text(file, folder), edits.Loader) if document]
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{file or folder}: invalid YAML: {error}") from None
    if problem := next(filter(None, map(_problem, documents)), ""):
        raise ConfigError(f"{file or folder}: {problem}")
    return documents


def _problem(document: Any) -> str:
    """Return which field of a manifest is missing that a package depends on; empty if none is."""
    name, kind = mapping(mapping(document).get("metadata")).get("name"), mapping(document).get("kind")
    if not name or not kind:
        return f"found {kind or 'a document'} without {'metadata.name' if kind else 'kind'}; remove it, or complete it"
    is_bound = {"kind", "name"} <= mapping(document.get("roleRef")).keys()
    return "" if is_bound or not str(kind).endswith("RoleBinding") else f"{kind} {name} has no roleRef.kind and name"


def version(given: str | None, flag: str) -> str:
    """Return the version: `given`, or that of the last tag. Between tags, it is lower than the next patch version."""
    if given is None:
        tag = _TAG.fullmatch(git("describe", "--tags", "--long", "--match", "v[0-9]*"))
        return "0.0.1" if tag is None else _of_tag(tag)
    plain = given.removeprefix("v")
    if _SEMVER.fullmatch(plain) is None:
        raise ConfigError(f"{flag}: invalid version {given!r}; use a semantic version such as 1.2.3 or 1.2.3-rc.1")
    return plain


def git(*arguments: str) -> str:
    """Return the output of git without the final newline; empty if git fails."""
    program = shutil.which("git")
    done = _run([program, *arguments]) if program else None
    return done.stdout.strip() if done and done.returncode == 0 else ""


def _text(file: str | None, folder: str) -> str:
    if file == "-":
        return sys.stdin.read()
    if file:
        try:
            return Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {file}: {getattr(error, 'strerror', error)}") from None
    if not Path(folder).is_dir():
        raise ConfigError(
            f"no folder {folder} in {Path.cwd()}; run the command in a project's folder, or set --manifests"
        )
    named = os.environ.get("KUBECTL")
    kubectl = shutil.which(named) if named else find_kubectl(os.environ)
    if kubectl is None:
        raise ConfigError(
            f"{named or 'kubectl'} is not in PATH; install it, run `ansible-operator cluster build`, or set "
            "--manifests to the output of `kustomize build`"
        )
    done = _run([str(kubectl), "kustomize", folder])
    if done.returncode:
        raise ConfigError(f"`kubectl kustomize {folder}` failed: {done.stderr.strip()}")
    return done.stdout


def _of_tag(tag: re.Match[str]) -> str:
    major, minor, patch, pre, distance, commit = tag.groups()
    if distance == "0":
        return f"{major}.{minor}.{patch}{pre}"
    base = f"{major}.{minor}.{patch}{pre}" if pre else f"{major}.{minor}.{int(patch) + 1}"
    return f"{base}{'.' if pre else '-'}dev.{distance}+g{commit}"


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=_MINUTE)
    except subprocess.TimeoutExpired:
        name = f"{Path(command[0]).name} {' '.join(command[1:])}"
        raise ConfigError(f"`{name}` did not end within {_MINUTE} s; check access to remote bases") from None
