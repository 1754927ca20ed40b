"""Check of roles at the operator's start, in a child process.

The check imports Jinja, which the operator itself does not need, so its memory ends with the child. The operator loads
its own modules meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from runner.compatibility import finding
from runner.config.paths import SearchPath


class StartCheck:
    """A check in progress. Create it before the process has threads."""

    def __init__(self, watches_file: Path, search_path: SearchPath, environ: Mapping[str, str]) -> None:
        """Start the check; on an ansible-core without differences there is nothing to check."""
        self._pid = 0
        if not finding.is_stricter():
            return
        self._reader, writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._reader)
                with os.fdopen(writer, "w", encoding="utf-8", errors="replace") as pipe:
                    pipe.write("\n".join(_warnings(watches_file, search_path, environ)))
            finally:
                os._exit(0)
        os.close(writer)

    def warnings(self) -> list[str]:
        """Wait for the check and return its warnings."""
        if self._pid == 0:
            return []
        with os.fdopen(self._reader, encoding="utf-8", errors="replace") as pipe:
            found = pipe.read()
        os.waitpid(self._pid, 0)
        return found.splitlines()


def _warnings(watches_file: Path, search_path: SearchPath, environ: Mapping[str, str]) -> list[str]:
    from runner.compatibility import core_changes  # noqa: PLC0415 - imports Jinja
    from runner.watches import validation  # noqa: PLC0415 - the operator need not load it

    try:
        found = validation.validate(watches_file, environ=environ, cwd=Path.cwd(), search_path=search_path)
        return core_changes.warnings(found, search_path, environ)
    except Exception as error:  # noqa: BLE001 - the operator runs without this check, and reports why
        return [f"cannot check the roles for changes of ansible-core: {type(error).__name__}: {error}"]
