"""Files of argument specs and CRDs, and the transfer of content between them. Other lines remain unchanged."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from runner.base.yamlfile import edits, nodes, tree
from runner.base.yamlfile.tree import Problem, Problems
from runner.core.watches.watch import Role, Watch
from runner.sdk.schema import rules
from runner.sdk.schema.argspec import ArgumentSpecMaker
from runner.sdk.schema.fields import ANYTHING, Json, SchemaMaker, unquoted_choices
from runner.values.errors import ConfigError
from runner.values.objects import GVK, mapping, maps

_SPECS = ("meta/argument_specs.yml", "meta/argument_specs.yaml")
_RULES = "meta/crd_validations.yml"
_ANY_SPEC: Json = {"description": "Desired state.", "type": "object", **ANYTHING, "default": {}}


@dataclass(frozen=True, slots=True)
class Generated:
    """A generated file before and after the change."""

    path: Path
    before: str
    after: str
    problems: tuple[str, ...]
    """Warnings, a sentence each."""


def generate(watches: Iterable[Watch], folder: Path) -> list[Generated]:
    """Write the schemas of the watches' roles to the CRDs of their kinds in `folder`.

    Versions of one kind may share a file.

    Raises:
        ConfigError: a CRD or an argument spec is missing or invalid.
    """
    generated: dict[Path, Generated] = {}
    for watch in watches:
        path, text = find_crd(folder, watch.gvk)
        known = generated.get(path, Generated(path, text, text, ()))
        maker = SchemaMaker(watch.snake_case_parameters)
        schema, after = schema_of(watch, maker), known.after
        if schema == _ANY_SPEC and spec_of(folder, watch.gvk).get("properties"):
            maker.problems.append(f"the schema of {watch.gvk} is kept, because no argument specs describe it")
        else:
            after = replace_spec(after, watch.gvk.version, schema, str(path))
        generated[path] = replace(known, after=after, problems=(*known.problems, *maker.problems))
    return list(generated.values())


def generate_argspecs(watches: Iterable[Watch], folder: Path, within: Path) -> list[Generated]:
    """Add the fields of the CRDs in `folder` to the argument specs of the watches' roles.

    Existing options remain unchanged.

    Raises:
        ConfigError: a watch has no role, a role is outside of the project `within`, or a file is invalid.
    """
    generated: dict[Path, Generated] = {}
    for watch in watches:
        if not isinstance(watch.content, Role):
            raise ConfigError(f"{watch.gvk} runs a playbook; only roles have argument specs")
        role = watch.content.path
        if not role.is_relative_to(within):
            raise ConfigError(
                f"{watch.gvk}: the role {role} is outside of the project; copy it, or wrap it in a role of the project"
            )
        path = next((role / name for name in _SPECS if (role / name).exists()), role / _SPECS[0])
        text = tree.read(path, str(path)) if path.exists() else ""
        known = generated.get(path, Generated(path, text, text, ()))
        reader = ArgumentSpecMaker(watch.snake_case_parameters)
        arguments = reader.spec(spec_of(folder, watch.gvk))
        after = _extended(known.after, arguments, frozenset(watch.vars), str(path))
        generated[path] = replace(known, after=after, problems=(*known.problems, *reader.problems))
    return list(generated.values())


def complete_samples(watches: Iterable[Watch], folder: Path, samples: Path) -> list[Path]:
    """Add the required options of the CRDs to samples with an empty spec, with values to edit. Return changed files."""
    changed = []
    for path, watch in product(sorted(samples.glob("*.yaml")), watches):
        try:
            head, empty, rest = tree.read(path, str(path)).partition("\nspec: {}\n")
        except ConfigError:
            continue  # the check of the samples reports it
        api_version, kind = map(edits.scalar, (watch.gvk.api_version, watch.gvk.kind))
        if empty and f"apiVersion: {api_version}\nkind: {kind}\n" in head:
            values = _example(spec_of(folder, watch.gvk))
            if values:
                edits.write(path, f"{head}\n{edits.dump({'spec': values})}{rest}")
                changed.append(path)
    return changed


def _example(schema: Json) -> Any:
    """Return a value that a schema of options accepts."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "object":
        return {name: _example(schema["properties"][name]) for name in schema.get("required", ())}
    return {"integer": 1, "number": 1, "boolean": True, "array": []}.get(str(schema.get("type")), "example")


def _extended(text: str, arguments: Json, given: frozenset[str], file: str) -> str:
    """Return an argument specs file with the missing options, and with rules of the kinds that it does not contain."""
    options = {name: option for name, option in arguments["options"].items() if name not in given}
    several = {key: value for key, value in arguments.items() if key != "options"}
    if not text.strip():
        if not arguments["options"]:
            return text
        return edits.dump({"argument_specs": {"main": {"options": options, **several}}}, begin="---\n")
    for name, option in options.items():
        text = edits.put(text, ("argument_specs", "main", "options", name), option, file=file)
    for key, rule in several.items():
        text = edits.put(text, ("argument_specs", "main", key), rule, file=file)
    return text


def spec_of(folder: Path, gvk: GVK) -> Json:
    """Return the schema of a kind's `spec` in its CRD."""
    path, text = find_crd(folder, gvk)
    for version in maps(yaml.safe_load(text)["spec"].get("versions")):
        if version.get("name") == gvk.version:
            whole = mapping(mapping(version.get("schema")).get("openAPIV3Schema"))
            return mapping(mapping(whole.get("properties")).get("spec"))
    raise ConfigError(f"{path}: the CRD has no version {gvk.version}")


def schema_of(watch: Watch, maker: SchemaMaker) -> Json:
    """Return the spec's schema from the role's argument spec. Without one, it accepts anything."""
    content = watch.content
    entry = entry_of(content.path) if isinstance(content, Role) else None
    schema = dict(_ANY_SPEC) if entry is None else maker.spec(entry, frozenset(watch.vars))
    further = _further(content.path) if isinstance(content, Role) else []
    if further:
        schema["x-kubernetes-validations"] = [*schema.get("x-kubernetes-validations", ()), *further]
    if any(rules.requires_a_field(rule["rule"], schema) for rule in schema.get("x-kubernetes-validations", ())):
        # The API server rejects an invalid default; in this case the spec is required.
        schema.pop("default", None)
    return schema


def entry_of(role: Path) -> dict[str, Any] | None:
    """Return the argument spec of a role's `main`; None if it has none."""
    for name in _SPECS:
        document = _load(role / name)
        if document is not None:
            specs = document.get("argument_specs") if isinstance(document, dict) else None
            if not isinstance(specs, dict):
                raise ConfigError(f"{role / name}: `argument_specs` must be a map from entry points to their options")
            entry = specs.get("main")
            return entry if isinstance(entry, dict) else None
    return None


def report_choices(watches: Iterable[Watch], cwd: Path, problems: Problems) -> None:
    """Add warnings about choices of the watches' roles that need quotes."""
    for path in {watch.content.path / name for watch, name in product(watches, _SPECS)}:
        if path.is_file():
            root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
            for node, message in unquoted_choices(nodes.at(root, "argument_specs", "main")):
                problems.warnings.append(Problem(os.path.relpath(path, cwd), node.start_mark.line + 1, "", message))


def _further(role: Path) -> list[dict[str, str]]:
    """Return the rules that users wrote: a list of `rule` and `message`."""
    document = _load(role / _RULES)
    entries = [] if document is None else document
    if not isinstance(entries, list) or any(not isinstance(mapping(entry).get("rule"), str) for entry in entries):
        raise ConfigError(f"{role / _RULES}: must be a list of rules; each is a map with `rule` and `message`")
    return entries


def find_crd(folder: Path, gvk: GVK) -> tuple[Path, str]:
    """Return the file of a kind's CRD, and its text.

    Raises:
        ConfigError: there is no CRD for the kind.
    """
    for path, spec in _crds(folder):
        if (spec.get("group"), spec["names"].get("kind")) == (gvk.group, gvk.kind):
            return path, path.read_text(encoding="utf-8")
    raise ConfigError(f"{folder}: no CRD for {gvk}; create one with `ansible-operator create api`")


def kind_of_short_name(folder: Path, short: str) -> str:
    """Return `Kind.group` of the CRD in `folder` with this short name; empty if there is none."""
    names = ((spec["names"], spec.get("group")) for _, spec in _crds(folder))
    return next((f"{of['kind']}.{group}" for of, group in names if short in (of.get("shortNames") or ())), "")


def _crds(folder: Path) -> Iterator[tuple[Path, Json]]:
    """Yield the files of a folder with the name of a kind, and their `spec`."""
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        document = _load(path)
        spec = document.get("spec") if isinstance(document, dict) else None
        if isinstance(spec, dict) and isinstance(spec.get("names"), dict):
            yield path, spec


def _load(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


def replace_spec(text: str, version: str, schema: Json, file: str) -> str:
    """Return a CRD's text with another schema of a version's `spec`. All other lines remain unchanged.

    Raises:
        ConfigError: the version has no schema of `spec` in block style.
    """
    node = spec_node(text, version)
    if not isinstance(node, yaml.MappingNode) or node.flow_style:
        raise ConfigError(f"{file}: version {version} has no `schema.openAPIV3Schema.properties.spec` in block style")
    text = edits.replace(text, node, schema)
    whole = _whole_node(text, version)
    if "default" not in schema and whole is not None and nodes.at(whole, "required") is None:
        lines, indent = text.splitlines(keepends=True), " " * whole.start_mark.column
        lines.insert(whole.start_mark.line, f"{indent}required:\n{indent}  - spec\n")
        text = "".join(lines)
    return text


def spec_node(text: str, version: str) -> yaml.Node | None:
    """Return the node of the schema of a version's `spec` in a CRD's text."""
    return nodes.at(_whole_node(text, version), "properties", "spec")


def _whole_node(text: str, version: str) -> yaml.Node | None:
    """Return the node of the schema of a version's objects."""
    versions = nodes.items(nodes.at(yaml.compose(text, Loader=yaml.SafeLoader), "spec", "versions"))
    entry = next((entry for entry in versions if nodes.text(nodes.at(entry, "name")) == version), None)
    return nodes.at(entry, "schema", "openAPIV3Schema")
