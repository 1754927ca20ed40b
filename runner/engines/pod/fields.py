"""Reads the fields of a watch about runs in pods: `isolation`, `podTemplate`, `maxPods` and `warmPods`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import Any

import yaml

from runner.base.yamlfile import tree
from runner.base.yamlfile.fields import Fields
from runner.core.watches import field
from runner.core.watches.field import Entry, FeatureFields, Field
from runner.core.watches.watch import INPUTS, IS_REMOTE
from runner.values.slots import EMPTY, Slot, Slots

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
    pod: Mapping[str, Any] = attribute(default_factory=dict)
    """Fields of the pod's spec."""
    container: Mapping[str, Any] = attribute(default_factory=dict)
    """Fields of the container that runs Ansible, with `image`."""
    ttl: int = _DEFAULT_TTL
    """Seconds for which an ended Job and its pod's log remain."""
    warm: int = 0
    """Number of idle pods that wait for runs."""


POD_POLICY: Slot[PodPolicy | None] = Slot("pods", None)
"""Slot of a watch; None: its runs are processes of the operator."""
_IN_POD = "{%s, isolation: pod, podTemplate: {image: ee:1}}"
_ENTRY = field.section(
    "",
    "%s",
    field.text(
        "isolation",
        "`process` (the default): runs are processes of the operator's pod; `pod`: each run has a pod of its own "
        "([pods.md](pods.md))",
        "pod",
        values=("process", "pod"),
        frame="{%s, podTemplate: {image: ee:1}}",
    ),
    field.mapping(
        "podTemplate",
        "image and further fields of these pods, see below; required with `isolation: pod`",
        "{image: ee:1}",
        frame="{isolation: pod, %s}",
    ),
    field.whole(
        "maxPods",
        "maximum number of pods at once, instead of `--max-concurrent-reconciles`; default: 10",
        "50",
        frame=_IN_POD,
    ),
    field.whole(
        "warmPods",
        "number of idle pods with Ansible loaded that wait for runs; default: 0 ([pods.md](pods.md#warm-pods))",
        "2",
        frame=_IN_POD,
    ),
)
_POD_TEMPLATE = field.section(
    "podTemplate",
    "{isolation: pod, podTemplate: {image: ee:1, %s}}",
    field.text(
        "image",
        "image with ansible-core and ansible-runner 2.4 or later",
        "ee:1",
        required=True,
        frame="{isolation: pod, podTemplate: {%s}}",
    ),
    field.mapping("resources", "requests and limits of the container", "{limits: {memory: 1Gi}}"),
    field.mappings("env", "environment variables of the container", "[{name: HTTPS_PROXY, value: http://proxy:3128}]"),
    field.mappings("volumeMounts", "mounts of these volumes in the container", "[{name: data, mountPath: /data}]"),
    field.mapping(
        "securityContext",
        "security context of the container, added to the default ([pods.md](pods.md#security))",
        "{runAsNonRoot: true}",
    ),
    field.named("imagePullSecrets", "Secrets of the resource's namespace for the registry, by name", "[registry]"),
    field.text("serviceAccountName", "service account of the pod; only then the pod contains its token", "runs"),
    field.mapping("nodeSelector", "labels of the nodes", "{pool: runs}"),
    field.mappings("tolerations", "tolerations for taints of the nodes", "[{key: runs, operator: Exists}]"),
    field.text("priorityClassName", "priority class of the pod", "low"),
    field.mappings("volumes", "further volumes", "[{name: data, emptyDir: {}}]"),
    field.whole(
        "ttlSecondsAfterFinished", "seconds for which an ended pod remains, with its log; default: 3600", "600"
    ),
)


def isolated(policy: PodPolicy, more: Slots = EMPTY) -> Slots:
    """Return the values of a watch whose runs are in pods."""
    inputs: Mapping[str, Any] = more.get(INPUTS)
    more = more.having(INPUTS, {**inputs, "pods": [policy.pod, policy.container]})
    return more.having(POD_POLICY, policy).having(IS_REMOTE, value=True)


def _read(entry: Entry, values: Slots) -> Slots:
    policy = _policy(entry.fields)
    return values if policy is None else isolated(policy, values)


def _policy(fields: Fields) -> PodPolicy | None:
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
    template = fields.fields("podTemplate", field.names(_POD_TEMPLATE))
    if template is None:
        fields.error("podTemplate", "missing: set podTemplate.image to an image with ansible-core and ansible-runner")
        return None
    template.require("image", "use an image with ansible-core and ansible-runner 2.4 or later")
    ttl = template.integer(_TTL, default=_DEFAULT_TTL)
    if ttl < _LEAST_TTL:
        template.error(_TTL, f"invalid number {ttl}: use at least {_LEAST_TTL} seconds")
    pod = {declared.name: _value(template, declared) for declared in _POD_TEMPLATE[1] if declared.name != _TTL}
    container = {name: pod.pop(name) for name in _OF_CONTAINER}
    return PodPolicy(most, _present(pod), _present(container), ttl, warm)


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


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
    mappings = []
    for item in node.value:
        if isinstance(item, yaml.MappingNode):
            mappings.append(tree.plain(item))
        elif declaration.type == "list of names" and isinstance(item, yaml.ScalarNode):
            mappings.append({"name": str(item.value)})
        else:
            template.error(name, f"found {tree.kind_of(item)}, expected a mapping, as in a pod")
    return mappings


FIELDS = FeatureFields((_ENTRY, _POD_TEMPLATE), _read)
