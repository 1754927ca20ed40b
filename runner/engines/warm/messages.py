"""Messages between the operator and a fork server. Imports nothing heavy, because both sides need it.

The operator writes `Load` to a file of the server's folder before it starts the server. The server loads, writes
`Ready` to another file, and sends a message. Then the operator sends `RUN` for each run, with three descriptors
(control, events, complaints). The server answers with the pid of the run's supervisor, or with the reason of a failure.
These messages have a socket that preserves them; the files can be larger than a message.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from runner.core.engine.wire import LEARNED

RUN = b"run"
STREAMS = 3
LONGEST = 4096
"""Maximum bytes of an answer."""
LOAD, READY = "load.json", "ready.json"
"""Names of the files."""
_MOST_TEMPLATES = 96 * 1024
"""Maximum characters of templates in a message."""
_HALF = re.compile("[\ud800-\udfff]")
_MOST_NOTES = 10_000
"""Lines of notes that are read: a role can write to the file, and the operator reads them between all of its work."""


@dataclass(frozen=True, slots=True)
class Load:
    """Request to preload modules that not every run needs."""

    plugins: frozenset[str] = frozenset()
    """Python modules that Ansible itself loaded."""
    modules: frozenset[str] = frozenset()
    """Ansible modules, by their full names."""
    imports: frozenset[str] = frozenset()
    """Python modules that these imported."""
    templates: frozenset[str] = frozenset()
    """Compiled templates in the format of `templates`, up to a maximum size."""
    files: frozenset[str] = frozenset()
    """Paths of YAML files of roles and playbooks, whose templates the server compiles while no run waits."""
    template_files: frozenset[str] = frozenset()
    """Paths of files that are templates, which the server compiles then too."""
    off: frozenset[str] = frozenset()
    """Shortcuts that are switched off."""

    def __or__(self, other: Load) -> Load:
        return Load(
            self.plugins | other.plugins,
            self.modules | other.modules,
            self.imports | other.imports,
            _as_many_as_fit(self.templates, other.templates),
            files=self.files | other.files,
            template_files=self.template_files | other.template_files,
            off=self.off | other.off,
        )

    @classmethod
    def of_lines(cls, text: str) -> Load:
        """Return the request for the modules in a run's notes, one JSON object a line. Invalid lines are skipped."""
        texts: tuple[set[str], ...] = (set(), set(), set(), set())
        for value in _noted(text):
            with contextlib.suppress(AttributeError, TypeError):
                of_line = (
                    _texts(value.get("plugins", ())),
                    _texts([value.get("module")] if value.get("module") else ()),
                    _texts(value.get("imports", ())),
                    _texts(value.get("templates", ())),
                )
                for known, more in zip(texts, of_line, strict=True):
                    known.update(more)
        plugins, modules, imports, templates = map(frozenset, texts)
        return cls(plugins, modules, imports, _as_many_as_fit(frozenset(), templates))


def _texts(values: Iterable[object]) -> frozenset[str]:
    """Return the texts that can be sent: without half characters, which a role can write to the notes."""
    return frozenset(value for value in values if isinstance(value, str) and not _HALF.search(value))


def _as_many_as_fit(known: frozenset[str], more: frozenset[str]) -> frozenset[str]:
    room = _MOST_TEMPLATES - sum(map(len, known))
    templates = set(known)
    for template in sorted(more - known):
        if len(template) <= room:
            templates.add(template)
            room -= len(template)
    return frozenset(templates)


def mismatch(text: str) -> str:
    """Return why a forked run started a new interpreter, from its notes; empty if it did not."""
    return next((reason for reason in noted(text, "mismatch") if isinstance(reason, str)), "")


def noted(text: str, name: str) -> Iterator[Any]:
    """Yield the values with this name in a run's notes."""
    return (value[name] for value in _noted(text) if isinstance(value, dict) and name in value)


def note(environment: Mapping[str, str], value: Mapping[str, Any]) -> None:
    """Append a note for the operator, in a run with this environment."""
    with contextlib.suppress(OSError), open(noted_in(environment), "a", encoding="utf-8") as file:  # noqa: PTH123 - a string
        file.write(json.dumps(value) + "\n")


def noted_in(environment: Mapping[str, str]) -> str:
    """Return the path of the notes of a run with this environment."""
    return os.path.join(environment["ANSIBLE_LOCAL_TEMP"], LEARNED)  # noqa: PTH118 - a string is required


def _noted(text: str) -> Iterator[Any]:
    for line in text.split("\n", _MOST_NOTES)[:_MOST_NOTES]:
        with contextlib.suppress(ValueError, RecursionError):
            yield json.loads(line)


@dataclass(frozen=True, slots=True)
class Ready:
    """State of a server at the end of its start."""

    problem: str = ""
    """Why it cannot serve."""
    watched: Sequence[str] = ()
    """Files and folders; if one changes, the loaded modules are out of date."""
    disabled: Mapping[str, str] = field(default_factory=dict)
    """Why shortcuts failed the self-test, by name."""
    problems: Sequence[str] = ()
    """Other findings of the self-test."""


def write(file: Path, value: Load | Ready) -> None:
    """Write a file."""
    file.write_text(json.dumps(asdict(value), default=sorted), encoding="utf-8")


def read_load(folder: Path) -> Load:
    """Read the request in a server's folder."""
    value = json.loads((folder / LOAD).read_text(encoding="utf-8"))
    return Load(**{name: frozenset(names) for name, names in value.items()})


def read_ready(folder: Path) -> Ready:
    """Read the state in a server's folder."""
    return Ready(**json.loads((folder / READY).read_text(encoding="utf-8")))
