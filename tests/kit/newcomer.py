"""A new user: a checkout in a home that is empty else, terminals, and the guide, executed step by step.

Nothing of this repository is reached but that checkout, which is the source distribution: PATH has what the system has,
uv, helm, and make's own tools. What would be fetched is taken from caches: the control plane's programs, and packages,
in the versions that are locked here.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from runner.sdk.devcluster.binaries import NODE_KIT, find, this_machine
from runner.sdk.devcluster.cluster import get_programs
from tests.kit.go_programs import get_helm
from tests.kit.guide_text import Commands, File, GuideError, Keys, Shown, Step, matches, steps
from tests.kit.places import ROOT
from tests.kit.processes import merged
from tests.kit.terminal import Terminal

GUIDE, DATABASE = ROOT / "docs/guide.md", ROOT / "docs/database.md"
PATIENCE = 480.0
"""Seconds for whatever is waited for, on a machine that does much else."""
_LOG = logging.getLogger(__name__)
_BIN = Path(sys.executable).parent
_INSTALL = "## Install"
_FOLDER = re.compile(r"mkdir (\S+) && cd ")
"""The command that makes the folder of the project."""
_PASSED_ON = ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX", "UV_NATIVE_TLS", "SSL_CERT", "HTTP", "NO_PROXY")
"""How packages are reached from here; not `UV_PYTHON`, which would have uv install elsewhere than the guide says."""


def build_wheel(folder: Path) -> Path:
    """Do `make build`, with this environment as it is; return the wheel."""
    command = ["make", "--old-file=.venv/.made-from", "build", f"BIN={_BIN}", f"DIST={folder}"]
    done = merged(*command, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def locked() -> Path:
    """Return the versions that this environment was made of."""
    return ROOT / f"requirements/core-{'.'.join(version('ansible-core').split('.')[:2])}.txt"


@dataclass(frozen=True, slots=True)
class Figures:
    """What it took from the empty folder to the first resource whose role has run."""

    commands: int
    seconds: float


@dataclass(slots=True)
class Newcomer:
    """Follows the guide."""

    home: Path
    environ: Mapping[str, str]
    figures: Figures | None = None
    _terminals: dict[int, Terminal] = field(default_factory=dict)
    _project: Path = Path()
    _printed: str = ""
    _typed: int = 0
    _began: float = 0.0

    def install(self) -> None:
        """Do what the guide says about the installation, and no more."""
        _, _, part = GUIDE.read_text(encoding="utf-8").partition(_INSTALL)
        self._do(steps(part.partition("\n## ")[0]))

    def follow(self, guide: Path = GUIDE, *, to_first_resource: bool = False) -> None:
        """Do what the guide says. Raises GuideError and TerminalError where it comes out otherwise."""
        self._do(steps(guide.read_text(encoding="utf-8")), to_first_resource=to_first_resource)

    def _do(self, todo: list[Step], *, to_first_resource: bool = False) -> None:
        for step in todo:
            match step:
                case Commands():
                    self._type(step)
                case Keys():
                    self._interrupt(step)
                case File():
                    self._save(step)
                case Shown():
                    self._see(step)
            if to_first_resource and self.figures:
                return

    def close(self) -> None:
        """Leave nothing behind, wherever the guide was left."""
        for terminal in self._terminals.values():
            terminal.close(PATIENCE)
        programs = self.home / "operators/bin"
        if any(self.home.glob(".*/**/operator.pid")):  # in the middle of molecule's scenario
            path = f"{programs}:{self.environ['PATH']}"
            subprocess.run(["molecule", "destroy"], cwd=self._project, env={**self.environ, "PATH": path}, check=True)
        if any((self.home / ".local/state").glob("*/clusters/default/run")):
            subprocess.run([programs / "ansible-operator", "cluster", "down"], env=self.environ, check=True)

    def _terminal(self, number: int) -> Terminal:
        if number not in self._terminals:
            self._terminals[number] = Terminal(str(number), self.home, self.environ)
        return self._terminals[number]

    def _type(self, commands: Commands) -> None:
        terminal = self._terminal(commands.terminal)
        if commands.stays:
            (line,) = commands.lines
            terminal.type(line)
        else:
            self._printed = "".join(self._run(terminal, line) for line in commands.lines)
        self._typed += len(commands.lines)
        if made := _FOLDER.match(commands.lines[0]):
            self._project = self.home / made[1]
            self._typed, self._began = 0, time.monotonic()

    def _run(self, terminal: Terminal, line: str) -> str:
        began = time.monotonic()
        printed = terminal.run(line, PATIENCE)
        _LOG.info("%5.1f s  %s", time.monotonic() - began, line)
        return printed

    def _interrupt(self, keys: Keys) -> None:
        if code := self._terminal(keys.terminal).interrupt(PATIENCE):
            raise GuideError(f"what Ctrl-C ended in terminal {keys.terminal} says that it failed: {code}")

    def _save(self, file: File) -> None:
        path = self._project / file.name
        if not path.is_file():
            raise GuideError(f"the guide lets one edit {file.name}, which is not there")
        before = path.read_text(encoding="utf-8") if file.added else ""
        path.write_text(before + file.content, encoding="utf-8")

    def _see(self, shown: Shown) -> None:
        if shown.of_commands:
            if not matches(shown.lines, self._printed):
                raise GuideError("\n".join(["the guide says:", *shown.lines, "but it was:", self._printed]))
            return
        terminal = self._terminal(shown.terminal)
        terminal.await_shown(lambda said: matches(shown.lines, said), "\n".join(shown.lines), PATIENCE)
        if self.figures is None and ": succeeded in" in shown.lines[-1]:
            self.figures = Figures(self._typed, time.monotonic() - self._began)


@contextmanager
def arriving(folder: Path, wheel: Path) -> Iterator[Newcomer]:
    """Somebody at home in `folder`, who has a checkout there: the source distribution beside `wheel`."""
    tools = folder / ".local/bin"
    tools.mkdir(parents=True)
    (source,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    (folder / source.name.removesuffix(".tar.gz")).rename(folder / "ansible-operator-runner")
    uv = _BIN / "uv"
    (tools / "uv").symlink_to(uv)
    (tools / "python3").symlink_to(Path(sys.executable).resolve())
    (tools / "helm").symlink_to(get_helm(os.environ, sys.stderr))
    programs = folder.with_name(f"{folder.name}-programs")
    programs.mkdir()
    built = {**get_programs(os.environ, sys.stderr), **find(os.environ, this_machine(), NODE_KIT)}
    for name, program in built.items():
        (programs / name).symlink_to(program)
    cache = subprocess.run([uv, "cache", "dir"], check=True, text=True, capture_output=True).stdout.strip()
    environ = {
        **{name: value for name, value in os.environ.items() if name.upper().startswith(_PASSED_ON)},
        "HOME": str(folder),
        "PATH": f"{tools}:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        # What was fetched and built before is not fetched and built again.
        "KUBEBUILDER_ASSETS": str(programs),
        "UV_CACHE_DIR": cache,
        "UV_CONSTRAINT": str(locked()),
        "UV_PYTHON_DOWNLOADS": "never",
        # Two of us on one machine are two machines.
        "ANSIBLE_OPERATOR_RUNNER_DIR": str(folder.with_name(f"{folder.name}-runs")),
        "ANSIBLE_OPERATOR_USER_METRICS_PORT": "0",
    }
    newcomer = Newcomer(folder, environ)
    try:
        yield newcomer
    finally:
        newcomer.close()
