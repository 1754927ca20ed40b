"""Parity on ansible-core's own integration targets: `python -m tests.parity [TARGET …]`, or `make test-parity`.

`CORE` names an ansible-core (`2.18` to `2.21`, or `all`, the default of `make test-parity`). Prints a line for each
case. The exit code is 1 if results of a case differ. Some cases fail with plain Ansible on a machine without network,
or without a program: they are printed and counted, and not compared. So that this cannot hide a defect of the suite,
the exit code is also 1 if all cases run and fewer than `_FEWEST` percent of them are compared.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from runner import log
from runner.engine.engines import EngineSettings
from runner.engine.run_engine import RunEngine
from tests.parity import targets
from tests.parity.ways import ParityError, PlainFailedError, Ways

_CORES = ("2.18", "2.19", "2.20", "2.21")
_FEWEST = 70


def main() -> int:
    """Run the named cases, or all, on each named core."""
    own = ".".join(version("ansible-core").split(".")[:2])
    wanted = os.environ.get("CORE") or own
    if wanted == own:
        return asyncio.run(_run(own, set(sys.argv[1:])))
    return max([_on(core) for core in (_CORES if wanted == "all" else (wanted,))])


def _on(core: str) -> int:
    venv = Path(".venvs", f"core-{core}")
    subprocess.run([str(Path("hack/make-venv").absolute()), str(venv), core], check=True)
    command = [str(venv / "bin/python"), "-m", "tests.parity", *sys.argv[1:]]
    return subprocess.run(command, check=False, env={**os.environ, "CORE": core}).returncode


async def _run(core: str, names: set[str]) -> int:
    log.configure(level=logging.WARNING, encoder="console")  # on standard error
    root, excluded = targets.folder(), targets.Excluded.read()
    unknown = names - {name for case in targets.cases(root) for name in (case.name, case.target)}
    if unknown:
        print(f"core {core}: no such case or target: {', '.join(sorted(unknown))}", flush=True)
        return 2
    compared, differ, fail = 0, 0, 0
    with tempfile.TemporaryDirectory(prefix="ansible-operator-parity-") as folder:
        work = Path(folder)
        engine = RunEngine(work / "runs", EngineSettings("warm", frozenset(), 0))
        try:
            for case in targets.cases(root):
                if names and not {case.name, case.target} & names:
                    continue
                reason = excluded.reason(root / case.target, case.name)
                if reason:
                    if names:
                        print(f"core {core}, {case.name}: excluded: {reason}", flush=True)
                    continue
                began = time.monotonic()
                try:
                    nested = case.target in excluded.starting_ansible
                    results = await Ways(root, work, engine).compare(case, starts_ansible=nested)
                except PlainFailedError as error:
                    fail += 1
                    print(f"core {core}, {case.name}: not compared, plain Ansible fails: {error}", flush=True)
                except ParityError as error:
                    differ += 1
                    print(f"core {core}, {case.name}: {type(error).__name__}: {error}", flush=True)
                else:
                    compared += 1
                    took = time.monotonic() - began
                    print(f"core {core}, {case.name}: {results} results are the same ({took:.0f} s)", flush=True)
        finally:
            await engine.close(0)
    print(f"core {core}: {compared} cases are the same, {differ} differ, plain Ansible fails {fail}", flush=True)
    if not names and 100 * compared < _FEWEST * (compared + differ + fail):
        print(f"core {core}: fewer than {_FEWEST} % of the cases were compared", flush=True)
        return 1
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
