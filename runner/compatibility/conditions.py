"""Types of Jinja conditions. ansible-core 2.19 and later accept only booleans.

The type of an expression follows from its syntax, and from variables with a literal value. If the type is unknown, the
condition is assumed to be boolean. Pure; imports Jinja, so import this module only when it is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from jinja2 import Environment, TemplateSyntaxError, nodes

TEXT, NUMBER, LIST, MAPPING, NOTHING = "text", "a number", "a list", "a mapping", "nothing"
TEMPLATE = "an expression with a template inside"
"""Not a type: ansible-core 2.19 and later reject `{{` inside an expression."""

_FILTERS = {
    **dict.fromkeys(("length", "count", "int", "float", "sum", "abs", "round", "wordcount"), NUMBER),
    **dict.fromkeys(("trim", "lower", "upper", "replace", "join", "string", "basename", "dirname", "quote"), TEXT),
    **dict.fromkeys(("regex_replace", "to_json", "to_nice_json", "to_yaml", "to_nice_yaml", "title"), TEXT),
    **dict.fromkeys(("b64encode", "b64decode", "hash", "capitalize", "regex_search"), TEXT),
    **dict.fromkeys(("list", "map", "select", "reject", "selectattr", "rejectattr", "sort", "unique"), LIST),
    **dict.fromkeys(("flatten", "difference", "intersect", "union", "symmetric_difference", "split"), LIST),
    **dict.fromkeys(("dict2items", "zip", "batch", "regex_findall", "subelements", "reverse"), LIST),
    **dict.fromkeys(("combine", "items2dict"), MAPPING),
}
"""Type of a filter's result; filters with results of any type are missing."""
_ATTRIBUTES = {
    **dict.fromkeys(("stdout", "stderr"), TEXT),
    **dict.fromkeys(("stdout_lines", "stderr_lines", "resources", "results"), LIST),
    **dict.fromkeys(("metadata", "labels", "annotations", "spec", "data", "stringData"), MAPPING),
    "rc": NUMBER,
}
"""Type of attributes of results that modules return, and of objects of the API."""
_METHODS = {
    **dict.fromkeys(("split", "splitlines", "keys", "values", "items"), LIST),
    **dict.fromkeys(("strip", "lower", "upper", "replace", "join", "format"), TEXT),
    **dict.fromkeys(("find", "index", "count"), NUMBER),
}
_PROJECTION = re.compile(r"\[(\]|\*|\?)")
"""Parts of a JMESPath query whose result is a list."""
_ARITHMETIC = (nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow, nodes.Neg, nodes.Pos)
_LITERALS: dict[type, str] = {
    **dict.fromkeys((nodes.TemplateData, nodes.Concat), TEXT),
    **dict.fromkeys((nodes.List, nodes.Tuple), LIST),
    nodes.Dict: MAPPING,
}
_PLAIN: tuple[tuple[type | tuple[type, ...], str], ...] = (
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
    """Return the part that makes the condition's result another type than boolean; None if there is none.

    `variables`: types of variables with a literal value. Invalid syntax has no result: Ansible reports it.
    """
    text = condition.strip()
    if text.startswith("{{") and text.endswith("}}") and text.count("{{") == 1:
        text = text[2:-2].strip()
    if not text:
        return Broken("", NOTHING)
    try:
        parsed = _ENVIRONMENT.parse("{{ (" + text + "\n) }}")
    except TemplateSyntaxError:
        return Broken("", TEMPLATE) if "{{" in text else None
    expressions = [each for output in parsed.find_all(nodes.Output) for each in output.nodes]
    return next((found for each in expressions for found in _broken(each, variables)), None)


def _broken(node: nodes.Node, variables: Mapping[str, str]) -> Iterator[Broken]:
    if isinstance(node, (nodes.And, nodes.Or)):
        yield from _broken(node.left, variables)
        yield from _broken(node.right, variables)
    elif isinstance(node, nodes.CondExpr):
        yield from _broken(node.expr1, variables)
        if node.expr2 is not None:
            yield from _broken(node.expr2, variables)
    else:
        found = _type(node, variables)
        if found:
            yield Broken(_source(node), found)


def _type(node: nodes.Node | None, variables: Mapping[str, str]) -> str:
    """Return the type of an expression; empty if it is a boolean or unknown."""
    found = NUMBER if isinstance(node, _ARITHMETIC) else _LITERALS.get(type(node), "")
    match node:
        case nodes.Const(value=value):
            found = _type_of_value(value)
        case nodes.Name(name=name):
            found = variables.get(name, "")
        case nodes.Getattr(attr=name) | nodes.Getitem(arg=nodes.Const(value=str(name))):
            found = _ATTRIBUTES.get(name, "")
        case nodes.Getitem(node=inner):
            found = MAPPING if _is_resources(inner) else ""
        case nodes.Filter():
            found = _type_of_filter(node, variables)
        case nodes.Call():
            found = _type_of_call(node)
    return found


def _type_of_filter(node: nodes.Filter, variables: Mapping[str, str]) -> str:
    name = node.name.rpartition(".")[2]
    if name in {"default", "d"}:
        default = _type(node.args[0], variables) if node.args else TEXT
        return _type(node.node, variables) or default
    if name == "ternary":
        return next((found for each in node.args if (found := _type(each, variables))), "")
    if name == "json_query" and node.args:
        match node.args[0]:
            case nodes.Const(value=str(query)) if _PROJECTION.search(query) and "|" not in query:
                return LIST
    return _FILTERS.get(name, "")


def _type_of_call(node: nodes.Call) -> str:
    if isinstance(node.node, nodes.Name) and node.node.name in {"query", "q"}:
        return LIST
    return _METHODS.get(node.node.attr, "") if isinstance(node.node, nodes.Getattr) else ""


def _is_resources(node: nodes.Node) -> bool:
    """Return whether the items of a list are objects of the API."""
    match node:
        case nodes.Getattr(attr="resources") | nodes.Getitem(arg=nodes.Const(value="resources")):
            return True
    return False


def type_of_literal(value: object) -> str:
    """Return the type of a variable's value; empty for booleans and templates."""
    return "" if isinstance(value, str) and ("{{" in value or "{%" in value) else _type_of_value(value)


def _type_of_value(value: object) -> str:
    if isinstance(value, bool):
        return ""
    return NOTHING if value is None else next((name for kind, name in _PLAIN if isinstance(value, kind)), "")


def _source(node: nodes.Node) -> str:
    """Return the text of a simple expression, otherwise nothing."""
    found = ""
    match node:
        case nodes.Name(name=name):
            found = name
        case nodes.Const(value=value):
            found = repr(value)
        case nodes.List(items=[]):
            found = "[]"
        case nodes.Dict(items=[]):
            found = "{}"
        case nodes.Getattr(node=inner, attr=name):
            found = f"{before}.{name}" if (before := _source(inner)) else ""
        case nodes.Getitem(node=inner, arg=nodes.Const(value=key)):
            found = f"{before}[{key!r}]" if (before := _source(inner)) else ""
        case nodes.Filter(node=nodes.Node() as inner, name=name, args=args):
            given = [_source(each) for each in args]
            before = _source(inner)
            if before and all(given):
                found = f"{before} | {name}" + (f"({', '.join(given)})" if given else "")
    return found
