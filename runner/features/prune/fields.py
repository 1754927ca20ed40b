"""Field `prune` of a watch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import yaml

from runner.base.yamlfile.fields import Fields
from runner.core.watches import field
from runner.core.watches.field import Entry, FeatureFields
from runner.values.slots import Slot, Slots

PROTECTED = ("CustomResourceDefinition", "Namespace", "PersistentVolumeClaim", "Secret")
"""Kinds that prune never touches unless a watch names them."""
PruneAction: TypeAlias = Literal["off", "report", "delete"]


@dataclass(frozen=True, slots=True)
class PrunePolicy:
    """Treatment of objects that the runs of a resource created and no longer use."""

    then: PruneAction
    kinds: frozenset[str] = frozenset()
    """Kinds to prune although they are protected by default."""


PRUNE_POLICY = Slot("prune", PrunePolicy("off"))
"""Slot of a watch."""
_ACTIONS: tuple[PruneAction, ...] = ("off", "report", "delete")
_ENTRY = field.section(
    "",
    "%s",
    field.text(
        "prune",
        "`report` or `delete`: unused objects that runs created ([prune.md](prune.md)); or a mapping, see below",
        "report",
        "off",
        values=_ACTIONS,
    ),
)
_PRUNE = field.section(
    "prune",
    "prune: {kinds: [Secret], %s}",
    field.text("then", "`off`, `report` (the default) or `delete`", "delete", values=_ACTIONS),
    field.listing(
        "kinds",
        "protected kinds to prune: `Secret`, `PersistentVolumeClaim`, `Namespace`, `CustomResourceDefinition`",
        "[Secret]",
        values=PROTECTED,
        frame="prune: {then: report, %s}",
    ),
)


def _read(entry: Entry, values: Slots) -> Slots:
    fields, gvk = entry.fields, entry.gvk
    policy = _policy(fields)
    selects = any(map(fields.is_present, ("selector", "fieldSelector", "name")))
    if policy.then != "off" and (gvk.group, gvk.kind) == ("", "ConfigMap") and not selects:
        fields.error("prune", "the operator's own records are ConfigMaps too: set a selector that does not match them")
    return values if policy == PRUNE_POLICY.default else values.having(PRUNE_POLICY, policy)


def _policy(fields: Fields) -> PrunePolicy:
    """Return the `prune` of a watch: a word, or a mapping with further kinds."""
    node = fields.node("prune")
    if not isinstance(node, yaml.MappingNode):
        return PrunePolicy(_action(fields, "prune", default="off"))
    prune = fields.fields("prune", field.names(_PRUNE))
    if prune is None:
        return PrunePolicy("off")
    kinds = prune.texts("kinds")
    for kind in kinds:
        if kind not in PROTECTED:
            prune.error(
                "kinds", f"invalid kind {kind!r}: use {', '.join(PROTECTED)}; all other kinds are pruned anyway"
            )
    return PrunePolicy(_action(prune, "then", default="report"), frozenset(kinds))


def _action(fields: Fields, name: str, default: PruneAction) -> PruneAction:
    text = fields.text(name).lower()
    if text in {"false", "no"}:  # spellings of off in YAML
        return "off"
    choice = next((action for action in _ACTIONS if action == text), None)
    if text and choice is None:
        fields.error(name, f"invalid value {text!r}: use off, report or delete")
    return choice or default


FIELDS = FeatureFields((_ENTRY, _PRUNE), _read)
