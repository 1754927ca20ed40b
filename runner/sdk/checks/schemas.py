"""Argument specs of roles: their keys and types, the conversion of keys that are data, and CRDs that differ from them.

Reads files and executes nothing.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from runner.base.yamlfile import nodes, tree
from runner.base.yamlfile.tree import Problem, Problems
from runner.compatibility.validation import ValidationResult
from runner.core.engine.params import object_key, snake_case
from runner.core.watches import spec_paths
from runner.core.watches.spec_paths import Step
from runner.core.watches.watch import Role, Watch
from runner.sdk.checks.templates import Scan
from runner.sdk.schema import files
from runner.sdk.schema.fields import ANYTHING, OPERATOR_VARIABLES, TYPES, Json, SchemaMaker
from runner.values.errors import ConfigError, meant

_CONSTRAINTS = ("mutually_exclusive", "required_together", "required_one_of", "required_if", "required_by")
_OF_ENTRY = frozenset(
    {"short_description", "description", "author", "options", "version_added", "attributes", "examples", "seealso"}
    | {"notes", "deprecated", *_CONSTRAINTS}
)
_OF_OPTION = frozenset(
    {"type", "elements", "required", "default", "choices", "description", "options", "no_log", "version_added"}
    | {"aliases", "deprecated_aliases", "apply_defaults", "fallback", "example", *_CONSTRAINTS}
    | {"removed_in_version", "removed_at_date", "removed_from_collection"}
)
"""Keys that Ansible reads (https://docs.ansible.com/ansible/latest/dev_guide/developing_program_flow_modules.html)."""
_UNCOMPARED = frozenset({"description", "format", "x-kubernetes-preserve-unknown-fields"})
"""Parts of a schema that a user can write in other ways."""
_CONVERTED = "logLevel becomes log_level"
_ALIKE = 0.85
"""Similarity of a variable to one that a spec sets, from which it counts as mistyped."""


def report(result: ValidationResult, crds: Path, cwd: Path, scan: Scan, problems: Problems) -> None:
    """Add the problems of the project's argument specs and CRDs. `crds`: folder of the CRDs."""
    for path in result.files:
        if path.stem == "argument_specs" and path.is_relative_to(cwd):
            _Specs(os.path.relpath(path, cwd), path, scan.texts, problems).report(result.watches)
    fields: dict[str, str] = {}
    are_closed = True
    for watch in result.watches:
        try:
            path, _ = files.find_crd(crds, watch.gvk)
            schema = files.spec_of(crds, watch.gvk)
            maker = SchemaMaker(watch.snake_case_parameters)
            has_specs = isinstance(watch.content, Role) and files.entry_of(watch.content.path) is not None
            outdated = next(_differences(files.schema_of(watch, maker), schema, "spec"), "") if has_specs else ""
        except ConfigError:
            are_closed = False  # a project may store its CRDs elsewhere, and the checks of files report invalid ones
            continue
        fields |= {_variable(key, watch): f"spec.{key}" for key in schema.get("properties") or ()}
        fields |= dict.fromkeys(watch.vars, "`vars` of the watch")
        are_closed = are_closed and _is_closed(schema)
        if outdated and isinstance(watch.content, Role):
            role = os.path.relpath(watch.content.path, cwd)
            message = f"{outdated} differs from the argument specs of {role}; run `ansible-operator generate crds`"
            problems.warnings.append(Problem(os.path.relpath(path, cwd), 0, "", message))
    if are_closed:
        _report_mistyped(scan, fields, problems)


def _is_closed(schema: Mapping[str, Any]) -> bool:
    return bool(schema.get("properties")) and ANYTHING.keys().isdisjoint(schema)


def _variable(key: str, watch: Watch) -> str:
    return snake_case(key) if watch.snake_case_parameters else key


def _report_mistyped(scan: Scan, fields: Mapping[str, str], problems: Problems) -> None:
    """Warn about variables that no file defines, and that are similar to one that a spec sets."""
    unknown = [name for name in scan.variables if name not in fields and not name.startswith(("_", "ansible_"))]
    alike = {name: close[0] for name in unknown if (close := difflib.get_close_matches(name, fields, 1, _ALIKE))}
    if not alike:
        return
    text = "\n".join(scan.texts)
    for name, meant_name in alike.items():
        # A definition: a key, an argument `name=value`, or the value of a keyword such as `register` or `loop_var`.
        definition = rf"(?<![\w.]){name}['\"]?\s*(?::|=(?!=))|:\s*['\"]?{name}['\"]?\s*(?:[,}}#]|$)"
        if not re.search(definition, text, re.MULTILINE):
            file, line = scan.variables[name]
            advice = f"did you mean {meant_name} ({fields[meant_name]})?"
            message = f"no file and no field defines the variable {name!r}; {advice}"
            problems.warnings.append(Problem(file, line, "", message, is_hint=True))


def _differences(generated: Json, current: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the paths whose generated schema is not part of the current one."""
    for key, value in generated.items():
        if key == "properties":
            fields = current.get(key) or {}
            for name, field in value.items():
                if name in fields:
                    yield from _differences(field, fields[name], f"{path}.{name}")
                elif path != "spec" or not _is_closed(current):  # `usage` reports options that no field sets
                    yield f"{path}.{name}"
        elif key == "items":
            yield from _differences(value, current.get(key) or {}, f"{path}[*]")
        elif key in {"required", "x-kubernetes-validations"}:
            if any(entry not in (current.get(key) or ()) for entry in value):
                yield path
        elif key not in _UNCOMPARED and (key in current or key != "default") and current.get(key) != value:
            yield path


@dataclass(frozen=True, slots=True)
class _Specs:
    """An argument specs file."""

    file: str
    path: Path
    texts: Sequence[str]
    """Texts of the project's files."""
    problems: Problems

    def report(self, watches: Iterable[Watch]) -> None:
        try:
            root = yaml.compose(self.path.read_text(encoding="utf-8-sig"), Loader=yaml.SafeLoader)
        except (OSError, UnicodeDecodeError, yaml.YAMLError):
            return  # reported before
        entries = nodes.pairs(nodes.at(root, "argument_specs"))
        for _, entry in entries:
            self._keys(entry, _OF_ENTRY)
            self._options(entry)
        main = nodes.at(root, "argument_specs", "main")
        for watch in watches:
            if main is not None and watch.content.path == self.path.parent.parent and watch.snake_case_parameters:
                kept = tuple(path.steps for path in watch.snake_case_except)
                unconverted = re.compile(rf"{object_key(watch.gvk)}(?:_spec|\.spec)\W+(\w+)")
                read = {name for text in self.texts for name in unconverted.findall(text)}
                self._converted(main, "spec", kept, {*OPERATOR_VARIABLES, *watch.vars, *read})

    def _keys(self, node: yaml.Node, known: frozenset[str]) -> None:
        for key, _ in nodes.pairs(node):
            if key.value not in known:
                message = f"Ansible ignores the key {key.value!r}{meant(key.value, known)}"
                self._add(self.problems.warnings, key, message)

    def _options(self, holder: yaml.Node) -> None:
        options = nodes.at(holder, "options")
        if isinstance(options, yaml.SequenceNode):
            self._add(self.problems.errors, options, "options: found a list, expected a mapping of options")
        for name, option in nodes.pairs(options):
            if not isinstance(option, yaml.MappingNode):
                self._add(self.problems.errors, name, f"{name.value}: found {tree.kind_of(option)}, expected a mapping")
            self._keys(option, _OF_OPTION)
            for key in ("type", "elements"):
                node = nodes.at(option, key)
                if isinstance(node, yaml.ScalarNode) and node.value not in TYPES:
                    message = f"{name.value}: unknown {key} {node.value!r}{meant(node.value, TYPES)}"
                    self._add(self.problems.errors, node, message)
            self._options(option)

    def _converted(self, holder: yaml.Node, path: str, kept: tuple[tuple[Step, ...], ...], hidden: set[str]) -> None:
        """Warn about names and keys that are converted, unless the watch keeps them. `hidden`: options, or fields."""
        for name, option in nodes.pairs(nodes.at(holder, "options")):
            maker = SchemaMaker()
            field = maker.field_of(name.value, path)
            below, where = spec_paths.below(kept, field), f"{path}.{field}"
            for problem in maker.problems if hidden.isdisjoint((name.value, field)) else ():
                self._add(self.problems.warnings, name, problem)
            kind = nodes.text(nodes.at(option, "type"))
            if kind == "list":
                below, where, kind = spec_paths.in_list(below), f"{where}[*]", nodes.text(nodes.at(option, "elements"))
            if () in below or not hidden.isdisjoint((name.value, field)):
                continue
            if nodes.at(option, "options") is not None:
                self._converted(option, where, below, set())
            elif kind == "dict":
                message = f"{where}: its keys become snake_case ({_CONVERTED}); to keep them, add the path to"
                self._add(self.problems.warnings, name, f"{message} snakeCaseExcept of the watch")

    def _add(self, level: list[Problem], node: yaml.Node, message: str) -> None:
        level.append(Problem(self.file, node.start_mark.line + 1, "", message))
