"""Edits of YAML files that keep the rest of the text, with its comments. Pure, except `write`.

The parser's marks give the position of an edit in the text. The result differs from the input by inserted lines only,
or by an empty list that now has an item. It parses to the old document plus the addition. Otherwise, a ConfigError
contains the lines to add by hand. ruamel.yaml would reformat one in ten files of the examples.
"""

from __future__ import annotations

import difflib
import itertools
import re
import textwrap
from pathlib import Path
from typing import Any

import yaml

from runner.base.yamlfile import nodes
from runner.values.errors import ConfigError

_INDENT = 2
_WIDTH = 100
"""Column after which the dumper breaks a line."""
_GO_NUMBER = re.compile(r"[-+]?(?:\.\d[\d_]*|\d[\d_]*(?:\.[\d_]*)?)(?:[eE][-+]?\d[\d_]*)?$", re.ASCII)
_GO_OCTAL = re.compile(r"[-+]?0o[0-7][0-7_]*$")
_GO_BOOLEAN = re.compile(r"[yYnN]$")


def insert(text: str, path: tuple[str, ...], item: str, *, file: str) -> str:
    """Return `text` with `item` appended to the list at `path`; unchanged if the list contains the item.

    `item` is YAML, begins with `- ` and ends with a line break. An empty `path` is the whole document. Raises
    ConfigError with the name `file`.
    """
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        before = yaml.safe_load(text) if len(documents) == 1 else None
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        location = f"{file}:{mark.line + 1}" if mark else file
        raise ConfigError(
            f"{location}: invalid YAML ({getattr(error, 'problem', error)}); fix the file first"
        ) from None
    if len(documents) > 1:
        raise ConfigError(f"{file}: contains several documents; add this to one of them by hand:\n{item}")
    [added] = yaml.safe_load(item)
    items = _at(before, path)
    if isinstance(items, list) and added in items:
        return text
    root = documents[0] if documents else None
    after = _inserted(text, root, path, item, file)
    if _parsed(after) != _with(before, path, added):
        raise ConfigError(f"{file}: cannot edit the file without other changes; add this by hand:\n{item}")
    return after


def put(text: str, path: tuple[str, ...], value: Any, *, file: str) -> str:
    """Return `text` with `value` at `path`, appended to the innermost mapping; unchanged if the path exists.

    Missing mappings are added. Raises ConfigError with the name `file`.
    """
    try:
        root, before = yaml.compose(text, Loader=yaml.SafeLoader), yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{file}: invalid YAML ({getattr(error, 'problem', error)}); fix the file first") from None
    missing = (depth for depth in range(len(path)) if nodes.at(root, *path[: depth + 1]) is None)
    depth = next(missing, len(path))
    if depth == len(path):
        return text
    node = nodes.at(root, *path[:depth])
    for name in reversed(path[depth + 1 :]):
        value = {name: value}
    piece = dump({path[depth]: value})
    after = ""
    if isinstance(node, yaml.MappingNode) and node.value and not node.flow_style:
        after = _after(text, last_line(node), textwrap.indent(piece, " " * node.start_mark.column))
    if not after or _parsed(after) != _having(before, path[: depth + 1], value):
        raise ConfigError(f"{file}: cannot edit the file; add this by hand to {'.'.join(path[:depth])}:\n{piece}")
    return after


def dump(value: Any, begin: str = "", column: int = 0) -> str:
    """Return plain values as YAML in the project's format, for indentation to `column`."""
    width = max(_WIDTH - column, _WIDTH // 2)
    return begin + yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=width)


def scalar(value: Any) -> str:
    """Return a plain value as YAML in one line, with quotes if PyYAML or Go reads its text as another type."""
    return str(
        yaml.dump(value, Dumper=Dumper, default_flow_style=True, allow_unicode=True, width=1 << 30).splitlines()[0]
    )


def replace(text: str, node: yaml.Node, value: Any) -> str:
    """Return `text` with the lines of its block `node` replaced by `value`."""
    lines = text.splitlines(keepends=True)
    body = dump(value, column=node.start_mark.column)
    piece = textwrap.indent(body, " " * node.start_mark.column)
    return "".join([*lines[: node.start_mark.line], piece, *lines[last_line(node) :]])


def with_line_ends(text: str, original: str) -> str:
    """Return `text`, whose lines end in LF, with the line ends of the original; added lines end as its first one."""
    lines, changed = original.splitlines(keepends=True), text.splitlines(keepends=True)
    known = [line.replace("\r\n", "\n") for line in lines]
    end = "\r\n" if known[:1] != lines[:1] else "\n"
    added = [line.replace("\n", end) for line in changed]
    steps = difflib.SequenceMatcher(None, known, changed).get_opcodes() if known != lines else []
    pieces = [lines[a:b] if tag == "equal" else added[c:d] for tag, a, b, c, d in steps]
    return "".join(itertools.chain(*pieces)) if steps else text


def write(path: Path, text: str) -> None:
    """Write a file, which keeps its line ends."""
    before = path.read_bytes().decode() if path.exists() else ""
    path.write_text(with_line_ends(text, before), encoding="utf-8", newline="")


class Dumper(yaml.SafeDumper):
    """Dumper that indents list items."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - the library's own signature
        """Ignore `indentless`."""
        super().increase_indent(flow, False)  # noqa: FBT003 - the same


class BlockDumper(yaml.SafeDumper):
    """Dumper that writes text of several lines as a block, and repeated values again instead of as aliases."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the library's own signature
        """Return True for each value."""
        return True

    def _text(self, data: str) -> yaml.ScalarNode:
        # PyYAML quotes text of which a line ends in a blank, whatever the style is.
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


BlockDumper.add_representer(str, BlockDumper._text)  # noqa: SLF001 - it is complete only here


class Loader(yaml.SafeLoader):
    """Loader that reads a number such as 1e+06 as Go programs do, which PyYAML takes for text."""

    bool_values = {**yaml.SafeLoader.bool_values, "y": True, "n": False}  # noqa: RUF012 - as the library has it


for _form in (Loader, Dumper, BlockDumper):
    # Text that only Go reads as another type needs quotes, or kubectl and Helm send another value.
    _form.add_implicit_resolver("tag:yaml.org,2002:float", _GO_NUMBER, list("-+.0123456789"))
    _form.add_implicit_resolver("tag:yaml.org,2002:int", _GO_OCTAL, list("-+0"))
    _form.add_implicit_resolver("tag:yaml.org,2002:bool", _GO_BOOLEAN, list("yYnN"))


def _inserted(text: str, root: yaml.Node | None, path: tuple[str, ...], item: str, file: str) -> str:
    key, node = _find(root, path)
    by_hand = " to ".join(["add this by hand", *filter(None, [".".join(path)])]) + f":\n{item}"
    if isinstance(node, yaml.SequenceNode) and node.value and not node.flow_style:
        return _after(text, last_line(node), textwrap.indent(item, " " * node.start_mark.column))
    if isinstance(node, yaml.SequenceNode) and node.value:
        raise ConfigError(f"{file}:{node.start_mark.line + 1}: cannot extend a list in flow style; {by_hand}")
    if node is None and key is None:
        if len(path) > 1 or (root is not None and not isinstance(root, yaml.MappingNode) and not _is_empty(root)):
            raise ConfigError(f"{file}: list not found; {by_hand}")
        body = f"{path[0]}:\n{textwrap.indent(item, ' ' * _INDENT)}" if path else item
        return _after(text, text.count("\n") + (not text.endswith("\n")), body)
    if node is not None and _is_empty(node):
        return _filled(text, key, node, item)
    line = node.start_mark.line + 1 if node else 0
    raise ConfigError(f"{file}:{line}: not a list; {by_hand}")


def _filled(text: str, key: yaml.Node | None, node: yaml.Node, item: str) -> str:
    """Replace an empty list, or nothing, by the item."""
    start, end = node.start_mark.index, node.end_mark.index
    column = key.start_mark.column + _INDENT if key else 0
    rest = text[:start].rstrip(" ") + text[end:]
    line = key.end_mark.line if key else node.start_mark.line
    return _after(rest, line + (key is not None), textwrap.indent(item, " " * column))


def _after(text: str, lines: int, piece: str) -> str:
    """Insert lines after the first `lines` lines."""
    split = text.splitlines(keepends=True)
    if split and not split[-1].endswith("\n"):
        split[-1] += "\n"
    return "".join([*split[:lines], piece, *split[lines:]])


def _find(root: yaml.Node | None, path: tuple[str, ...]) -> tuple[yaml.Node | None, yaml.Node | None]:
    """Return key node (None for the document) and value node at a path; None for both if it does not exist."""
    if not path:
        return None, None if root is not None and _is_nothing(root) else root
    pairs = nodes.pairs(nodes.at(root, *path[:-1]))
    return next((pair for pair in pairs if pair[0].value == path[-1]), (None, None))


def _is_nothing(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null" and not node.value


def _is_empty(node: yaml.Node) -> bool:
    null = isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"
    return null or (isinstance(node, yaml.SequenceNode) and not node.value)


def last_line(node: yaml.Node) -> int:
    """Return the number of lines up to the end of a node's last value, without comments after it."""
    while isinstance(node, yaml.CollectionNode) and node.value and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return int(node.end_mark.line) + (node.end_mark.column > 0)


def _parsed(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return None


def _at(document: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _having(document: Any, path: tuple[str, ...], value: Any) -> Any:
    """Return a document with a value added at a path, as plain values."""
    first, *rest = path
    return {**document, first: _having(document[first], tuple(rest), value) if rest else value}


def _with(document: Any, path: tuple[str, ...], added: Any) -> Any:
    """Return a document with an item appended to the list at a path, as plain values."""
    if not path:
        return [*(document or []), added]
    base = document or {}
    return {**base, path[0]: _with(base.get(path[0]), path[1:], added)}
