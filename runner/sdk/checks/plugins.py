"""Plugins that files name and that do not exist: modules, filters, tests and lookups.

Most names have a file in ansible-core or in their collection. Ansible's own loaders decide about other names, in a
process with the environment of runs, which imports no file of the project. A collection that is not installed is
unknown: a warning names it once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from runner.base.config import paths
from runner.base.config.paths import SearchPath
from runner.base.yamlfile.tree import Problem, Problems
from runner.compatibility import core_changes, task_fields, unsupported
from runner.compatibility.validation import missing_collection
from runner.sdk.checks.templates import Scan, Use
from runner.values.errors import meant

_BUILT_IN = ("ansible.builtin", "ansible.legacy")
_FOLDERS = {
    "module": ("modules", "plugins/modules", "plugins/action"),
    "filter": ("plugins/filter",),
    "test": ("plugins/test",),
    "lookup": ("plugins/lookup",),
}
"""Folders of ansible-core or of a collection, by kind of plugin."""
_SUFFIXES = (".py", ".yml", ".yaml")
_LONGEST = 60.0
"""Seconds in which Ansible's loaders find the plugins."""


def report(scan: Scan, places: SearchPath, cwd: Path, environ: Mapping[str, str], problems: Problems) -> None:
    """Add errors of plugins that do not exist, and warnings about collections that are not installed."""
    doubtful = [use for use in dict.fromkeys(scan.uses) if not _is_known(use, places)]
    if not doubtful:
        return
    try:
        searched = _ask(doubtful, scan.roots, places, cwd, environ)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        cause = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1:]
        names = ", ".join(dict.fromkeys(use.name for use in doubtful))
        message = f"cannot check whether these plugins exist: {names}: ansible-core fails: {' '.join(cause)}"
        problems.warnings.append(Problem(doubtful[0].file, doubtful[0].line, "", message))
        return
    for use, name in zip(doubtful, searched, strict=True):
        collection = _collection(name or "")
        if name and collection not in {"", *_BUILT_IN} and paths.find_collection(collection, places).path is None:
            if not any(f"collection {collection} not found" in problem.message for problem in problems.warnings):
                sentence = missing_collection(use.name, collection, places)
                problems.warnings.append(Problem(use.file, use.line, "", sentence))
        elif name and use.kind == "filter" and _is_known(use._replace(kind="test"), places):
            message = f"{name} is a test, which Ansible does not accept as a filter: write `is {name}`"
            problems.warnings.append(Problem(use.file, use.line, "", message))
        elif name:
            problems.errors.append(Problem(use.file, use.line, "", _message(use, name, collection, places)))


def _is_known(use: Use, places: SearchPath) -> bool:
    """Return whether a plugin has a file with its name, or another check reports it."""
    if use.kind == "module" and (unsupported.is_reported(use.name) or any(_files(use.libraries, (".",), use.name))):
        return True
    collection = _collection(use.name)
    collections = [collection] if collection else ["ansible.builtin", *use.collections]
    short = use.name.removeprefix(f"{collection}.")
    return any(any(_files(_roots(name, places), _FOLDERS[use.kind], short)) for name in collections)


def _files(roots: Iterable[Path], folders: Sequence[str], name: str) -> Iterable[Path]:
    files = (root / folder / name.replace(".", "/") for root in roots for folder in folders)
    return (path for file in files for path in map(file.with_suffix, _SUFFIXES) if path.is_file())


def _roots(collection: str, places: SearchPath) -> list[Path]:
    """Return the folder of a collection, or of ansible-core; none if it is not installed."""
    if collection in _BUILT_IN:
        spec = find_spec("ansible")
        return [Path(folder) for folder in (spec.submodule_search_locations if spec else None) or ()]
    path = paths.find_collection(collection, places).path
    return [path] if path else []


def _collection(name: str) -> str:
    parts = name.split(".")
    return ".".join(parts[:2]) if len(parts) > 2 else ""  # noqa: PLR2004 - namespace, collection and name


def _ask(
    uses: Sequence[Use], folders: Iterable[Path], places: SearchPath, cwd: Path, environ: Mapping[str, str]
) -> list[str | None]:
    """Return for each plugin the name that Ansible searched without success; None if it exists."""
    given = {
        "project": str(cwd),
        "collections": [str(root.parent) for root in places.collections],
        "folders": sorted(map(str, folders)),
        "names": [[use.kind, use.name, use.collections] for use in uses],
    }
    done = subprocess.run(
        [sys.executable, "-m", "runner.sdk.checks.loader"],
        input=json.dumps(given),
        env={**environ, **paths.ansible_environment(places, environ, cwd), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=_LONGEST,
        check=True,
    )
    answers: list[str | None] = json.loads(done.stdout)
    return answers


def _message(use: Use, name: str, collection: str, places: SearchPath) -> str:
    prefix = f"{collection}." if collection else ""
    short = name.removeprefix(prefix)
    version = core_changes.installed_version(collection, places) if collection else None
    where = f" in {collection} {'.'.join(map(str, version))}" if version else ""
    files = [path for root in places.collections for path in root.glob(f"*/*/plugins/{use.kind}*/{short}.py")]
    others = {f"{path.parts[-5]}.{path.parts[-4]}.{short}" for path in files}
    if others:
        best = min(others, key=lambda full: (not full.startswith("kubernetes.core."), full))
        return f"no {use.kind} {use.name!r}{where}; did you mean {best}?"
    collections = [collection] if collection else ["ansible.builtin", *use.collections]
    roots = [root for name in collections for root in _roots(name, places)]
    known = {path.stem for root in roots for folder in _FOLDERS[use.kind] for path in (root / folder).glob("[a-z]*.*")}
    known |= {path.stem for folder in use.libraries for path in folder.glob("*.py")} if use.kind == "module" else set()
    keywords = task_fields.KEYWORDS if use.kind == "module" and not collection else frozenset()
    return f"no {use.kind} {use.name!r}{where}{meant(short, [*known, *keywords], prefix)}"
