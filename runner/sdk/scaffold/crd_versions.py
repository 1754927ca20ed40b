"""Another version of a kind, with the schema, columns and subresources of the stored version. Pure.

Between versions the API server changes only `apiVersion`, so the schema of one version is valid for each.
"""

from __future__ import annotations

from typing import Any

import yaml

from runner.base.yamlfile import edits
from runner.base.yamlfile import nodes as yaml_nodes
from runner.values.errors import ConfigError


def add(crd: str, version: str, *, file: str) -> str:
    """Return the CRD's text with one more version at the end, with the comments of the stored one.

    `file` is its name, for errors.

    Raises:
        ConfigError: the YAML is invalid, or there is not exactly one stored version.
    """
    try:
        versions = _versions(yaml.safe_load(crd))
        nodes = yaml_nodes.at(yaml.compose(crd, Loader=yaml.SafeLoader), "spec", "versions")
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: invalid YAML: {error}") from None
    stored = [place for place, entry in enumerate(versions) if entry.get("storage") is True]
    if len(stored) != 1 or not isinstance(nodes, yaml.SequenceNode):
        raise ConfigError(f"{file}: {len(stored)} versions have `storage: true`; exactly one must have it")
    own = {"name": version, "served": True, "storage": False}
    added = {**versions[stored[0]], **own}
    copied = _copied(crd, nodes, stored[0], {"name": version, "served": "true", "storage": "false"})
    piece = copied if _parsed(copied) == [added] else edits.dump([added])
    return edits.insert(crd, ("spec", "versions"), piece, file=file)


def _versions(document: Any) -> list[dict[str, Any]]:
    spec = document.get("spec") if isinstance(document, dict) else None
    versions = spec.get("versions") if isinstance(spec, dict) else None
    return [entry if isinstance(entry, dict) else {} for entry in versions] if isinstance(versions, list) else []


def _copied(text: str, nodes: yaml.SequenceNode, place: int, own: dict[str, str]) -> str:
    """Return the lines of one item, with other values of some keys. The caller must check the parsed result."""
    node = nodes.value[place]
    lines = text.splitlines(keepends=True)
    first = node.start_mark.line
    for key, value in yaml_nodes.pairs(node):
        if key.value in own and value.start_mark.line == value.end_mark.line:
            line = lines[value.start_mark.line]
            written = line[: value.start_mark.column] + own[key.value] + line[value.end_mark.column :]
            lines[value.start_mark.line] = written
    column = nodes.start_mark.column
    return "".join(
        line[column:] if not line[:column].strip() else line.lstrip() for line in lines[first : edits.last_line(node)]
    )


def _parsed(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None
