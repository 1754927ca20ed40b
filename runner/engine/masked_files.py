"""Masking of a run's files after all its processes have ended.

ansible-runner writes events immediately, so its files contain secrets during the run. Promises:

- A file without secrets is not written.
- A file with secrets is replaced atomically by a file with mode 0600.
- Links are not followed.
- A file that may contain unknown secrets is removed.
- The time is bounded. The files that cannot be searched in it are removed; a text contains the reason instead.

Blocking I/O: call it in a thread. Must not import modules that start runs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from runner.config import atomic_file
from runner.engine import redaction
from runner.engine.output import JOB_OF_POD
from runner.engine.run_secrets import RunSecrets
from runner.masking.masker import TOO_SLOW, Budget, SearchTimeoutError

_PIECE = 4 << 20
"""Bytes of a text that are masked at a time. A piece ends at the end of a line."""
_LARGEST_JSON = 64 << 20
_COMMAND = "command"
"""ansible-runner's file with the command and its environment: the only file that does not consist of events."""
_HARMLESS = frozenset({JOB_OF_POD, "rc", "status"})
_SECONDS = 20.0
"""CPU time for all files of a run."""


def mask(artifacts: Path, settings: Path, secrets: RunSecrets) -> None:
    """Mask the files of a run in its artifacts folder and in its settings (`env/`)."""
    budget = Budget(_SECONDS)
    if not secrets.may_be_in_files:
        _mask_in_time(artifacts / _COMMAND, secrets, budget)
        return
    for path in (*_files(artifacts), *_files(settings)):
        if secrets.is_exhausted and path.name not in _HARMLESS:
            path.unlink()
        else:
            _mask_in_time(path, secrets, budget)


def _files(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder, onerror=_must_be_there):
        yield from (Path(place, name) for name in sorted(names))


def _must_be_there(error: OSError) -> None:
    """Raise errors except for a missing folder: a folder that cannot be read may contain secrets."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _mask_in_time(path: Path, secrets: RunSecrets, budget: Budget) -> None:
    try:
        _mask_file(path, secrets, budget)
    except SearchTimeoutError:
        if _is_json(path):
            path.unlink()
        elif path.name not in _HARMLESS:
            atomic_file.write(path, f"{TOO_SLOW}\n")


def _is_json(path: Path) -> bool:
    return path.suffix == ".json" or path.parent.name == "fact_cache" or path.name == _COMMAND


def _mask_file(path: Path, secrets: RunSecrets, budget: Budget) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    except OSError:
        if path.is_symlink():
            return
        raise
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return
        if _is_json(path) and status.st_size <= _LARGEST_JSON:
            _mask_json(path, file.read(), secrets, budget)
        else:
            _mask_text(path, file, secrets, budget)


def _mask_json(path: Path, data: bytes, secrets: RunSecrets, budget: Budget) -> None:
    is_event = path.parent.name == "job_events"
    masked = redaction.event_file(data, secrets, budget) if is_event else redaction.json_file(data, secrets, budget)
    if masked is not data:
        atomic_file.write(path, [masked])


def _mask_text(path: Path, file: BinaryIO, secrets: RunSecrets, budget: Budget) -> None:
    if any(secrets.masker.finds(piece, budget) for piece in _pieces(file)):
        file.seek(0)
        atomic_file.write(path, (secrets.masker.data(piece, budget) for piece in _pieces(file)))


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece + file.readline()
