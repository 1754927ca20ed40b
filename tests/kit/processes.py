"""Programs that run to their end."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any


def captured(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program, which may fail; return its exit code and both of its outputs."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def merged(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Do the same with both outputs in one, as in a terminal."""
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(command, text=True, check=False, **streams, **options)
