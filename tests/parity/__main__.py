"""Parity on ansible-core's own integration targets: `python -m tests.parity [TARGET …]`, or `make test-parity`.

`CORE` names an ansible-core (`2.18` to `2.21`, or `all`, the default of `make test-parity`). Prints a line for each
case, and ends with exit code 1 if results of one differ, or if one that is not excluded fails without the engine.
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
    root, excluded, failed, compared = targets.folder(), targets.Excluded.read(), 0, 0
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
                    results = await Ways(root, work, engine).compare(case)
                except (ParityError, PlainFailedError, subprocess.TimeoutExpired) as error:
                    failed += 1
                    print(f"core {core}, {case.name}: {type(error).__name__}: {error}", flush=True)
                else:
                    compared += 1
                    took = time.monotonic() - began
                    print(f"core {core}, {case.name}: {results} results are the same ({took:.0f} s)", flush=True)
        finally:
            await engine.close(0)
    print(f"core {core}: {compared} cases are the same, {failed} are not", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
