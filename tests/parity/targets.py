"""Integration targets of ansible-core: those of the source distribution of the installed version.

A target that is a role becomes a playbook with that role, as ansible-test makes it. Of a target that is a script, each
line that starts `ansible-playbook` with nothing but playbooks and an inventory is a case. `excluded.yml` has the
targets that are left out, with reasons.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TextIO

import yaml

from runner.base.config import locks
from runner.sdk.devcluster import folders

HERE = Path(__file__).parent
_PINNED = "ansible-core=="
_INVENTORY = re.compile(r"^(\.\./\.\./)?inventory[\w.-]*$")


@dataclass(frozen=True, slots=True)
class Excluded:
    """What is left out, each with its reason."""

    aliases: Mapping[str, str]
    """Beginnings of a target's aliases."""
    names: Mapping[str, str]
    """Beginnings of a target's name."""
    although: frozenset[str]
    """Targets that are run although an alias says otherwise."""
    cases: Mapping[str, str]
    """Targets, and single playbooks of theirs (`target/playbook.yml`)."""
    starting_ansible: frozenset[str]
    """Targets that start programs of Ansible."""

    @classmethod
    def read(cls) -> Excluded:
        """Read the list."""
        found = yaml.safe_load((HERE / "excluded.yml").read_text(encoding="utf-8"))
        sets = {name: frozenset(found[name]) for name in ("although", "starting_ansible")}
        return cls(aliases=found["aliases"], names=found["names"], cases=found["cases"], **sets)

    def reason(self, target: Path, name: str) -> str | None:
        """Return why a case of a target is left out; None if it is run."""
        if target.name in self.cases or name in self.cases:
            return self.cases.get(name) or self.cases[target.name]
        if target.name in self.although:
            return None
        if why := next((why for start, why in self.names.items() if target.name.startswith(start)), None):
            return why
        file = target / "aliases"
        words = re.sub(r"#.*", "", file.read_text(encoding="utf-8")).split() if file.exists() else []
        return next((why for word in words for start, why in self.aliases.items() if word.startswith(start)), None)


@dataclass(frozen=True, slots=True)
class TargetCase:
    """A playbook of a target."""

    name: str
    target: str
    playbook: str | None
    """Relative to the target; None for a target that is a role."""
    inventory: str | None
    """Relative to the target; None for the usual one."""
    facts: bool = True

    def write(self, folder: Path) -> Path:
        """Return the playbook, written into `folder` for a role."""
        if self.playbook is not None:
            return folder / self.target / self.playbook
        file = folder / "playbook.yml"
        play = {"hosts": "testhost", "gather_facts": self.facts, "roles": [self.target]}
        file.write_text(json.dumps([play]), encoding="utf-8")
        return file


def folder() -> Path:
    """Return the folder of the installed version's targets, which `get` downloads."""
    return _cache(version("ansible-core")) / "test/integration/targets"


def get(core: str, progress: TextIO, *, pinned: bool = True) -> None:
    """Have the source distribution of an ansible-core, such as `2.18` or `2.18.19`; download it if it is missing.

    Without `pinned` a full version needs no hash.
    """
    lines = [line for line in (HERE / "sdists.txt").read_text(encoding="utf-8").splitlines() if _is_of(core, line)]
    if not lines and not pinned:
        lines = [f"{_PINNED}{core}"]
    if not lines:
        raise RuntimeError(f"tests/parity/sdists.txt has no hash of ansible-core {core}: add it")
    cache = _cache(lines[0].split()[0].removeprefix(_PINNED))
    with locks.locked(cache.with_name(f"{cache.name}.lock"), lambda: None):
        if not cache.exists():
            print(f"Downloading the source distribution of ansible-core {cache.name}", file=progress)
            _download(lines[0], cache)


def _is_of(core: str, line: str) -> bool:
    return line.startswith((f"{_PINNED}{core} ", f"{_PINNED}{core}."))


def _cache(core: str) -> Path:
    return folders.binaries(os.environ).parent / "ansible-core" / core


def _download(pinned: str, cache: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache.parent) as new:
        requirements = Path(new, "requirements.txt")
        requirements.write_text(pinned, encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        hashes = ["--require-hashes"] if "--hash=" in pinned else []
        subprocess.run([*pip, *hashes, "--dest", new, "-r", str(requirements)], check=True)
        (archive,) = Path(new).glob("*.tar.gz")
        with tarfile.open(archive) as content:
            content.extractall(new, filter="tar")
        next(Path(new).glob("ansible_core-*/")).rename(cache)


def cases(root: Path) -> Iterator[TargetCase]:
    """Yield every case that can be made of the targets, the excluded ones included."""
    for target in sorted(path for path in root.iterdir() if path.is_dir()):
        if (target / "runme.sh").exists():
            yield from _of_script(target)
        elif (target / "tasks").is_dir():
            aliases = target / "aliases"
            facts = not (aliases.exists() and "gather_facts/no" in aliases.read_text(encoding="utf-8"))
            yield TargetCase(target.name, target.name, None, None, facts)


def _of_script(target: Path) -> Iterator[TargetCase]:
    seen: set[str] = set()
    text = (target / "runme.sh").read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        if not line.startswith("ansible-playbook ") or set(line) & set("|<>;&`") or "$(" in line:
            continue
        words = [word for word in shlex.split(line)[1:] if word != "$@" and not re.fullmatch("-v+", word)]
        inventory = None
        if "-i" in words[:-1]:
            at = words.index("-i")
            inventory = words[at + 1]
            del words[at : at + 2]
        plain = len(words) == 1 and words[0].endswith((".yml", ".yaml")) and (target / words[0]).is_file()
        if plain and words[0] not in seen and (inventory is None or _INVENTORY.match(inventory)):
            seen.add(words[0])
            own = inventory if inventory and not inventory.startswith("../") else None
            yield TargetCase(f"{target.name}/{words[0]}", target.name, words[0], own)


def copy(root: Path, case: TargetCase, to: Path) -> Path:
    """Make the folder of targets anew with a copy of the case's own target and links to all others."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for target in root.iterdir():
        if target.name == case.target:
            shutil.copytree(target, to / target.name, symlinks=True)
        else:
            (to / target.name).symlink_to(target)
    return to
