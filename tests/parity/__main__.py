"""Parity on ansible-core's own integration targets: `python -m tests.parity [TARGET …]`, or `make test-parity`.

`CORE` names a tested ansible-core (such as `2.18`, or `all`, the default of `make test-parity`). `WORKERS` (default 2)
cases run at the same time. With `QUICK=1` a case runs on `warm` only, once. Prints a line for each case.

The exit code is 1 if results of a case differ. Some cases fail with plain Ansible on a machine without network, or
without a program: they are printed and counted, and not compared. So that this cannot hide a defect of the suite, the
exit code is also 1 if all cases run and fewer than `_FEWEST` percent of them are compared.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from runner.base import log
from runner.engines.warm import tested
from tests.kit.engines import ProcessEngines
from tests.parity import targets
from tests.parity.ways import ParityError, PlainFailedError, Ways

_CORES = tuple(f"{major}.{minor}" for major, minor in tested.CORES)
_FEWEST = 70
_WORKERS = 2


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
    targets.get(version("ansible-core"), sys.stderr)
    root = targets.folder()
    found = list(targets.cases(root))
    unknown = names - {name for case in found for name in (case.name, case.target)}
    if unknown:
        print(f"core {core}: no such case or target: {', '.join(sorted(unknown))}", flush=True)
        return 2
    wanted = iter([case for case in found if not names or {case.name, case.target} & names])
    with tempfile.TemporaryDirectory(prefix="ansible-operator-parity-") as folder:
        engine = ProcessEngines(Path(folder, "runs"))
        run = _Run(core, root, engine, targets.Excluded.read(), explain=bool(names))
        try:
            folders = [Path(folder, str(number)) for number in range(int(os.environ.get("WORKERS") or _WORKERS))]
            for each in folders:
                each.mkdir()
            await asyncio.gather(*(run.all_of(wanted, each) for each in folders))
        finally:
            await engine.close(0)
    same, differ, fail = (run.counts[what] for what in ("same", "differ", "fail"))
    run.tell(
        f"{same} cases are the same, {differ} differ, plain Ansible fails {fail}, {run.counts['excluded']} are excluded"
    )
    if not names and 100 * same < _FEWEST * (same + differ + fail):
        run.tell(f"fewer than {_FEWEST} % of the cases were compared")
        return 1
    return 1 if differ else 0


@dataclass
class _Run:
    """One execution of the suite on one core."""

    core: str
    root: Path
    engine: ProcessEngines
    excluded: targets.Excluded
    explain: bool
    """Whether excluded cases are printed."""
    counts: Counter[str] = field(default_factory=Counter)

    def tell(self, text: str) -> None:
        print(f"core {self.core}: {text}", flush=True)

    async def all_of(self, cases: Iterator[targets.TargetCase], work: Path) -> None:
        """Compare cases that are left, one after the other, in the folder `work`."""
        for case in cases:
            reason = self.excluded.reason(self.root / case.target, case.name)
            if reason:
                self.counts["excluded"] += 1
                if self.explain:
                    self.tell(f"{case.name}: excluded: {reason}")
                continue
            outcome, text = await self._compare(case, work)
            self.counts[outcome] += 1
            self.tell(f"{case.name}: {text}")

    async def _compare(self, case: targets.TargetCase, work: Path) -> tuple[str, str]:
        began = time.monotonic()
        try:
            nested = case.target in self.excluded.starting_ansible
            results = await Ways(self.root, work, self.engine, quick=bool(os.environ.get("QUICK"))).compare(
                case, starts_ansible=nested
            )
        except PlainFailedError as error:
            return "fail", f"not compared, plain Ansible fails: {error}"
        except ParityError as error:
            return "differ", f"{type(error).__name__}: {error}"
        return "same", f"{results} results are the same ({time.monotonic() - began:.0f} s)"


if __name__ == "__main__":
    sys.exit(main())
