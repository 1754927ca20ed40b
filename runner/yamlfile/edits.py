"""Changes of YAML files that people edit too: the rest of their text stays as it is, comments and all.

Works on text, guided by the parser's marks. Promises: what is returned differs from what was given by inserted lines
(or by an empty list that became one with an item), and parses to the old document with just that added; where that
cannot be done, a ConfigError says what to write by hand. Pure.
"""

from __future__ import annotations

import textwrap
from typing import Any

import yaml

from runner.errors import ConfigError

_INDENT = 2
_WIDTH = 100
"""A line ends with the first word that passes this."""


def insert(text: str, path: tuple[str, ...], item: str, *, file: str) -> str:
    """Return `text` with `item` at the end of the list at `path`; as it was, if the list holds the item already.

    `item` is YAML, begins with `- ` and ends with a line break. An empty `path` is the document itself. `file` is its
    name, for errors. Raises ConfigError.
    """
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        before = yaml.safe_load(text) if len(documents) == 1 else None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{file}:{mark.line + 1}" if mark else file
        raise ConfigError(f"{place}: is no valid YAML ({getattr(error, 'problem', error)}); mend it first") from None
    if len(documents) > 1:
        raise ConfigError(f"{file}: holds several documents; add this by hand to the right one:\n{item}")
    [added] = yaml.safe_load(item)
    found = _at(before, path)
    if isinstance(found, list) and added in found:
        return text
    root = documents[0] if documents else None
    after = _inserted(text, root, path, item, file)
    if _parsed(after) != _with(before, path, added):
        raise ConfigError(f"{file}: cannot be changed without changing its meaning; add this by hand:\n{item}")
    return after


def put(text: str, path: tuple[str, ...], value: Any, *, file: str) -> str:
    """Return `text` with `value` under the last key of `path`, at the end of the mapping that holds it; keys on the way
    are made. As it was, if something stands there already. `file` is its name, for errors. Raises ConfigError.
    """  # noqa: D205 - one thought
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: is no valid YAML ({getattr(error, 'problem', error)}); mend it first") from None
    before = yaml.safe_load(text)
    depth = 0
    while depth < len(path) and _find(root, path[: depth + 1])[1] is not None:
        depth += 1
    if depth == len(path):
        return text
    node = _find(root, path[:depth])[1] if depth else root
    for name in reversed(path[depth + 1 :]):
        value = {name: value}
    piece = dump({path[depth]: value})
    after = ""
    if isinstance(node, yaml.MappingNode) and node.value and not node.flow_style:
        after = _after(text, last_line(node), textwrap.indent(piece, " " * node.start_mark.column))
    if not after or _parsed(after) != _having(before, path[: depth + 1], value):
        raise ConfigError(f"{file}: cannot be extended; add this by hand to {'.'.join(path[:depth])}:\n{piece}")
    return after


def dump(value: Any, begin: str = "", column: int = 0) -> str:
    """Return plain values as YAML in our form; it is to be indented to `column`."""
    width = max(_WIDTH - column, _WIDTH // 2)
    return begin + yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=width)


def replace(text: str, node: yaml.Node, value: Any) -> str:
    """Return `text` with the lines of a block `node` of it written anew from `value`."""
    lines = text.splitlines(keepends=True)
    body = dump(value, column=node.start_mark.column)
    piece = textwrap.indent(body, " " * node.start_mark.column)
    return "".join([*lines[: node.start_mark.line], piece, *lines[last_line(node) :]])


class Dumper(yaml.SafeDumper):
    """Indents the items of lists."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - the library's own signature
        """Indent them, whatever the library would do."""
        super().increase_indent(flow, False)  # noqa: FBT003 - the same


def _inserted(text: str, root: yaml.Node | None, path: tuple[str, ...], item: str, file: str) -> str:
    key, node = _find(root, path)
    by_hand = " to ".join(["add this by hand", *filter(None, [".".join(path)])]) + f":\n{item}"
    if isinstance(node, yaml.SequenceNode) and node.value and not node.flow_style:
        return _after(text, last_line(node), textwrap.indent(item, " " * node.start_mark.column))
    if isinstance(node, yaml.SequenceNode) and node.value:
        raise ConfigError(f"{file}:{node.start_mark.line + 1}: a list in one line is not extended; {by_hand}")
    if node is None and key is None:
        if len(path) > 1 or (root is not None and not isinstance(root, yaml.MappingNode) and not _is_empty(root)):
            raise ConfigError(f"{file}: has no such list; {by_hand}")
        body = f"{path[0]}:\n{textwrap.indent(item, ' ' * _INDENT)}" if path else item
        return _after(text, text.count("\n") + (not text.endswith("\n")), body)
    if node is not None and _is_empty(node):
        return _filled(text, key, node, item)
    line = node.start_mark.line + 1 if node else 0
    raise ConfigError(f"{file}:{line}: is no list; {by_hand}")


def _filled(text: str, key: yaml.Node | None, node: yaml.Node, item: str) -> str:
    """Put the item where an empty list, or nothing, stands."""
    start, end = node.start_mark.index, node.end_mark.index
    column = key.start_mark.column + _INDENT if key else 0
    rest = text[:start].rstrip(" ") + text[end:]
    line = key.end_mark.line if key else node.start_mark.line
    return _after(rest, line + (key is not None), textwrap.indent(item, " " * column))


def _after(text: str, lines: int, piece: str) -> str:
    """Insert whole lines behind the first `lines` lines."""
    split = text.splitlines(keepends=True)
    if split and not split[-1].endswith("\n"):
        split[-1] += "\n"
    return "".join([*split[:lines], piece, *split[lines:]])


def _find(root: yaml.Node | None, path: tuple[str, ...]) -> tuple[yaml.Node | None, yaml.Node | None]:
    """The key node (None for the document) and the value node at a path; both None where there is none."""
    key: yaml.Node | None = None
    node = root
    for name in path:
        if not isinstance(node, yaml.MappingNode):
            return None, None
        pairs = [pair for pair in node.value if pair[0].value == name]
        if not pairs:
            return None, None
        key, node = pairs[0]
    return key, (None if node is root and key is None and node is not None and _is_nothing(node) else node)


def _is_nothing(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null" and not node.value


def _is_empty(node: yaml.Node) -> bool:
    null = isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"
    return null or (isinstance(node, yaml.SequenceNode) and not node.value)


def find(root: yaml.Node | None, path: tuple[str, ...]) -> yaml.Node | None:
    """Return what stands at a path of mappings; None where nothing does."""
    return _find(root, path)[1]


def last_line(node: yaml.Node) -> int:
    """How many lines there are up to the end of a node's last value; comments behind it do not count."""
    while isinstance(node, yaml.CollectionNode) and node.value and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return int(node.end_mark.line) + (node.end_mark.column > 0)


def _parsed(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def _at(document: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _having(document: Any, path: tuple[str, ...], value: Any) -> Any:
    """A document with a value at a path, as plain values."""
    first, *rest = path
    return {**document, first: _having(document[first], tuple(rest), value) if rest else value}


def _with(document: Any, path: tuple[str, ...], added: Any) -> Any:
    """A document with the item added, as plain values."""
    if not path:
        return [*(document or []), added]
    base = document or {}
    return {**base, path[0]: _with(base.get(path[0]), path[1:], added)}
