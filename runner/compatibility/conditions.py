"""Types of Jinja conditions. ansible-core 2.19 and later accept only booleans.

The type of an expression follows from its syntax, its filters and lookups, and from the definitions of variables. Pure;
imports Jinja, so import this module only when it is needed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, TemplateSyntaxError, nodes

TEXT, NUMBER, LIST, MAPPING, NOTHING = "text", "a number", "a list", "a mapping", "nothing"
BOOLEAN = "a boolean"
UNKNOWN = ""
TEMPLATE = "an expression with a template inside"
"""Not a type: ansible-core 2.19 and later reject `{{` inside an expression."""

_KNOWN: Mapping[str, Mapping[str, str]] = {
    table: {name: kind for kind, names in kinds.items() for name in names}
    for table, kinds in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
}
"""Types of the results of filters, lookups, attributes and methods, by name."""
_PROJECTION = re.compile(r"\[(\]|\*|\?)")
"""Parts of a JMESPath query whose result is a list."""
_ARITHMETIC = (nodes.Sub, nodes.Div, nodes.FloorDiv, nodes.Pow, nodes.Neg, nodes.Pos)
_LITERALS: dict[type, str] = {
    **dict.fromkeys((nodes.TemplateData, nodes.Concat), TEXT),
    **dict.fromkeys((nodes.List, nodes.Tuple), LIST),
    nodes.Dict: MAPPING,
    **dict.fromkeys((nodes.Compare, nodes.Not, nodes.Test), BOOLEAN),
}
_PLAIN: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, BOOLEAN),
    (str, TEXT),
    ((int, float), NUMBER),
    ((list, tuple), LIST),
    (dict, MAPPING),
)
_ENVIRONMENT = Environment(autoescape=False, extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"])  # noqa: S701 - it parses only


class Broken(NamedTuple):
    """A part of a condition that is not a boolean."""

    source: str
    """The part, if it can be written briefly; otherwise empty."""
    type: str


def broken_part(condition: str, variables: Mapping[str, str]) -> Broken | None:
    """Return the part that makes the condition's result another type than boolean; None if no such part is known.

    `variables`: types of variables. Invalid syntax has no result: Ansible reports it.
    """
    text = _expression(condition)
    if not text:
        return Broken("", NOTHING)
    try:
        parts = _parts(text)
    except TemplateSyntaxError:
        return Broken("", TEMPLATE) if "{{" in text else None
    results = (Broken(_source(part), _type(part, variables)) for part in parts)
    return next((result for result in results if result.type not in {BOOLEAN, UNKNOWN}), None)


def type_of(expression: str, variables: Mapping[str, str]) -> str:
    """Return the type of an expression, or UNKNOWN."""
    try:
        return _of_all(_type(part, variables) for part in _parts(_expression(expression) or "none"))
    except TemplateSyntaxError:
        return UNKNOWN


def _of_all(types: Iterable[str]) -> str:
    """Return the type of a result that is one of several: a wrong type if one has it, otherwise the common type."""
    distinct = set(types)
    others = distinct - {BOOLEAN, UNKNOWN}
    return min(others) if others else BOOLEAN if distinct == {BOOLEAN} else UNKNOWN


def _expression(condition: str) -> str:
    text = condition.strip()
    is_template = text.startswith("{{") and text.endswith("}}") and text.count("{{") == 1
    return text[2:-2].strip() if is_template else text


def _parts(text: str) -> list[nodes.Node]:
    """Return the parts of an expression, one of which is its result. Raises TemplateSyntaxError."""
    parsed = _ENVIRONMENT.parse("{{ (" + text + "\n) }}")
    return [part for output in parsed.find_all(nodes.Output) for node in output.nodes for part in _results(node)]


def _results(node: nodes.Node) -> Iterator[nodes.Node]:
    match node:
        case nodes.And() | nodes.Or():
            yield from (*_results(node.left), *_results(node.right))
        case nodes.CondExpr(expr1=first, expr2=second):
            yield from (*_results(first), *(_results(second) if second is not None else ()))
        case _:
            yield node


def _type(node: nodes.Node | None, variables: Mapping[str, str]) -> str:
    """Return the type of an expression, or UNKNOWN."""
    type_name = NUMBER if isinstance(node, _ARITHMETIC) else _LITERALS.get(type(node), UNKNOWN)
    match node:
        case nodes.Const(value=value):
            type_name = _type_of_value(value)
        case nodes.Add() | nodes.Mul() | nodes.Mod():
            type_name = _type_of_sum(node, variables)
        case nodes.Name(name=name):
            type_name = variables.get(name, UNKNOWN)
        case nodes.Getattr(attr=name) | nodes.Getitem(arg=nodes.Const(value=str(name))):
            type_name = _KNOWN["attributes"].get(name, UNKNOWN)
        case nodes.Getitem(node=inner):
            type_name = MAPPING if _is_resources(inner) else UNKNOWN
        case nodes.Filter():
            type_name = _type_of_filter(node, variables)
        case nodes.Call():
            type_name = _type_of_call(node)
        case nodes.And() | nodes.Or() | nodes.CondExpr():
            types = {_type(part, variables) for part in _results(node)}
            type_name = types.pop() if len(types) == 1 else UNKNOWN
    return type_name


def _type_of_sum(node: nodes.Add | nodes.Mul | nodes.Mod, variables: Mapping[str, str]) -> str:
    """Return the type of `+`, `*` and `%`, which also join, repeat and format texts and lists."""
    sides = _type(node.left, variables), _type(node.right, variables)
    if isinstance(node, nodes.Add):
        return NUMBER if NUMBER in sides else UNKNOWN  # a number is added to numbers only
    return NUMBER if sides == (NUMBER, NUMBER) else UNKNOWN


def _type_of_filter(node: nodes.Filter, variables: Mapping[str, str]) -> str:
    name = node.name.rpartition(".")[2]
    if name in {"default", "d"}:
        default = _type(node.args[0], variables) if node.args else TEXT
        value = _type(node.node, variables)
        # A default that is a boolean says nothing about the value that a user sets.
        return value or (default if default != BOOLEAN else UNKNOWN)
    if name == "mandatory":
        return _type(node.node, variables)
    if name == "ternary":
        return _of_all(_type(argument, variables) for argument in node.args)
    if name == "json_query" and node.args:
        match node.args[0]:
            case nodes.Const(value=str(query)) if _PROJECTION.search(query) and "|" not in query:
                return LIST
    return _KNOWN["filters"].get(name, UNKNOWN)


def _type_of_call(node: nodes.Call) -> str:
    match node.node, node.args:
        case nodes.Name(name="query" | "q"), _:
            return LIST
        case nodes.Name(name="lookup"), [nodes.Const(value=str(plugin)), *_]:
            is_list = any(keyword.key == "wantlist" for keyword in node.kwargs)
            return LIST if is_list else _KNOWN["lookups"].get(plugin.removeprefix("ansible.builtin."), UNKNOWN)
        case nodes.Getattr(attr=name), _:
            return _KNOWN["methods"].get(name, UNKNOWN)
    return UNKNOWN


def _is_resources(node: nodes.Node) -> bool:
    """Return whether the items of a list are objects of the API."""
    match node:
        case nodes.Getattr(attr="resources") | nodes.Getitem(arg=nodes.Const(value="resources")):
            return True
    return False


def type_of_template(value: object, variables: Mapping[str, str]) -> str:
    """Return the type of the value of a variable, which can be a template, or UNKNOWN."""
    if not isinstance(value, str) or not ("{{" in value or "{%" in value):
        return _type_of_value(value)
    try:
        body = _ENVIRONMENT.parse(value).body
    except TemplateSyntaxError:
        return UNKNOWN
    match [node for node in body if not isinstance(node, (nodes.Assign, nodes.ExprStmt))]:
        case [nodes.Output(nodes=[nodes.Expr() as only])] if not isinstance(only, nodes.TemplateData):
            return _of_all(_type(part, variables) for part in _results(only))
    return TEXT  # several parts are joined


def _type_of_value(value: object) -> str:
    return NOTHING if value is None else next((name for kind, name in _PLAIN if isinstance(value, kind)), UNKNOWN)


def _source(node: nodes.Node) -> str:
    """Return the text of a simple expression, otherwise nothing."""
    text = ""
    match node:
        case nodes.Name(name=name):
            text = name
        case nodes.Const(value=value):
            text = repr(value)
        case nodes.List(items=[]):
            text = "[]"
        case nodes.Dict(items=[]):
            text = "{}"
        case nodes.Getattr(node=inner, attr=name):
            text = f"{before}.{name}" if (before := _source(inner)) else ""
        case nodes.Getitem(node=inner, arg=nodes.Const(value=key)):
            text = f"{before}[{key!r}]" if (before := _source(inner)) else ""
        case nodes.Filter(node=nodes.Node() as inner, name=name, args=args):
            arguments = [_source(argument) for argument in args]
            before = _source(inner)
            if before and all(arguments):
                text = f"{before} | {name}" + (f"({', '.join(arguments)})" if arguments else "")
    return text
