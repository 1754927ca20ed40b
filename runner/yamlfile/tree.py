"""YAML files with their line numbers, read the way Go operators read them.

Owns: expansion of environment variables, the tree of a document, plain values out of it, and `Problems`, where all
that is wrong with a file is gathered. Promises: every problem names the line that the user wrote; one bad value hides
no other. Values follow YAML 1.1 as Go's reader has it: `yes` and `on` are booleans, dates and `1:30` stay text, `1e3`
is a number. Imports nothing of this package but `errors`.

Variables are replaced in the text, before it is parsed. Existing files depend on that: a variable may hold a number, a
boolean, a whole flow mapping or a key, and it may stand where YAML alone would not let `${` stand, as in
`{group: ${GROUP}}`. A value with line breaks would shift all lines below it, so each line of the
result remembers which line of the file it came from.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from runner.errors import ConfigError

_VARIABLE = re.compile(r"\$(?:\{([^}\s]+)\}|([A-Za-z_][A-Za-z0-9_]*))")
_STANDARD = "tag:yaml.org,2002:"
_GO_FLOAT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+")
_LARGEST_INTEGER = 2**64
_CONSTRUCTOR = yaml.constructor.SafeConstructor()


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """What is wrong, and where. `subject` is what it concerns (a watch and its field), empty for the file itself."""

    file: str
    line: int
    subject: str
    message: str

    def __str__(self) -> str:
        return self.render("")

    def render(self, level: str) -> str:
        """Return `file:line: level: subject: message`, what is empty left out."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        message = " ".join(self.message.splitlines())
        return ": ".join(part for part in (place, level, self.subject, message) if part)


@dataclass(slots=True)
class Problems:
    """Gathers what is wrong with files, so that all of it can be told at once."""

    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def raise_errors(self) -> None:
        """Raise a ConfigError with a line for each error, in the order of the file."""
        if self.errors:
            raise ConfigError("\n".join(str(problem) for problem in sorted(set(self.errors))))

    def warning_lines(self) -> tuple[str, ...]:
        """Return the warnings, in the order of the file."""
        return tuple(str(problem) for problem in sorted(set(self.warnings)))


@dataclass(frozen=True, slots=True)
class Text:
    """A file's text after expansion."""

    file: str
    text: str
    origins: tuple[int, ...]
    """For each line of `text`, the line of the file that it came from."""
    replaced: Mapping[int, tuple[str, ...]]
    """Lines of the file whose variables were replaced, with the names."""

    def line(self, mark: yaml.Mark | None) -> int:
        """Return the line of the file, counted from 1, that a mark of the parser stands for."""
        return self.origins[min(mark.line, len(self.origins) - 1)] if mark else 1


def read(path: Path, file: str) -> str:
    """Read a text file; a ConfigError, which names it as `file`, says why that is not possible."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{file}: there is no such file (looked at {path.absolute()})") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{file}: not text in UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8"
        ) from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error


def expand(file: str, text: str, environ: Mapping[str, str]) -> Text:
    """Replace `${NAME}` and `$NAME` from the environment; what is not set stays as it is written."""
    pieces: list[str] = []
    origins: list[int] = []
    replaced: dict[int, tuple[str, ...]] = {}
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        piece = _VARIABLE.sub(lambda found: environ.get(found[1] or found[2], found[0]), line)
        names = tuple(name for name in variables(line) if name in environ)
        if names:
            replaced[number] = names
        pieces.append(piece)
        origins += [number] * max(len(piece.splitlines()), 1)
    return Text(file, "".join(pieces), (*origins, max(origins, default=1)), replaced)


def variables(text: str) -> list[str]:
    """Return the names of the variables that a text refers to."""
    return [found[1] or found[2] for found in _VARIABLE.finditer(text)]


def documents(source: Text, problems: Problems) -> list[yaml.Node]:
    """Return the root of each document. A syntax error is one of `problems`, and ends the list."""
    roots: list[yaml.Node] = []
    try:
        loader = yaml.SafeLoader(source.text)
        while loader.check_node():
            root = loader.get_node()
            if root is not None:
                roots.append(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = source.line(mark)
        said = ", ".join(part for part in (error.context, error.problem) if part)
        problems.errors.append(Problem(source.file, line, "", f"not valid YAML: {said}{_hint(source, mark)}"))
    except yaml.YAMLError as error:
        said = str(error).splitlines()[0]
        problems.errors.append(Problem(source.file, 0, "", f"not valid YAML: {said}"))
    except RecursionError:
        problems.errors.append(Problem(source.file, 0, "", "not valid YAML: nested too deeply to be read"))
    return roots


def _hint(source: Text, mark: yaml.Mark | None) -> str:
    """Name the variables of a line that does not parse: what they hold, or that they are unset, may be the reason."""
    lines = source.text.splitlines()
    left = variables(lines[mark.line]) if mark and mark.line < len(lines) else []
    if left:
        return f" (not set in the environment: {', '.join(left)})"
    names = source.replaced.get(source.line(mark))
    return f" (after {', '.join(names)} was replaced from the environment)" if names else ""


def repeated_keys(source: Text, root: yaml.Node) -> Iterator[tuple[int, str, int]]:
    """Yield the line, the key and the line of its first mention for each key that a mapping has twice."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            first: dict[str, int] = {}
            for key, value in node.value:
                waiting.append(value)
                name = f"{key.tag} {key.value}" if isinstance(key, yaml.ScalarNode) else f"{id(key)}"
                line = source.line(key.start_mark)
                if name in first and isinstance(key, yaml.ScalarNode):
                    yield line, key.value, first[name]
                first.setdefault(name, line)


def merged(node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
    """Return a mapping's pairs with `<<` resolved; later pairs win. ValueError when `<<` names no mapping."""
    try:
        _CONSTRUCTOR.flatten_mapping(node)
    except yaml.MarkedYAMLError as error:
        raise ValueError(f"{error.problem}; `<<` takes a mapping or a list of mappings") from error
    pairs: list[tuple[yaml.Node, yaml.Node]] = node.value
    return pairs


def kind_of(node: yaml.Node) -> str:
    """Name what a node is, for messages: `a list`, `a mapping`, `a number`, `true or false`, `text` or `nothing`."""
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    names = {"null": "nothing", "bool": "true or false", "int": "a number", "float": "a number"}
    return names.get(node.tag.removeprefix(_STANDARD), "text")


def is_null(node: yaml.Node) -> bool:
    """Whether a node is empty, `~` or `null`."""
    return isinstance(node, yaml.ScalarNode) and node.tag == _STANDARD + "null"


def is_bool(node: yaml.Node) -> bool:
    """Whether a node is a boolean for Go's reader, which also takes a bare `y` or `n`."""
    if not isinstance(node, yaml.ScalarNode):
        return False
    return node.tag == _STANDARD + "bool" or (node.style is None and node.value in {"y", "Y", "n", "N"})


def plain(node: yaml.Node) -> Any:
    """Return a node as plain JSON values; keys are text as written. ValueError for what JSON cannot hold."""
    return _plain(node, frozenset())


def _plain(node: yaml.Node, parents: frozenset[int]) -> Any:
    if id(node) in parents:
        raise ValueError("contains itself (an alias inside its own anchor)")
    inside = parents | {id(node)}
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, inside) for item in node.value]
    values: dict[str, Any] = {}
    for key, value in merged(cast("yaml.MappingNode", node)):
        if isinstance(key, yaml.CollectionNode):
            raise ValueError(f"has {kind_of(key)} as a key; keys are text")  # noqa: TRY004 - it is the user's value that is wrong
        values[_characters(key.value)] = _plain(value, inside)
    return values


def _scalar(node: yaml.ScalarNode) -> Any:
    text: str = node.value
    tag = node.tag.removeprefix(_STANDARD)
    value: Any = _characters(text)
    if tag == "null":
        value = None
    elif tag == "bool":
        value = _CONSTRUCTOR.construct_yaml_bool(node)
    elif tag == "int" and ":" not in text:
        value = _integer(_CONSTRUCTOR.construct_yaml_int(node), text)
    elif tag == "float" and ":" not in text:
        value = _finite(_CONSTRUCTOR.construct_yaml_float(node), text)
    elif tag == "str" and node.style is None and _GO_FLOAT.fullmatch(text):
        value = _finite(float(text), text)
    elif tag == "binary":
        value = _binary(text)
    return value


def _characters(text: str) -> str:
    """Join what JSON writes as two escapes, a surrogate pair, to the one character that it stands for."""
    if not any("\ud800" <= each <= "\udfff" for each in text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise ValueError("holds half a character, an escape from \\ud800 to \\udfff without its other half") from error


def _integer(number: int, text: str) -> int | float:
    """Integers beyond 64 bits are rounded, as Go's reader does."""
    if -_LARGEST_INTEGER // 2 <= number < _LARGEST_INTEGER:
        return number
    try:
        return float(number)
    except OverflowError:
        raise ValueError(f"holds {text[:20]}..., which is too large") from None


def _finite(number: float, text: str) -> float:
    if not math.isfinite(number):
        raise ValueError(f"holds {text}, which JSON has no number for")
    return number


def _binary(text: str) -> str:
    try:
        return base64.b64decode(text).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError(f"has !!binary data that is no text: {error}") from error
