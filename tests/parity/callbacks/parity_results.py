"""Callback that appends each task result, and the recap at the end, to the file that PARITY_RESULTS names."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: parity_results
type: aggregate
short_description: Appends task results as lines of JSON to a file
description: Appends each task result, and the recap, to the file that PARITY_RESULTS names.
"""


class CallbackModule(CallbackBase):  # type: ignore[misc] # Ansible has no types
    """Appends task results as lines of JSON to a file."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "parity_results"

    def v2_runner_on_ok(self, result: Any) -> None:
        self._add("ok", result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:  # noqa: FBT001, FBT002 - Ansible's signature
        self._add("ignored" if ignore_errors else "failed", result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._add("skipped", result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._add("unreachable", result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._write({"recap": {host: stats.summarize(host) for host in sorted(stats.processed)}})

    def _add(self, status: str, result: Any) -> None:
        new = hasattr(type(result), "result")  # since ansible-core 2.19
        host, task = (result.host, result.task) if new else (result._host, result._task)
        value = result.result if new else result._result
        self._write({"status": status, "host": host.get_name(), "task": task.get_name(), "result": value})

    def _write(self, line: dict[str, Any]) -> None:
        with Path(os.environ["PARITY_RESULTS"]).open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(json.dumps(line, default=str) + "\n")
