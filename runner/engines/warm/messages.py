"""Messages between the operator and a fork server. Imports nothing heavy, because both sides need it.

Each message is a JSON object on a stream socket, after its length. A message can be larger than the socket's buffer.
The operator first sends `Load`, then `RUN` for each run, with three descriptors (control, events, complaints). The
server sends one answer for each.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from runner.core.engine.wire import LEARNED

LENGTH = struct.Struct("=I")
"""Bytes of a message, before it."""
STREAMS = 3
_MOST_TEMPLATES = 96 * 1024
"""Maximum characters of templates in a message."""
_HALF = re.compile("[\ud800-\udfff]")


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
        load = cls()
        for value in _noted(text):
            with contextlib.suppress(AttributeError, TypeError):
                load |= cls(
                    _texts(value.get("plugins", ())),
                    _texts([value.get("module")] if value.get("module") else ()),
                    _texts(value.get("imports", ())),
                    _texts(value.get("templates", ())),
                )
        return load


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
    for line in text.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            yield json.loads(line)


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a message."""

    pid: int = 0
    """Pid of a run's supervisor."""
    problem: str = ""
    """Reason of a failure."""
    watched: tuple[str, ...] = ()
    """Files and folders; if one changes, the loaded modules are out of date."""
    disabled: Mapping[str, str] = field(default_factory=dict)
    """Why shortcuts failed the self-test, by name."""
    problems: tuple[str, ...] = ()
    """Other findings of the self-test."""


def pack(value: Load | Answer) -> bytes:
    """Return a message as bytes, with its length."""
    return _with_length(json.dumps(asdict(value), default=sorted).encode())


def _with_length(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


RUN = _with_length(b"{}")


def receive(connection: socket.socket, most: int = 0) -> tuple[bytes, list[int]]:
    """Wait for a message; return it without its length, and at most `most` descriptors. Empty if the peer has ended."""
    head, descriptors = b"", []
    while len(head) < LENGTH.size:
        part, received, _, _ = socket.recv_fds(connection, LENGTH.size - len(head), most)
        descriptors += received
        if not part:
            return b"", descriptors
        head += part
    body = bytearray()
    (length,) = LENGTH.unpack(head)
    while len(body) < length:
        part = connection.recv(length - len(body))
        if not part:
            return b"", descriptors
        body += part
    return bytes(body), descriptors


def unpack_load(data: bytes) -> Load:
    """Return a message to the server."""
    return Load(**{name: frozenset(names) for name, names in json.loads(data).items()})


def unpack_answer(data: bytes) -> Answer:
    """Return a message from the server."""
    value: dict[str, Any] = json.loads(data)
    return Answer(**{**value, "watched": tuple(value["watched"]), "problems": tuple(value["problems"])})
