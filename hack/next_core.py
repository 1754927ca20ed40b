"""Examine a version of ansible-core: `python -m hack.next_core [VERSION]`, or `make next-core CORE=2.22.0rc1`.

VERSION is any version or pre-release of the package index, and the newest one if it is left out. It is installed into
an environment of its own. There run the self-test with each shortcut alone, the unit tests of the engine, integration
targets of ansible-core on both engines, and the roles of the corpus.

Prints one table: for each shortcut whether it passes, or why not, and how many private symbols of ansible-core it uses.
Below it are those that changed since the newest tested version before this one. The exit code is 1 if anything failed.
Whoever supports the next ansible-core starts here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import version as installed
from pathlib import Path

from bench.symbols import Core, Uses, uses
from runner.engines.warm import tested

ROOT = Path(__file__).resolve().parents[1]
_ENGINE = "tests/integration/engine"
_UNIT = ("tests/unit/engine", "tests/engines/warm/unit")
_STEPS: Mapping[str, tuple[str, ...]] = {
    "unit tests of the engine": ("-m", "pytest", "-q", "-m", "not full and not nightly", *_UNIT),
    "targets of ansible-core": ("-m", "pytest", "-q", f"{_ENGINE}/test_core_targets.py"),
    "roles of the corpus": ("-m", "pytest", "-q", "-m", "not nightly", f"{_ENGINE}/test_corpus.py"),
}
_GET_TARGETS = "import sys; from tests.parity import targets; targets.get(sys.argv[1], sys.stderr, pinned=False)"
_MOST_SHOWN = 160
"""Characters of a problem in the table."""


def newest() -> str:
    """Return the newest version of ansible-core in the index, with pre-releases."""
    asked = [sys.executable, "-m", "pip", "index", "versions", "ansible-core", "--pre"]
    output = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    found = re.search(r"Available versions: ([^,\s]+)", output)
    if found is None:
        raise SystemExit(f"The index has no ansible-core: {output}")
    return found[1]


def minor_of(version: str) -> tuple[int, int]:
    """Return the numbers of `2.22.0rc1` before the second dot."""
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


def locked(core: str, folder: Path | None = None) -> Path:
    """Make the environment of a tested ansible-core, such as `2.21`, and return its Python."""
    if folder is None and installed("ansible-core").startswith(f"{core}."):
        return Path(sys.executable)
    folder = folder or ROOT / ".venvs" / f"core-{core}"
    subprocess.run([str(ROOT / "hack/make-venv"), str(folder), core], check=True)
    return folder / "bin/python"


def environment(version: str) -> Path:
    """Make an environment with this ansible-core; the other packages are those of the nearest lock."""
    known = [core for core in tested.CORES if core <= minor_of(version)] or [tested.CORES[0]]
    core = ".".join(map(str, known[-1]))
    lock = (ROOT / f"requirements/core-{core}.txt").read_text(encoding="utf-8")
    if f"ansible-core=={version} " in lock:
        return locked(core)
    folder = ROOT / ".venvs" / f"next-{version}"
    python = locked(core, folder)
    uv = [str(folder / "bin/uv"), "pip", "install", "--quiet", "--no-deps", f"ansible-core=={version}"]
    subprocess.run(uv, check=True, env={**os.environ, "VIRTUAL_ENV": str(folder)})
    return python


def self_test(python: Path, *names: str) -> dict[str, str]:
    """Return why the self-test fails, by shortcut; empty for one that passes. Without names, test all shortcuts."""
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [str(python), "-m", "hack.shortcuts_alone", scratch, *names],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    found = {line["shortcut"]: line["problem"] for line in map(json.loads, done.stdout.splitlines())}
    if done.returncode:
        found["all"] = f"the self-test ended with {done.returncode}: {done.stderr.strip().rpartition(chr(10))[2]}"
    return found


def steps(python: Path, version: str) -> Iterator[tuple[str, str]]:
    """Run the tests; yield each step, and why it failed."""
    subprocess.run([str(python), "-c", _GET_TARGETS, version], cwd=ROOT, check=True)
    for name, arguments in _STEPS.items():
        done = subprocess.run([str(python), *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stdout, file=sys.stderr)
        failed = [line.removeprefix("FAILED ") for line in done.stdout.splitlines() if line.startswith("FAILED ")]
        last = (done.stdout.strip() or done.stderr.strip()).rpartition("\n")[2]
        yield name, "; ".join([*failed, last]) if done.returncode else ""


def changes(used: Uses, before: Core, after: Core) -> dict[str, str]:
    """Return what changed, by symbol; symbols that the newer version shares with the older one are left out."""
    found = {}
    for name in used.all:
        old, new = before.definitions(name), after.definitions(name)
        signatures = [{each.signature for each in one if each.signature} for one in (old, new)]
        if not new or not old:
            if old or new:
                found[name] = "gone" if old else "new"
        elif signatures[0] != signatures[1]:
            found[name] = f"signature {' or '.join(sorted(signatures[1] - signatures[0])) or 'gone'}"
        elif {each.digest for each in old} != {each.digest for each in new}:
            found[name] = "source"
    return found


def package_of(python: Path) -> Path:
    """Return the folder of ansible-core in an environment."""
    asked = [str(python), "-c", "import ansible; print(ansible.__path__[0])"]
    return Path(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip())


def table(results: Mapping[str, str], used: Uses, changed: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| shortcut | self-test | private symbols | changed |"
    yield "|---|---|---|---|"
    for name in sorted(results.keys() | used.by_part.keys()):
        symbols = used.all & used.by_part.get(name, set())
        result = results.get(name, "has none")
        known = len(symbols & changed.keys())
        yield f"| {name} | {result[:_MOST_SHOWN] or 'passes'} | {len(symbols)} | {known} |"


def main(version: str) -> int:
    """Examine a version and print the table."""
    older = [core for core in tested.CORES if core < minor_of(version)] or [tested.CORES[0]]
    base = ".".join(map(str, older[-1]))
    python = environment(version)
    after, before = Core(package_of(python)), Core(package_of(locked(base)))
    used = uses(after)
    changed = changes(used, before, after)
    results = self_test(python)
    print(f"ansible-core {version}, compared with {base}: {len(used.all)} private symbols\n")
    print("\n".join(table(results, used, changed)), flush=True)
    for name in sorted(changed):
        parts = ", ".join(sorted(part for part, names in used.by_part.items() if name in names))
        print(f"\n- {name} ({parts}): {changed[name]}", end="", flush=True)
    print("\n")
    failed = any(results.values())
    for name, problem in steps(python, version):
        print(f"{name}: {problem or 'pass'}", flush=True)
        failed = failed or bool(problem)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if sys.argv[1:] else newest()))
