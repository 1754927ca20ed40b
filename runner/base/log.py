"""Structured log on standard error, one line per message, as JSON or for a console.

The command line calls `configure` once. Other modules call `log.get(__name__)` and bind the constant fields (`job`,
`gvk`, `name`, `namespace`) once. Messages are constant text; variable values are fields.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Hashable, Sequence
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from runner.base import console
from runner.base.config import shortages

Format = Literal["json", "console"]


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_LAST_LATIN = 0xFF


class _Lines:
    """Configuration of lines for other streams, set by `configure`."""

    encoder: Format = "json"
    level: int = logging.INFO
    processors: Sequence[Processor] = ()


class Once:
    """Messages that a component has logged already. After `most` messages, no further one is new."""

    __slots__ = ("_keys", "_most")

    def __init__(self, most: int = 1000) -> None:
        self._keys: set[Hashable] = set()
        self._most = most

    def is_new(self, key: Hashable = None) -> bool:
        """Return True for the first call with this key, or for the first since `reset`."""
        if key in self._keys or len(self._keys) >= self._most:
            return False
        self._keys.add(key)
        return True

    def reset(self, key: Hashable = None) -> bool:
        """Forget a key; return whether it was logged."""
        was_logged = key in self._keys
        self._keys.discard(key)
        return was_logged


def get(name: str, /, **bound: object) -> FilteringBoundLogger:
    """Return a logger with `logger=name` and the given fields bound."""
    logger: FilteringBoundLogger = structlog.get_logger(logger_name=name, **bound)
    return logger


def visible(text: str) -> str:
    r"""Replace control characters except line breaks and tabs by their names, as in `\x1b`, and drop colours.

    Characters that change the direction of text count too. A terminal that shows the result executes nothing of it.
    """
    if text.isascii() and text.isprintable():
        return text
    return _CONTROL.sub(_name, _COLOUR.sub("", text).replace("\r\n", "\n"))


def _name(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code <= _LAST_LATIN else f"\\u{code:04x}"


def line(name: str, message: str, /, **fields: object) -> str:
    """Return the line that `info` would write, with its newline; `""` if the level suppresses it."""
    return "" if _Lines.level > logging.INFO else any_line(name, message, **fields)


def any_line(name: str, message: str, /, **fields: object) -> str:
    """Return a line with its newline, whatever the level; `""` before `configure`, and if a console has none for it."""
    if not _Lines.processors:
        return ""
    made: Any = {"logger_name": name, "event": message, **fields}
    for process in _Lines.processors:  # the last one makes text of it
        made = process(None, "info", made)
    return f"{made}\n" if made else ""


def has_colour(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that shows colours. The user disables them with `NO_COLOR`."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_console() -> bool:
    """Return whether lines are for a console."""
    return _Lines.encoder == "console"


def _logger_field(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Rename the field to `logger`, which structlog reserves until this step."""
    if "logger_name" in event:
        event["logger"] = event.pop("logger_name")
    return event


def _shortage(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Replace the traceback of a resource shortage by its name and a remedy, because its location is random."""
    raised = event.get("exc_info")
    error = raised[1] if isinstance(raised, tuple) else raised if isinstance(raised, BaseException) else sys.exception()
    if raised and (short := shortages.of(error)):
        del event["exc_info"]
        what = str(error) if short is error else f"{error}: {short}"
        event["reason"], event["advice"] = what, shortages.ADVICE[short.errno or 0]
    return event


def _console(*, colours: bool) -> Processor:
    """Return the last step of lines for a console. Control characters of all texts are visible."""

    def render(_logger: object, _method: str, event: EventDict) -> str:
        shown = console.line(event)
        shown = console.Line(visible(shown.text), shown.style)
        below = (visible(event[name]) for name in ("stack", "exception") if event.get(name))
        return "\n".join((shown.coloured() if colours else shown.text, *below)) if shown.text else ""

    return render


def configure(*, level: int, encoder: Format, stream: TextIO = sys.stderr) -> None:
    """Set the level (a `logging` level) and the format of all lines, including those of libraries."""
    shared: list[Processor] = [
        _logger_field,
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        structlog.processors.StackInfoRenderer(),
        _shortage,
    ]
    renderer: Processor
    _Lines.level, _Lines.encoder = level, encoder
    if encoder == "json":
        # `msg`, `level`, `ts` and `logger` are what collectors of controllers' logs look for.
        shared += [structlog.processors.dict_tracebacks, structlog.processors.EventRenamer("msg")]
        renderer = structlog.processors.JSONRenderer(default=str)
        _Lines.processors = [*shared, renderer]
    else:
        shared += [structlog.processors.format_exc_info, structlog.processors.EventRenamer("msg")]
        renderer = _console(colours=has_colour(stream))
        _Lines.processors = [*shared, _console(colours=has_colour(sys.stdout))]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        ),
    )
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler], force=True)
