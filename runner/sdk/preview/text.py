"""Plan as text for a terminal. Pure; values cannot control the terminal."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from runner.base import log
from runner.base.page import plural
from runner.base.yamlfile.edits import BlockDumper
from runner.features.plan.changes import ObjectChange, Plan, ResourcePlan
from runner.features.plan.fields import ABSENT, FieldChange
from runner.features.plan.trial.overlay import Verb
from runner.sdk.preview.grouping import Group, groups, notices
from runner.values.objects import ObjectRef, first_names

_SYMBOLS: dict[Verb, str] = {"create": "+", "change": "~", "delete": "-"}
_COLOURS: dict[str, str] = {"create": "32", "change": "33", "delete": "31", "bold": "1"}
_NAMED = 3
"""Number of resources of a group that its heading names."""
_LONGEST_LINE = 120
_MOST_UNWRITTEN = 20


@dataclass(frozen=True, slots=True)
class Style:
    """Colours, or none."""

    colour: bool

    def paint(self, text: str, how: str) -> str:
        """Return a text in the colour of a verb, or bold."""
        return f"\x1b[{_COLOURS[how]}m{text}\x1b[0m" if self.colour else text


def lines(plan: Plan, style: Style) -> Iterator[str]:
    """Yield the lines of the report."""
    for group in groups(plan.resources):
        yield style.paint(log.visible(_heading(group)), "bold")
        for change in group.changes:
            yield from _change(change, style)
        yield ""
    for notice in notices(plan.resources):
        yield style.paint(log.visible(f"{_named(notice.resources)}: {_state(notice.plan)}"), "bold")
        yield from (f"  {line}" for problem in _problems(notice.plan) for line in log.visible(problem).splitlines())
        yield ""
    unwritten = [(ref, run_plan.resource) for run_plan in plan.resources for ref in run_plan.unwritten]
    if unwritten:
        yield style.paint("No longer written (see prune):", "bold")
        yield from (log.visible(f"  {ref}, of {resource}") for ref, resource in unwritten[:_MOST_UNWRITTEN])
        more = len(unwritten) - _MOST_UNWRITTEN
        yield from [f"  and {plural(more, 'more object')}"] if more > 0 else []
        yield ""
    yield _summary(plan)


def _heading(group: Group) -> str:
    deletion = " (deletion)" if group.is_deletion else ""
    deletion += f" in step {group.step} of the rollout" if group.step and not deletion else ""
    if len(group.resources) == 1:
        only = f"{group.resources[0]}{deletion}"
        return only if group.total == 1 else f"{only} (1 of {group.total} {group.gvk.kind} resources)"
    return f"{len(group.resources)} of {group.total} {group.gvk.kind} resources{deletion}: {_names(group.resources)}"


def _named(resources: Sequence[ObjectRef]) -> str:
    """Return the kind and the first names of resources."""
    only = str(resources[0])
    return only if len(resources) == 1 else f"{len(resources)} {resources[0].gvk.kind} resources: {_names(resources)}"


def _names(resources: Sequence[ObjectRef]) -> str:
    return first_names([str(resource.key) for resource in resources], _NAMED)


def _change(change: ObjectChange, style: Style) -> Iterator[str]:
    title = f"{_SYMBOLS[change.verb]} {change.verb} {change.gvk.kind} {change.key}"
    title += ": delete and create again" if change.recreated else ""
    title += " (by Kubernetes, with its owner)" if change.is_collected else ""
    title += f" (not validated: {change.not_validated})" if change.not_validated else ""
    yield f"  {style.paint(log.visible(title), change.verb)}"
    for field in change.fields:
        yield from (f"      {line}" for line in _field(field, style))


def _field(field: FieldChange, style: Style) -> Iterator[str]:
    if not field.path:
        content = {name: value for name, value in _content(field.after).items() if name not in {"apiVersion", "kind"}}
        yield from _block("+", content, "create", style)
        return
    path = log.visible(field.path)
    before, after = field.before, field.after
    if isinstance(before, str) and isinstance(after, str) and "\n" in before + after:
        yield f"{path}:"
        yield from (f"  {line}" for line in _lines_of_text(before, after, style))
    elif any(isinstance(value, str) and "\n" in value for value in (before, after)):
        yield f"{path}:"
        for symbol, value, how in (("-", before, "delete"), ("+", after, "create")):
            lines_of_value = value.splitlines() if isinstance(value, str) else [_scalar(value)]
            for line in lines_of_value if value is not ABSENT else ():
                yield style.paint(f"  {symbol} {log.visible(line)}", how)
    elif _is_short(before) and _is_short(after):
        old = "" if before is ABSENT else style.paint(_scalar(before), "delete")
        new = "" if after is ABSENT else style.paint(_scalar(after), "create")
        sign = "" if old and new else "(added) " if new else "(removed) "
        yield f"{path}: {sign}{' → '.join(filter(None, (old, new)))}"
    else:
        yield f"{path}:"
        for symbol, value, how in (("-", before, "delete"), ("+", after, "create")):
            if value is not ABSENT:
                yield from (f"  {line}" for line in _block(symbol, value, how, style))


def _content(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_short(value: Any) -> bool:
    return value is ABSENT or (not (isinstance(value, dict | list) and value) and len(_scalar(value)) <= _LONGEST_LINE)


def _scalar(value: Any) -> str:
    """Return a value on one line. An ambiguous string is quoted."""
    if not isinstance(value, str):
        return log.visible(json.dumps(value, ensure_ascii=False, default=str))
    is_plain = len(value) <= _LONGEST_LINE and value == value.strip() and "\n" not in value and _reads_as_text(value)
    return log.visible(value if is_plain else json.dumps(value, ensure_ascii=False))


def _reads_as_text(value: str) -> bool:
    try:
        return getattr(yaml.compose(value, yaml.SafeLoader), "tag", "") == "tag:yaml.org,2002:str"
    except yaml.YAMLError:
        return not value.startswith(("[", "{", '"', "'"))


def _block(symbol: str, value: Any, how: str, style: Style) -> Iterator[str]:
    text = yaml.dump(
        value, Dumper=BlockDumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=_LONGEST_LINE
    )
    for line in log.visible(text).removesuffix("...\n").splitlines():
        yield style.paint(f"{symbol} {line}", how)


def _lines_of_text(before: str, after: str, style: Style) -> Iterator[str]:
    compared = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    for number, line in enumerate(compared):
        if number > 1:  # after the two lines with names of files
            how = {"+": "create", "-": "delete"}.get(line[:1])
            yield style.paint(log.visible(line), how) if how else log.visible(line)
    if before.splitlines() == after.splitlines():
        yield "(only line breaks at the end differ)"


def _state(plan: ResourcePlan) -> str:
    texts = {"partial": "the plan is partial", "failed": "the plan failed", "skipped": "not planned"}
    return texts[plan.state]


def _problems(plan: ResourcePlan) -> Iterator[str]:
    """Yield why a plan is not complete."""
    if plan.message:
        yield plan.message
    for unplanned in plan.unplanned:
        task = f"task {unplanned.task!r}" + (f" ({unplanned.path})" if unplanned.path else "")
        yield f"{task}: {unplanned.reason}" if unplanned.task else unplanned.reason
    if plan.more_unplanned:
        yield f"{plan.more_unplanned} more tasks"


def _summary(plan: Plan) -> str:
    written = {(change.verb, change.gvk, change.key) for resource in plan.resources for change in resource.changes}
    verbs = Counter(verb for verb, _, _ in written)
    states = Counter(resource.state for resource in plan.resources)
    changed = sum(bool(resource.changes) for resource in plan.resources)
    counts = _joined(f"{verbs[verb]} to {verb}" for verb in _SYMBOLS if verbs[verb]) or "no changes"
    text = f"Plan: {changed} of {plural(len(plan.resources), 'resource')} with changes; objects: {counts}"
    if not verbs:
        text = f"Plan: no changes for {plural(len(plan.resources), 'resource')}"
    notes = _joined(f"{states[state]} {state}" for state in ("partial", "failed", "skipped") if states[state])
    return f"{text} ({notes})" if notes else text


def _joined(parts: Iterable[str]) -> str:
    return ", ".join(parts)
