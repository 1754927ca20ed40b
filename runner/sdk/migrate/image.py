"""Places in the image of a project's files, as `COPY` and `ADD` of its Dockerfiles define them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from runner.base.config.paths import IMAGE, NO_IMAGE, ImageFiles
from runner.sdk.migrate import dockerfile
from runner.sdk.migrate.dockerfile import Dockerfile

_NAMES = ("Dockerfile*", "Containerfile*", "*.Dockerfile", "*.dockerfile")
_FOREIGN = {"node_modules", "vendor", "venv", "molecule", "site-packages", "ansible_collections"}
"""Folders whose files are not those of the operator."""
_ROLES = (IMAGE / "roles", IMAGE / ".ansible/roles", Path("/usr/share/ansible/roles"), Path("/etc/ansible/roles"))
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")


def own_files(patterns: Collection[str]) -> list[Path]:
    """Return the files of the working directory with such names, also in folders, without those of other projects."""
    paths: list[Path] = []
    for folder, folders, names in os.walk("."):
        folders[:] = [name for name in folders if name not in _FOREIGN and not name.startswith(".")]
        paths += [Path(folder, name) for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
    return sorted(path for path in paths if path.is_file())


def dockerfiles() -> tuple[Dockerfile, ...]:
    """Return all Dockerfiles below the working directory."""
    texts = ((path, path.read_text(encoding="utf-8", errors="replace")) for path in own_files(_NAMES))
    return tuple(dockerfile.parse(str(path), text) for path, text in texts)


def files(all_dockerfiles: Iterable[Dockerfile], watches_file: Path) -> ImageFiles:
    """Return the places of the files of the working directory in the image of a watches file."""
    root, environments = Path.cwd(), [(parsed, dict(_environment(parsed))) for parsed in all_dockerfiles]
    images = [(variables, list(_copies(parsed, variables, root))) for parsed, variables in environments]
    watches_path = (root / watches_file).resolve()
    own = [image for image in images if any(watches_path == path.resolve() for _, path in image[1])] or images
    beside = [(IMAGE, watches_path.parent)] if watches_path.parent != root.resolve() else []
    pairs = [*beside, *(pair for _, copies in own for pair in copies)]
    if not pairs:
        return NO_IMAGE
    entries = [entry for variables, _ in own for entry in variables.get("ANSIBLE_ROLES_PATH", "").split(":") if entry]
    roles = [place for entry in entries for place in (Path(entry), Path(entry) / "roles")]
    return ImageFiles(root, tuple(dict.fromkeys(pairs)), tuple(dict.fromkeys((*roles, *_ROLES))))


def stage(files: ImageFiles, folder: Path) -> Path:
    """Return a folder with the files in the places of the image: the project's, unless a Dockerfile copies elsewhere.

    Roles outside the image's folder of the project are in `roles`.
    """
    if all(to.is_relative_to(IMAGE) and files.root / to.relative_to(IMAGE) == source for to, source in files.copies):
        return Path.cwd()
    for to, source in files.copies:
        root = next((place for place in (IMAGE, *files.roles) if to.is_relative_to(place)), None)
        if root is None:
            continue
        target = (folder if root == IMAGE else folder / "roles") / to.relative_to(root)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git"))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    return folder


def _environment(parsed: Dockerfile) -> Iterator[tuple[str, str]]:
    """Yield the variables of a Dockerfile that its paths can contain."""
    known = {"HOME": str(IMAGE)}
    yield "HOME", known["HOME"]
    for instruction in parsed.instructions:
        words = (
            (word for _, word in dockerfile.assignments(instruction))
            if instruction.name == "ENV"
            else (instruction.value,)
        )
        for word in words if instruction.name in {"ENV", "ARG"} else ():
            name, equals, value = word.partition("=")
            if equals:
                known[name] = _expanded(value.strip("\"'"), known)
                yield name, known[name]


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda match: variables.get(match[1] or match[3], match[2] or ""), text)


def _copies(parsed: Dockerfile, variables: Mapping[str, str], root: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each path in the image, and the file or folder that is copied there."""
    context = _context(parsed, variables, root)
    folders = {
        instruction.first: _expanded(instruction.value, variables)
        for instruction in parsed.instructions
        if instruction.name == "WORKDIR"
    }
    for instruction, sources, target in dockerfile.copies(parsed):
        place = IMAGE
        for line, folder in folders.items():
            place = place / folder if line < instruction.first else place
        to = place / _expanded(target, variables)
        paths = [path for source in sources for path in _matching(context, _expanded(source, variables))]
        is_folder = target.endswith("/") or to in {IMAGE, place} or len(paths) > 1
        for path in paths:
            yield Path(os.path.normpath(to / path.name if path.is_file() and is_folder else to)), path


def _context(parsed: Dockerfile, variables: Mapping[str, str], root: Path) -> Path:
    """Return the folder from which the image is built: the first above the Dockerfile that has all files it copies."""
    sources = [_expanded(name, variables) for _, names, _ in dockerfile.copies(parsed) for name in names]
    folder = (root / parsed.file).parent
    above = [parent for parent in (folder, *folder.parents) if parent.is_relative_to(root)]
    return next((parent for parent in above if all(_matching(parent, source) for source in sources)), root)


def _matching(context: Path, source: str) -> list[Path]:
    pattern = os.path.normpath(source.lstrip("/") or ".")
    if any(mark in pattern for mark in "*?["):
        return sorted(context.glob(pattern))
    path = context / pattern
    return [path] if path.exists() else []
