"""Traceback of a failed module, identical to that of a new interpreter that runs the module's payload.

Ansible's own wrapper is executed again, and raises the module's exception instead of running the module. So the frames
above the module's are the wrapper's. Files get the names that they have in a payload. Only failed modules cost this
time.
"""

from __future__ import annotations

import linecache
import runpy
import sys
import traceback
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from runner.engine.warm.modules.payload import Payload

_OURS = str(__package__).rpartition(".")[0].replace(".", "/") + "/"


def hide() -> None:
    """Remove this package's frames from every traceback that is formatted in this process from now on."""
    walk: Any = traceback._walk_tb_with_full_positions  # type: ignore[attr-defined]  # noqa: SLF001 - no other way in

    def walk_others(frames: TracebackType | None) -> Iterator[Any]:
        return (found for found in walk(frames) if not _is_ours(found[0].f_code.co_filename))

    traceback._walk_tb_with_full_positions = walk_others  # type: ignore[attr-defined]  # noqa: SLF001 - as above


def show(error: BaseException, payload: Payload, wrapper: str, script: str) -> None:
    """Write the traceback that an interpreter writes on this exception. `wrapper` is the content of `script`."""
    if sys.excepthook is not sys.__excepthook__:
        sys.excepthook(type(error), error, error.__traceback__)
        return
    archive = _through_wrapper(error, wrapper, script)
    names = {
        entry.path: f"{archive}/{name.replace('.', '/')}{'/__init__' if entry.is_package else ''}.py"
        for name, entry in payload.entries.items()
    }
    report = traceback.TracebackException.from_exception(error, compact=True)
    _rename(report, names)
    sys.stderr.write("".join(report.format()))


def _through_wrapper(error: BaseException, wrapper: str, script: str) -> str:
    """Raise the exception inside the wrapper, which adds its frames. Return the path that the payload would have."""
    below = error.__traceback__
    while below and _is_ours(below.tb_frame.f_code.co_filename):
        below = below.tb_next

    def run_module(**_: Any) -> None:
        raise error.with_traceback(below)

    linecache.cache[script] = (len(wrapper), None, wrapper.splitlines(keepends=True), script)
    loader: Any = sys.modules.get("ansible.module_utils._internal._ansiballz._loader", runpy)
    kept = loader.run_module
    loader.run_module = run_module
    try:
        exec(compile(wrapper, script, "exec"), {"__name__": "__main__", "__file__": script})  # noqa: S102 - Ansible's
    except BaseException as again:
        if again is not error:
            raise
    finally:
        loader.run_module = kept
    return _archive(error.__traceback__)


def _archive(frames: TracebackType | None) -> str:
    while frames:
        if "zipped_mod" in frames.tb_frame.f_locals:
            return str(frames.tb_frame.f_locals["zipped_mod"])
        frames = frames.tb_next
    return ""


def _is_ours(file: str) -> bool:
    return _OURS in file


def _rename(report: traceback.TracebackException | None, names: Mapping[str, str]) -> None:
    """Remove this package's frames, and show the payload's frames without source lines, as from an archive."""
    if report is None:
        return
    frames = []
    for frame in report.stack:
        if frame.filename in names:
            frames.append(
                traceback.FrameSummary(names[frame.filename], frame.lineno, frame.name, lookup_line=False, line="")
            )
        elif not _is_ours(frame.filename):
            frames.append(frame)
    report.stack = traceback.StackSummary.from_list(frames)
    _rename(report.__cause__, names)
    _rename(report.__context__, names)
