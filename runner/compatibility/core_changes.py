"""Constructs of roles that fail, or have another result, on ansible-core 2.19 and later.

`ansible-operator migrate` reports them before the migration. `validate` warns about them if the installed
ansible-core is affected. Reads files only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from runner.base.config import paths
from runner.base.config.paths import SearchPath
from runner.base.yamlfile import nodes, tree
from runner.compatibility import conditions, task_fields
from runner.compatibility.finding import Finding, Version, is_stricter, numbers
from runner.compatibility.validation import Task, ValidationResult
from runner.values.errors import shortened

_TEMPLATES_FIXED = (5, 3, 0)
"""First kubernetes.core whose option `template` works on ansible-core 2.19 and later."""
_K8S = {"k8s", "kubernetes.core.k8s", "community.kubernetes.k8s"}
_OF_ANY_TYPE = object()
_TEMPLATE = re.compile(r"\s*\{\{(.*)\}\}\s*", re.DOTALL)
_DEFAULT = re.compile(r"\| (default|d)\([^()]*\)$")
_TEXT_MAPPINGS = {"labels", "annotations", "matchLabels", "nodeSelector", "stringData"}
"""Fields of objects whose values are text."""
_TYPES = {
    "string": "text",
    "integer": "a number",
    "number": "a number",
    "array": "a list",
    "object": "a mapping",
    "boolean": "a boolean",
}
"""Types of fields of CRDs."""
_PERMISSION = "ANSIBLE_ALLOW_BROKEN_CONDITIONALS"
_TRUE = {"1", "true", "yes", "on", "y", "t"}
UNPROVEN = "unknown-type"
RESTORE = f"{_PERMISSION}=true, which ansible-core supports up to 2.22"
_ADVICE = {
    "implicit-boolean": f"Use ansible-core 2.18, or set {RESTORE}",
    "template-module": "Use ansible-core 2.18, or kubernetes.core 5.3.0 or later",
    "number-as-text": "Use ansible-core 2.18, or convert the values to text",
}
_DEPTH = 5
"""Variables that refer to each other in a chain of this length have a type."""
_LONGEST = 80
"""Characters of a condition in a message."""
_SHOWN = 3
"""Constructs that a warning shows."""


def findings(
    result: ValidationResult, kubernetes_core: Version | None, fields: Mapping[str, str] | None = None
) -> Iterator[Finding]:
    """Yield the constructs in roles and playbooks that ansible-core 2.19 and later treat differently.

    `kubernetes_core`: version of the collection; None: unknown or new enough. `fields`: types of the variables that
    specs set, as in CRDs.
    """
    variables = _variables(result, fields or {})
    for task in result.tasks:
        yield from _conditionals(task, variables)
        for name, key, arguments in task_fields.actions(task):
            if name in _K8S:
                if kubernetes_core is not None and kubernetes_core < _TEMPLATES_FIXED:
                    yield from _template(task, key, arguments, kubernetes_core)
                yield from _numbers(task, nodes.at(arguments, "definition"))


def unproven(result: ValidationResult, fields: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the conditions whose type this analysis cannot derive."""
    variables = _variables(result, fields)
    for task in result.tasks:
        for keyword, node in task_fields.conditions(task):
            if tree.is_null(node) or tree.is_bool(node) or not _is_unknown(node.value, variables):
                continue
            message = f"`{keyword}: {_brief(node.value)}`: the type of the condition is unknown"
            fix = "if it can be another type than boolean, write a comparison or `| bool`"
            line = task.source.line(node.start_mark)
            yield Finding(task.source.file, line, UNPROVEN, message, fix, "check")


def _is_unknown(condition: str, variables: Mapping[str, str]) -> bool:
    is_broken = conditions.broken_part(condition, variables) is not None
    return not is_broken and conditions.type_of(condition, variables) == conditions.UNKNOWN


def warnings(result: ValidationResult, search_path: SearchPath, environ: Mapping[str, str]) -> list[str]:
    """Return a sentence for each kind of construct that the installed ansible-core does not support."""
    if not is_stricter():
        return []
    groups: dict[str, list[Finding]] = {}
    for finding in findings(result, installed_version("kubernetes.core", search_path)):
        groups.setdefault(finding.rule, []).append(finding)
    if environ.get(_PERMISSION, "").lower() in _TRUE:
        groups.pop("implicit-boolean", None)
    installed = version("ansible-core")
    return [_warning(rule, sorted(group), installed) for rule, group in sorted(groups.items())]


def _warning(rule: str, group: list[Finding], installed: str) -> str:
    shown = "; ".join(f"{finding.place}: {finding.message}" for finding in group[:_SHOWN])
    more = f"; {len(group) - _SHOWN} more" if len(group) > _SHOWN else ""
    many = f"{len(group)} constructs" if len(group) > 1 else "a construct"
    return (
        f"ansible-core {installed} does not support {many} of roles ({rule}): {shown}{more}. {_ADVICE[rule]}; "
        "`ansible-operator migrate` lists all, with their fixes"
    )


def installed_version(collection: str, search_path: SearchPath) -> Version | None:
    """Return the version of an installed collection; None if it is not installed or has no manifest."""
    folder = paths.find_collection(collection, search_path).path
    try:
        manifest = json.loads((folder / "MANIFEST.json").read_text(encoding="utf-8")) if folder else {}
        return numbers(str(manifest["collection_info"]["version"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def types_of_fields(schema: Mapping[str, Any], name: Any) -> dict[str, str]:
    """Return the types of the variables that fields of a spec become. `name` converts a field's name.

    Fields of unknown type have the empty type.
    """
    properties = schema.get("properties") or {}
    return {
        name(key): _TYPES.get(str(value.get("type")), "")
        for key, value in properties.items()
        if isinstance(value, dict)
    }


def _conditionals(task: Task, variables: Mapping[str, str]) -> Iterator[Finding]:
    for keyword, node in task_fields.conditions(task):
        if tree.is_null(node) or tree.is_bool(node):
            continue
        broken = conditions.broken_part(node.value, variables)
        if broken is None:
            continue
        line = task.source.line(node.start_mark) + _line_within(node, broken.source)
        message = f"`{keyword}`: `{_brief(broken.source or node.value)}` is {broken.type}, not a boolean"
        fix = f"write {_boolean(broken)}"
        yield Finding(task.source.file, line, "implicit-boolean", message, fix, "stricter core")


def _line_within(node: yaml.ScalarNode, part: str) -> int:
    """Return the offset of the line of a block scalar that contains the part."""
    if node.style not in {"|", ">"}:
        return 0
    lines = node.value.splitlines() if node.style == "|" else []
    return 1 + next((number for number, line in enumerate(lines) if part and part in line), 0)


def _boolean(broken: conditions.Broken) -> str:
    """Return the fix of a condition: an expression that is true in the same cases."""
    source = broken.source
    if broken.type == conditions.TEMPLATE:
        return "the variables without `{{` and `}}`"
    if not source:
        return "a comparison, such as `… | length > 0`"
    comparison = "> 0" if "length" in source or "count" in source else "!= 0"
    if _DEFAULT.search(source):  # the type is that of the default, and the value can have another
        comparison = "is truthy"
    elif broken.type == conditions.NOTHING:
        comparison = "is not none"
    elif "regex_search" in source:
        return f"`({source}) is not none`"
    elif broken.type != conditions.NUMBER:
        comparison = "| length > 0"
    return f"`{source} {comparison}`"


def _brief(text: str) -> str:
    return shortened(" ".join(text.split()), _LONGEST)


def _template(task: Task, key: yaml.ScalarNode, arguments: yaml.Node, kubernetes_core: Version) -> Iterator[Finding]:
    option = nodes.at(arguments, "template")
    is_inline = isinstance(arguments, yaml.ScalarNode) and re.search(r"(^|\s)template=", arguments.value)
    if option is None and not is_inline:
        return
    message = (
        f"`template` of {key.value} with kubernetes.core {'.'.join(map(str, kubernetes_core))} sends the text of the "
        "template, not its result, to the API server on ansible-core 2.19 and later"
    )
    fix = "use ansible-core 2.18, or kubernetes.core 5.3.0 or later in requirements.yml"
    line = task.source.line((option or arguments).start_mark)
    yield Finding(task.source.file, line, "template-module", message, fix, "stricter core")


def _numbers(task: Task, definition: yaml.Node | None) -> Iterator[Finding]:
    """Yield fields of type text whose template has a number as result."""
    kind = nodes.at(definition, "kind")
    is_config_map = isinstance(kind, yaml.ScalarNode) and kind.value == "ConfigMap"
    waiting: list[tuple[yaml.Node, bool]] = [(definition, False)] if definition is not None else []
    while waiting:
        node, is_text = waiting.pop()
        if isinstance(node, yaml.SequenceNode):
            waiting += [(item, False) for item in node.value]
        for key, value in nodes.pairs(node):
            is_env = key.value == "value" and nodes.at(node, "name") is not None
            below = key.value in _TEXT_MAPPINGS or (is_config_map and key.value == "data" and node is definition)
            if isinstance(value, yaml.ScalarNode) and (is_text or is_env):
                yield from _number(task, key.value, value)
            else:
                waiting.append((value, below))


def _number(task: Task, name: str, value: yaml.ScalarNode) -> Iterator[Finding]:
    template = _TEMPLATE.fullmatch(value.value)
    if template is None or "{{" in template[1]:
        return
    broken = conditions.broken_part(template[1], {})
    if broken is not None and broken.type == conditions.NUMBER:
        message = f"the value of {name!r} must be text, and `{_brief(value.value)}` is a number since ansible-core 2.19"
        fix = f"write `{{{{ ({template[1].strip()}) | string }}}}`"
        yield Finding(
            task.source.file, task.source.line(value.start_mark), "number-as-text", message, fix, "stricter core"
        )


def _variables(result: ValidationResult, fields: Mapping[str, str]) -> dict[str, str]:
    """Return the types of variables whose definitions all have a type, and either all or none are boolean."""
    definitions: dict[str, list[object]] = {}
    for path in result.files:
        if {"defaults", "vars"} & set(path.parts[-3:-1]):
            for name, value in _values(path):
                definitions.setdefault(name, []).append(value)
    for task in result.tasks:
        for name, node in task_fields.definitions(task):
            definitions.setdefault(name, []).append({} if node is None else _plain(node))
    types: dict[str, str] = {}
    for _ in range(_DEPTH):
        kinds_by_name = {
            name: {conditions.type_of_template(value, types) for value in values}
            for name, values in definitions.items()
        }
        for name, kind in fields.items():
            kinds_by_name.setdefault(name, set()).add(kind)
        before, types = types, {name: _common(kinds) for name, kinds in kinds_by_name.items()}
        if types == before:
            break
    return types


def _common(kinds: set[str]) -> str:
    """Return the type of a variable with such definitions: of mixed ones that are never boolean, any of them."""
    if conditions.UNKNOWN in kinds or (conditions.BOOLEAN in kinds and len(kinds) > 1):
        return conditions.UNKNOWN
    return min(kinds)


def _values(path: Path) -> Iterable[tuple[str, object]]:
    try:
        document = tree.values(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return []  # the check of this file reports the error
    return document.items() if isinstance(document, dict) else []


def _plain(node: yaml.Node) -> object:
    try:
        return tree.plain(node)
    except ValueError:
        return _OF_ANY_TYPE
