"""An object, and what the operator writes into its status as it lives; no API server is asked."""

from __future__ import annotations

import copy
from typing import Any

from runner.app.features import OWN_STATUS
from runner.core.engine.job import Outcome, RunResult, TaskFailure
from runner.core.status import report as status
from runner.core.status.patch import patch, without_health
from runner.values.objects import Object
from tests.kit.kstatus import kstatus

NOW = 1_800_000_000.0
SUCCESS = RunResult(Outcome.SUCCEEDED, None, (), "", None, 1.0)
FAILURE = RunResult(Outcome.FAILED, None, (TaskFailure("Deploy", "no such image", "t.yml:3"),), "", None, 1.0)
TIMEOUT = RunResult(Outcome.TIMED_OUT, None, (), "the run took longer than 1s and was ended", None, 1.0)
CANCELED = RunResult(Outcome.CANCELED, None, (), "the object was changed meanwhile", None, 1.0)


class World:
    """An object, and what is written into its status."""

    def __init__(self, **metadata: Any) -> None:
        self.obj: Object = {"metadata": {"name": "a", "namespace": "ns", "uid": "u1", "generation": 1, **metadata}}
        self.writes = 0

    def change(self) -> None:
        self.obj["metadata"]["generation"] += 1

    def write(self, report: status.StatusReport, *, health: bool = True) -> str:
        """Write, and return what kstatus makes of it."""
        report = status.observed(self.obj, report)
        report = report if health else without_health(self.obj, report, OWN_STATUS)
        operations = patch(self.obj, report, OWN_STATUS, NOW)
        obj = copy.deepcopy(self.obj)
        for operation in operations or []:
            *parents, last = operation["path"].strip("/").split("/")
            place = obj[parents[0]] if parents else obj
            if operation["op"] == "add":
                place[last] = operation["value"]
            elif operation["op"] == "remove":
                del place[last]
        self.obj = obj
        self.writes += operations is not None
        return kstatus(obj)

    def begin(self) -> str:
        return self.write(status.run_began(self.obj))

    def end(self, result: RunResult, *, final: bool = False) -> str:
        return self.write(status.run_ended(result, status.FailureDetails(final=final)))

    @property
    def health(self) -> dict[str, tuple[str, str]]:
        found = {entry["type"]: entry for entry in self.obj["status"]["conditions"]}
        types = ("Ready", "Reconciling", "Stalled")
        return {each: (found[each]["status"], found[each]["reason"]) for each in types if each in found}
