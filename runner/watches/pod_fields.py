"""Reads the fields of a watch about runs in pods: `isolation`, `podTemplate`, `maxPods` and `warmPods`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from runner.watches import declared
from runner.watches.field import Field
from runner.yamlfile import tree
from runner.yamlfile.fields import Fields

_OF_CONTAINER = ("image", "resources", "env", "volumeMounts", "securityContext")
_TTL = "ttlSecondsAfterFinished"
_MOST_PODS = 10
_DEFAULT_TTL = 3600
_LEAST_TTL = 60
"""The operator must see the end of a pod before Kubernetes deletes it."""


@dataclass(frozen=True, slots=True)
class PodPolicy:
    """Runs of a watch in pods of their own. Fields are those of the Kubernetes API."""

    most: int
    """Number of pods at once."""
    pod: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the pod's spec."""
    container: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the container that runs Ansible, with `image`."""
    ttl: int = _DEFAULT_TTL
    """Seconds for which an ended Job and its pod's log remain."""
    warm: int = 0
    """Number of idle pods that wait for runs."""


def read(fields: Fields) -> PodPolicy | None:
    """Return the policy of a watch; None if its runs are processes of the operator."""
    isolation = fields.text("isolation").lower()
    if isolation not in {"", "process", "pod"}:
        fields.error("isolation", f"invalid value {isolation!r}: use process (in the operator's pod) or pod")
    if isolation != "pod":
        for name in ("podTemplate", "maxPods", "warmPods"):
            if fields.is_present(name):
                fields.error(name, "no effect without isolation: pod; add it, or remove this field")
        return None
    most = fields.integer("maxPods", default=_MOST_PODS)
    if most < 1:
        fields.error("maxPods", f"invalid number {most}: use the number of pods that may run at once, at least 1")
    warm = fields.integer("warmPods", default=0)
    if warm < 0:
        fields.error("warmPods", f"invalid number {warm}: use the number of idle pods that wait for runs, or 0")
    template = fields.fields("podTemplate", declared.names("podTemplate"))
    if template is None:
        fields.error("podTemplate", "missing: set podTemplate.image to an image with ansible-core and ansible-runner")
        return None
    template.require("image", "use an image with ansible-core and ansible-runner 2.4 or later")
    ttl = template.integer(_TTL, default=_DEFAULT_TTL)
    if ttl < _LEAST_TTL:
        template.error(_TTL, f"invalid number {ttl}: use at least {_LEAST_TTL} seconds")
    given = {each.name: _value(template, each) for each in declared.FIELDS["podTemplate"] if each.name != _TTL}
    container = {name: given.pop(name) for name in _OF_CONTAINER}
    return PodPolicy(most, _present(given), _present(container), ttl, warm)


def _present(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value}


def _value(template: Fields, declaration: Field) -> Any:
    if declaration.type == "mapping":
        return template.values(declaration.name)
    return template.text(declaration.name) if declaration.type == "text" else _list(template, declaration)


def _list(template: Fields, declaration: Field) -> list[Any]:
    """Return a list of mappings as the API takes them; an item of a list of names can be a name."""
    name = declaration.name
    node = template.node(name)
    if node is None:
        return []
    if not isinstance(node, yaml.SequenceNode):
        template.error(name, f"found {tree.kind_of(node)}, expected a list of mappings, as in a pod")
        return []
    found = []
    for item in node.value:
        if isinstance(item, yaml.MappingNode):
            found.append(tree.plain(item))
        elif declaration.type == "list of names" and isinstance(item, yaml.ScalarNode):
            found.append({"name": str(item.value)})
        else:
            template.error(name, f"found {tree.kind_of(item)}, expected a mapping, as in a pod")
    return found
