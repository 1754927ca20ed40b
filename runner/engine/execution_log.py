"""Log lines about how tasks were executed: the first task of each way and reason, and each defect once."""

from __future__ import annotations

from runner import log
from runner.engine.executions import Executions, Reason

DEFECT = "A shortcut of the warm engine failed and the task took a slower way; report this defect"


class ExecutionLog:
    """Logger of the first task of each way and reason, and of each defect once."""

    def __init__(self) -> None:
        self._log = log.get(__name__)
        self._logged = log.Once()

    def add(self, job: str, executions: Executions) -> None:
        """Log ways, reasons and defects of a run that were not logged before."""
        for each in executions.each:
            if each.reason is not Reason.NONE and self._logged.is_new((each.way, each.reason)):
                self._log.info(
                    "A task cannot be executed in the fastest way; this line is logged once for each reason",
                    job=job,
                    way=each.way.value,
                    reason=each.reason.value,
                    module=each.name,
                )
        if executions.malformed and self._logged.is_new("malformed"):
            self._log.warning(
                "A role or another process wrote to the run's record of executed tasks; such lines do not count",
                job=job,
                lines=executions.malformed,
            )
        for traceback in executions.defects:
            if self._logged.is_new(traceback):
                self._log.error(DEFECT, job=job, traceback=traceback)
