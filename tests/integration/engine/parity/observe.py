"""Observations of a run: its events, its result, and the files and processes that it left.

Owns looking; what may differ between two looks is said in `differences.py`.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from runner.core.engine.job import Event, RunResult


@dataclass(frozen=True, slots=True)
class Observation:
    """One run, as plain values."""

    result: RunResult
    events: list[Event]
    files: dict[str, Any]
    """Everything below the run folder and the role's own `work` folder, by path: kind, mode, content."""
    processes: list[str]
    """What still runs; empty."""

    def value(self) -> dict[str, Any]:
        """Return all of it, in the order in which names are given to what may differ."""
        plain = replace(self.result, more=cast("Any", None))  # slots cannot be copied, and these runs have none
        result = {**asdict(plain), "outcome": self.result.outcome.value}
        return {"result": result, "events": self.events, "files": self.files, "processes": self.processes}

    def broken_off(self) -> Observation:
        """Leave out what was being written when the run was cut short, and that the playbook saw its worker end."""
        return replace(self, files={}, events=[event for event in self.events if event["event"] != "error"])

    def of(self, name: str) -> list[Event]:
        """Return the events of one kind."""
        return [event for event in self.events if event["event"] == name]

    def task(self, name: str) -> dict[str, Any]:
        """Return the result of the last task of this name."""
        ends = ("runner_on_ok", "runner_on_failed", "runner_on_skipped", "runner_on_unreachable")
        found = [
            event["event_data"]
            for event in self.events
            if event["event"] in ends and event["event_data"].get("task", "").endswith(name)
        ]
        assert found, f"no task {name!r}: {self.result}\n{self.stdout()}"
        res: dict[str, Any] = found[-1]["res"]
        return res

    def stdout(self) -> str:
        """Return the run's terminal."""
        return "\n".join(text for event in self.events if (text := event.get("stdout")))


def files(**folders: Path) -> dict[str, Any]:
    """Look at every file, link and folder below folders, in the natural order of their names."""
    found = {}
    for name, folder in folders.items():
        paths = sorted(folder.rglob("*"), key=lambda path: _natural(str(path)))
        found.update({f"{name}/{path.relative_to(folder)}": _look(path) for path in paths})
    return found


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]


def _look(path: Path) -> dict[str, Any]:
    mode = path.lstat().st_mode
    known: dict[str, Any] = {"mode": f"{stat.S_IMODE(mode):o}"}
    if path.is_symlink():
        return {"link": str(path.readlink())}
    if stat.S_ISREG(mode):
        return known | {"content": _content(path.read_bytes())}
    return known | {"kind": "folder" if stat.S_ISDIR(mode) else "other"}


def _content(data: bytes) -> Any:
    text = data.decode("utf-8", "surrogateescape")
    value = _parsed(text)
    if isinstance(value, dict) and "__payload__" in value:  # a cached fact; its order is chance
        return {**value, "__payload__": _parsed(value["__payload__"])}
    return value if isinstance(value, dict | list) else text.split("\n")


def _parsed(text: str) -> Any:
    if text[:1] not in {"{", "["}:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def remains(find: Callable[[Path], list[int]], root: Path) -> list[str]:
    """Name the processes of runs below `root` that still live."""
    names = []
    for pid in find(root):
        try:
            names.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return names
