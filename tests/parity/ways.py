"""Runs a case with plain `ansible-playbook`, with `exec` and with `warm`, in the same folders; compares the results.

A callback that all three load writes each task's result. What may differ is in `tests/integration/engine/parity`
(`differences.py`), and in `_TEXTS` here; values that differ between two plain runs are not compared, nor are the values
of gathered facts. Of a traceback, only the last line is compared: warm modules are loaded from their files, others from
a payload. The plugin that ansible-core names in a deprecation is not compared: ansible-runner wraps the function that
searches for it, so both engines name none.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.app.features import CALLBACKS
from runner.base.config.settings import EngineName
from runner.core.engine import run_dir
from runner.core.engine.job import Event, Job
from runner.core.watches.watch import Playbook
from runner.engines.warm import task_record
from runner.values.objects import GVK, ObjectKey
from tests.integration.engine.parity.differences import differences
from tests.kit.engines import ProcessEngines
from tests.kit.jobs import job_value
from tests.kit.processes import captured
from tests.kit.run_notes import kept
from tests.parity import targets
from tests.parity.targets import TargetCase

_KIND = GVK("parity.example.com", "v1", "Target")
_WITHIN = 180.0
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:(?:[ \t].*)?\n)*", re.MULTILINE)
_DEPRECATOR = frozenset({"collection_name", "deprecator"})
_DESCRIPTORS = frozenset({"connection_lockfd"})
_CHANGING = "<changes from run to run>"
_TEXTS = (
    (re.compile(r"\b0x[0-9a-f]{6,}"), "<address>"),
    (re.compile(r"(?<=[/.])[0-9a-z_]{8}(?=(\.test|test)\b)"), "<temporary>"),
    (re.compile(r"(?<=ansible\.)[0-9a-z_]{8}\b"), "<temporary>"),
    (re.compile(r"(?<=/ansible-tmp-)[0-9.]+-[0-9]+-[0-9]+"), "<temporary>"),
    (_TRACEBACK, "<traceback>\n"),
)


class ParityError(AssertionError):
    """The results of a case differ; the message says how."""


class PlainFailedError(AssertionError):
    """A case fails with plain ansible-playbook."""


@dataclass(frozen=True, slots=True)
class Ways:
    """What runs a case in each way."""

    root: Path
    """Folder of the targets."""
    work: Path
    engine: ProcessEngines
    quick: bool = False
    """Whether a case runs on `warm` only, once."""

    async def compare(self, case: TargetCase, *, starts_ansible: bool) -> int:
        """Run a case in each way; return how many results were compared. Raises ParityError, PlainFailedError.

        If results differ, the first way runs again, to find the values that change from run to run. A case that starts
        programs of Ansible is compared with `exec`, because ansible-runner's environment also affects these programs.
        """
        results = {"plain": await asyncio.to_thread(self._plain, case)}
        if starts_ansible or not self.quick:
            results["exec"] = await self._on(case, "exec")
        first = "exec" if starts_ansible else "plain"
        for which in ("warm",) if self.quick else ("warm", "warm again"):
            results[which] = await self._on(case, "warm")
        repeated: dict[str, Any] | None = None

        async def again() -> dict[str, Any]:
            return await (self._on(case, "exec") if starts_ansible else asyncio.to_thread(self._plain, case))

        for which in [each for each in results if each not in {first, "plain"}]:
            found = differences(results[first], results[which], any_order=False)
            if found:
                repeated = repeated or await again()
                compared = _without_changing(results[first], repeated, results[which])
                found = differences(*compared, any_order=False)
            if found:
                raise ParityError(f"{case.name}: {first} (cold) and {which} (other) differ:\n{found}")
        return sum(map(len, results[first]["results"].values()))

    def _job(self, case: TargetCase) -> tuple[Job, Path]:
        """Make the folders of a case anew, and describe its run."""
        results = self.work / "results"
        results.unlink(missing_ok=True)
        copied = targets.copy(self.root, case, self.work / "targets")
        output, home = self.work / "output", self.work / "home"
        for folder in (output, home):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        inventory = self.work / "inventory"
        temporary = f"ansible_remote_tmp={self.work / 'remote'}"
        host = f"ansible_connection=local ansible_python_interpreter={{{{ansible_playbook_python}}}} {temporary}"
        names = ("testhost", "testhost2", "testhost3", "testhost4", "testhost5", "localhost")
        lines = [*(f"{name} {host}" for name in names), "[local]", "testhost"]
        inventory.write_text("\n".join(lines) + "\n", encoding="utf-8")
        own = copied / case.target / case.inventory if case.inventory else inventory
        environment = {
            "ANSIBLE_INVENTORY": str(own),
            "ANSIBLE_ROLES_PATH": str(copied),
            "ANSIBLE_CALLBACK_PLUGINS": str(targets.HERE / "callbacks"),
            "ANSIBLE_DEPRECATION_WARNINGS": "false",
            "ANSIBLE_FORCE_HANDLERS": "true",
            "OUTPUT_DIR": str(output),  # as ansible-test sets it, and the variable `output_dir`
            "HOME": str(home),  # targets write below it
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "PARITY_RESULTS": str(results),
            "PYTHONHASHSEED": "0",
        }
        job = job_value(
            ident="run",
            gvk=_KIND,
            key=ObjectKey("default", re.sub(r"[^a-z0-9]+", "-", case.name.lower()).strip("-")),
            content=Playbook(case.write(copied)),
            run_dir=self.work / "run",
            extra_vars={"output_dir": str(output)},
            max_artifacts=-1,
            environment=environment,
            kubeconfig="",
            deadline=_WITHIN,
        )
        return job, results

    def _plain(self, case: TargetCase) -> dict[str, Any]:
        job, results = self._job(case)
        folder = run_dir.prepare(job, "parity", os.environ, CALLBACKS)
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        command = [program, "-i", str(folder.inventories[0]), "-e", f"@{folder.path / 'env/extravars'}"]
        try:
            found = captured(
                *command,
                str(folder.playbook),
                cwd=folder.path / "project",
                env=dict(folder.environment),
                errors="replace",
                timeout=_WITHIN,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            raise PlainFailedError(f"{case.name}: not done within {_WITHIN:.0f} s") from error
        run_dir.clear(folder.path)
        if found.returncode:
            raise PlainFailedError(
                f"{case.name}: exit code {found.returncode}\n{(found.stdout + found.stderr)[-1500:]}"
            )
        shown = self._read(results)
        if not shown["results"]:
            raise PlainFailedError(f"{case.name}: no task has a result\n{(found.stdout + found.stderr)[-1500:]}")
        return shown

    async def _on(self, case: TargetCase, engine: EngineName) -> dict[str, Any]:
        job, results = self._job(case)
        events: list[Event] = []
        forked = self.engine.pool.started_runs
        with kept() as notes:
            result = await self.engine.run(job, events.append, engine)
        if defects := task_record.defects("\n".join(notes)):
            raise ParityError("\n".join([f"{case.name}: a shortcut failed", *defects]))
        if engine == "warm" and self.engine.pool.started_runs == forked:
            raise ParityError(f"{case.name}: the run was not forked: {self.engine.pool.problem or result}")
        return self._read(results)

    def _read(self, results: Path) -> dict[str, Any]:
        """Return results by host, and the recap, in the shape that `differences` compares."""
        by_host: dict[str, list[Any]] = {}
        recap: Mapping[str, Any] = {}
        if results.exists():
            for line in map(json.loads, results.read_text(encoding="utf-8", errors="replace").splitlines()):
                if "recap" in line:
                    recap = line["recap"]
                else:
                    by_host.setdefault(line.pop("host"), []).append(_plain_text(_of_task(line)))
        return {"events": [], "files": {}, "result": {}, "results": by_host, "recap": recap}


def _without_changing(plain: Any, repeated: Any, other: Any) -> tuple[Any, Any]:
    """Return the first and the last value without what differs between the first two; the last keeps its shape."""
    if isinstance(plain, dict) and isinstance(repeated, dict) and isinstance(other, dict):
        both = {
            key: _without_changing(plain[key], repeated[key], other[key])
            for key in plain.keys() & repeated.keys() & other.keys()
        }
        # A key of one plain run alone is chance; any other must be in both or in neither.
        chance = plain.keys() ^ repeated.keys()
        return tuple(
            {key: both[key][side] if key in both else value for key, value in each.items() if key not in chance}
            for side, each in enumerate((plain, other))
        )  # type: ignore[return-value]
    if isinstance(plain, list) and isinstance(repeated, list) and isinstance(other, list):
        if len(plain) == len(repeated) == len(other):
            pairs = [_without_changing(*items) for items in zip(plain, repeated, other, strict=True)]
            return [first for first, _ in pairs], [second for _, second in pairs]
        return (plain, other) if len(plain) == len(repeated) else (_CHANGING, _CHANGING)
    if plain != repeated and type(plain) is type(repeated) is type(other):
        return _CHANGING, _CHANGING
    return plain, other


def _of_task(line: dict[str, Any]) -> dict[str, Any]:
    """Return a result with the names alone of gathered facts: their values are the machine's, and the engine's."""
    facts = line["result"].get("ansible_facts") if isinstance(line["result"], dict) else None
    if isinstance(facts, dict) and "ansible_env" in facts:
        line["result"]["ansible_facts"] = sorted(facts)
    return line


def _plain_text(value: Any) -> Any:
    if isinstance(value, dict):
        left_out = _DEPRECATOR if value.keys() >= _DEPRECATOR else _DESCRIPTORS
        return {_plain_text(key): _plain_text(item) for key, item in value.items() if key not in left_out}
    if isinstance(value, list):
        return [_plain_text(item) for item in value]
    if isinstance(value, str):
        for pattern, shown in _TEXTS:
            value = pattern.sub(shown, value)
    return value
