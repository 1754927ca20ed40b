"""Parses YAML files as Go operators do: expansion of variables, nodes with line numbers, plain values, `Problems`.

Values follow YAML 1.1 as Go implements it: `yes` and `on` are booleans, dates and `1:30` are text, `1e3` is a number.

Variables are expanded in the text before it is parsed. Existing files depend on it: a variable can contain a number,
a boolean, a flow mapping or a key. It can be in a place where YAML does not allow `${`, as in `{group: ${GROUP}}`. A
value with line breaks shifts the lines below it, so each line of the result has the number of its line in the file.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from runner.values.errors import ConfigError

_VARIABLE = re.compile(r"\$(?:\{([^}\s]+)\}|([A-Za-z_][A-Za-z0-9_]*))")
_SHOWN = 72
"""Characters of a line that show the place of an error."""
_STANDARD = "tag:yaml.org,2002:"
_GO_FLOAT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+")
_LARGEST_INTEGER = 2**64
_PLACES = 5
"""Further places of a problem that its line names."""
_ADVICE = (
    (re.compile(r"'\\t'|tab"), "indent with spaces, not with tabs"),
    (re.compile(r"mapping values"), "quote a value that contains a colon and a space, or check the indentation"),
    (re.compile(r"cannot start any token"), "quote a value that begins with this character"),
    (re.compile(r"end of stream"), "close the quote"),
    (re.compile(r"expected ',' or"), "close the bracket, or quote the value"),
    (re.compile(r"expected ':'"), "write a colon and a space after the key"),
    (re.compile(r"expected <block end>"), "check the indentation, and quotes inside of the value"),
    (re.compile(r"undefined alias|scanning an a"), "quote a value that begins with * or &"),
    (re.compile(r"escape"), "write two backslashes, or use single quotes"),
)
"""What to do about messages of the parser; the first that matches counts."""
_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Loader in C, ten times as fast, where PyYAML has it."""
_CONSTRUCTED = {_STANDARD + tag for tag in ("bool", "int", "float", "timestamp")}
_CONSTRUCTOR = yaml.constructor.SafeConstructor()


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """An error or warning. `subject` is a watch and its field; empty for the whole file. `line` 0: unknown."""

    file: str
    line: int
    subject: str
    message: str
    is_hint: bool = False
    """A warning that affects no run."""
    excerpt: str = field(default="", compare=False)
    """Lines of the file that show the place."""

    def __str__(self) -> str:
        return self.render("")

    def render(self, level: str) -> str:
        """Return `file:line: level: subject: message` without empty parts."""
        location = f"{self.file}:{self.line}" if self.line else self.file
        message = " ".join(self.message.splitlines())
        return ": ".join(part for part in (location, level, self.subject, message) if part)


@dataclass(slots=True)
class Problems:
    """Errors and warnings of files, to report all at once."""

    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def raise_errors(self) -> None:
        """Raise a ConfigError with a line for each error, in the order of the file, if there is any."""
        if self.errors:
            raise ConfigError("\n".join(str(problem) for problem in sorted(set(self.errors))))

    def report(self, *, strict: bool) -> list[tuple[str, str]]:
        """Return level and text of each line for users: errors, warnings, then hints.

        A message that is repeated is one line, with the other places. `strict` makes warnings errors.
        """
        level = "error" if strict else "warning"
        ranked = {(0, "error", problem) for problem in self.errors}
        ranked |= {(1 + problem.is_hint, level, problem) for problem in self.warnings}
        repeated: dict[tuple[str, str, str], list[Problem]] = {}
        for _, name, problem in sorted(ranked):
            repeated.setdefault((name, problem.subject, problem.message), []).append(problem)
        return [
            (name, first.render(name) + _also(first, rest) + first.excerpt)
            for (name, *_), (first, *rest) in repeated.items()
        ]

    def warning_lines(self) -> tuple[str, ...]:
        """Return the warnings, in the order of the file."""
        return tuple(str(problem) for problem in sorted(set(self.warnings)))


def _also(first: Problem, others: list[Problem]) -> str:
    """Return the further places of a problem; empty if there is none."""
    places = [
        f"line {other.line}" if other.file == first.file else f"{other.file}:{other.line}".removesuffix(":0")
        for other in others
    ]
    more = [f"{len(places) - _PLACES} more"] if len(places) > _PLACES else []
    return f" (also in {', '.join([*places[:_PLACES], *more])})" if places else ""


@dataclass(frozen=True, slots=True)
class SourceText:
    """Text of a file after expansion of variables."""

    file: str
    text: str
    origins: tuple[int, ...]
    """For each line of `text`, its line in the file."""
    replaced: Mapping[int, tuple[str, ...]]
    """Expanded variables by line of the file."""

    def line(self, mark: yaml.Mark | None) -> int:
        """Return the line in the file, counted from 1, of a mark of the parser."""
        return self.origins[min(mark.line, len(self.origins) - 1)] if mark else 1


def read(path: Path, file: str) -> str:
    """Read a text file. Raises ConfigError, with the name `file`, if that fails."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{file}: file not found ({path.absolute()})") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{file}: invalid UTF-8 ({error.reason} at byte {error.start}); save the file as UTF-8"
        ) from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot read the file: {error.strerror}") from error


def expand(file: str, text: str, environ: Mapping[str, str]) -> SourceText:
    """Expand `${NAME}` and `$NAME` from the environment. Variables that are not set stay in the text."""
    pieces: list[str] = []
    origins: list[int] = []
    replaced: dict[int, tuple[str, ...]] = {}
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        piece = _VARIABLE.sub(lambda match: environ.get(match[1] or match[2], match[0]), line)
        names = tuple(name for name in variables(line) if name in environ)
        if names:
            replaced[number] = names
        pieces.append(piece)
        origins += [number] * max(len(piece.splitlines()), 1)
    return SourceText(file, "".join(pieces), (*origins, max(origins, default=1)), replaced)


def variables(text: str) -> list[str]:
    """Return the names of the variables in a text."""
    return [match[1] or match[2] for match in _VARIABLE.finditer(text)]


def documents(source: SourceText, problems: Problems) -> list[yaml.Node]:
    """Return the root of each document. A syntax error is added to `problems` and ends the list."""
    roots: list[yaml.Node] = []
    # The other loader reports the error, with its context. Variables can contain bytes that are not UTF-8.
    with contextlib.suppress(yaml.YAMLError, UnicodeEncodeError):
        return list(_nodes(_FAST(source.text)))
    try:
        roots.extend(_nodes(yaml.SafeLoader(source.text)))
    except yaml.MarkedYAMLError as error:
        is_unclosed = error.context_mark is not None and "end of stream" in (error.problem or "")
        mark = error.context_mark if is_unclosed else error.problem_mark or error.context_mark
        line = source.line(mark)
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        advice = next((words for pattern, words in _ADVICE if pattern.search(error.problem or "")), "")
        column = f" in column {mark.column + 1}" if mark else ""
        message = f"invalid YAML{column}: {f'{advice} ({reason})' if advice else reason}{_hint(source, mark)}"
        problems.errors.append(Problem(source.file, line, "", message, excerpt=_excerpt(source, mark)))
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        problems.errors.append(Problem(source.file, 0, "", f"invalid YAML: {reason}"))
    except RecursionError:
        problems.errors.append(Problem(source.file, 0, "", "invalid YAML: nested too deeply"))
    return roots


def values(text: str) -> Any:
    """Return the first document of a text as plain JSON values; None if it is invalid."""
    try:
        return next(map(plain, documents(expand("", text, {}), Problems())), None)
    except ValueError:
        return None


def _nodes(loader: Any) -> Iterator[yaml.Node]:
    while loader.check_node():
        root = loader.get_node()
        if root is not None:
            yield root


def _excerpt(source: SourceText, mark: yaml.Mark | None) -> str:
    """Return the line of a mark, below it a caret; empty if the file ends there."""
    lines = source.text.splitlines()
    text = lines[mark.line] if mark and mark.line < len(lines) else ""
    if not mark or not text.strip() or not text.replace("\t", " ").isprintable():
        return ""
    begin = max(mark.column - _SHOWN // 2, 0)
    shown = text[begin : begin + _SHOWN].replace("\t", "→")
    return f"\n    {shown}\n    {' ' * (mark.column - begin)}^"


def _hint(source: SourceText, mark: yaml.Mark | None) -> str:
    """Return the variables in an invalid line: their values, or missing values, may be the reason."""
    lines = source.text.splitlines()
    left = variables(lines[mark.line]) if mark and mark.line < len(lines) else []
    if left:
        return f" (not set in the environment: {', '.join(left)})"
    names = source.replaced.get(source.line(mark))
    return f" (after expansion of {', '.join(names)} from the environment)" if names else ""


def repeated_keys(source: SourceText, root: yaml.Node) -> Iterator[tuple[int, str, int]]:
    """Yield line, key and first line of each duplicate key."""
    for node in _all_nodes(root):
        if isinstance(node, yaml.MappingNode):
            first: dict[str, int] = {}
            for key, _ in node.value:
                name = f"{key.tag} {key.value}" if isinstance(key, yaml.ScalarNode) else f"{id(key)}"
                line = source.line(key.start_mark)
                if name in first and isinstance(key, yaml.ScalarNode):
                    yield line, key.value, first[name]
                first.setdefault(name, line)


def report_unreadable(source: SourceText, root: yaml.Node, problems: Problems) -> None:
    """Add an error for each value that Ansible and PyYAML cannot read, such as the date 2026-02-31."""
    for node in _all_nodes(root):
        if isinstance(node, yaml.ScalarNode) and node.tag in _CONSTRUCTED:
            try:
                _CONSTRUCTOR.yaml_constructors[node.tag](_CONSTRUCTOR, node)
            except (ValueError, LookupError, AttributeError) as error:
                place = f"invalid YAML in column {node.start_mark.column + 1}"
                message = f"{place}: correct the value {node.value!r}, or quote it if it is text ({error})"
                problems.errors.append(Problem(source.file, source.line(node.start_mark), "", message))


def _all_nodes(root: yaml.Node) -> Iterator[yaml.Node]:
    """Yield each node once."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            if isinstance(node, yaml.CollectionNode):
                waiting += node.value if isinstance(node, yaml.SequenceNode) else itertools.chain(*node.value)


def merged(node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
    """Return the pairs of a mapping with `<<` resolved; later pairs win. Raises ValueError for an invalid `<<`."""
    try:
        _CONSTRUCTOR.flatten_mapping(node)
    except yaml.MarkedYAMLError as error:
        raise ValueError(f"{error.problem}; `<<` requires a mapping or a list of mappings") from error
    pairs: list[tuple[yaml.Node, yaml.Node]] = node.value
    return pairs


def kind_of(node: yaml.Node) -> str:
    """Return the type of a node for messages: `a list`, `a mapping`, `a number`, `true or false`, `text`, `nothing`."""
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    names = {"null": "nothing", "bool": "true or false", "int": "a number", "float": "a number"}
    return names.get(node.tag.removeprefix(_STANDARD), "text")


def is_null(node: yaml.Node) -> bool:
    """Return whether a node is empty, `~` or `null`."""
    return isinstance(node, yaml.ScalarNode) and node.tag == _STANDARD + "null"


def is_bool(node: yaml.Node) -> bool:
    """Return whether a node is a boolean in Go, which includes a bare `y` or `n`."""
    if not isinstance(node, yaml.ScalarNode):
        return False
    return node.tag == _STANDARD + "bool" or (not node.style and node.value in {"y", "Y", "n", "N"})


def plain(node: yaml.Node) -> Any:
    """Return a node as plain JSON values; keys are text. Raises ValueError for values that JSON cannot represent."""
    return _plain(node, frozenset())


def _plain(node: yaml.Node, parents: frozenset[int]) -> Any:
    if id(node) in parents:
        raise ValueError("contains itself: an alias inside its own anchor")
    inside = parents | {id(node)}
    if isinstance(node, yaml.ScalarNode):
        try:
            return _scalar(node)
        except LookupError as error:  # such as `!!bool x`
            raise ValueError(f"invalid value {node.value!r}: it is not {kind_of(node)}") from error
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, inside) for item in node.value]
    values: dict[str, Any] = {}
    for key, value in merged(cast("yaml.MappingNode", node)):
        if isinstance(key, yaml.CollectionNode):
            raise ValueError(f"invalid key: found {kind_of(key)}, expected text")  # noqa: TRY004 - the value of a user is invalid
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
    elif tag == "str" and not node.style and _GO_FLOAT.fullmatch(text):
        value = _finite(float(text), text)
    elif tag == "binary":
        value = _binary(text)
    return value


def _characters(text: str) -> str:
    """Join surrogate pairs, which JSON writes as two escapes."""
    if not any("\ud800" <= character <= "\udfff" for character in text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise ValueError("invalid text: unpaired surrogate escape from \\ud800 to \\udfff") from error


def _integer(number: int, text: str) -> int | float:
    """Round integers beyond 64 bits to floats, as Go does."""
    if -_LARGEST_INTEGER // 2 <= number < _LARGEST_INTEGER:
        return number
    try:
        return float(number)
    except OverflowError:
        raise ValueError(f"number {text[:20]}... is too large") from None


def _finite(number: float, text: str) -> float:
    if not math.isfinite(number):
        raise ValueError(f"number {text} cannot be represented in JSON")
    return number


def _binary(text: str) -> str:
    try:
        return base64.b64decode(text).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError(f"!!binary data is not text: {error}") from error
