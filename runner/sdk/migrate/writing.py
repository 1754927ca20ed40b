"""`ansible-operator migrate --write`: the mechanical changes, and MIGRATION.md with the remaining work.

Requires a project in a Git repository without uncommitted changes, so that `git diff` shows what changed. All files are
written, or none.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import TypeAlias

import yaml

from runner.base.yamlfile import edits, nodes
from runner.compatibility import unsupported
from runner.compatibility.finding import HEADINGS, Finding, Report, grouped
from runner.core.watches.watch import Watch
from runner.sdk.migrate import dockerfile, samples
from runner.sdk.migrate.dockerfile import Dockerfile
from runner.sdk.migrate.project import Project
from runner.sdk.scaffold.changeset import ChangeSet
from runner.values.errors import ConfigError

OLD, NEW = "community.kubernetes", "kubernetes.core"
PIN = ">=5.3.0,<7.0.0"
"""Versions of kubernetes.core that every supported ansible-core can use."""


def migrated(text: str, missing: Iterable[str], file: str) -> str:
    """Return the file with kubernetes.core for community.kubernetes, and with the missing collections.

    Raises ConfigError, with the lines to add by hand, if the file cannot be edited.
    """
    try:
        root = next(yaml.compose_all(text, Loader=yaml.SafeLoader), None)
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: invalid YAML ({getattr(error, 'problem', error)}); fix the file first") from None
    listed = nodes.at(root, "collections")
    is_in_flow = bool(getattr(listed, "flow_style", False))
    names = {entry: nodes.text(nodes.at(entry, "name") or entry) for entry in nodes.items(listed)}
    for entry, name in reversed(names.items()):
        if name == OLD and NEW not in names.values():
            text = _edited(text, _renamed_entry(entry, in_flow=is_in_flow or getattr(entry, "flow_style", False)))
        elif name == OLD and not is_in_flow:
            lines = text.splitlines(keepends=True)
            text = "".join(lines[: entry.start_mark.line] + lines[edits.last_line(entry) :])
    text = text or "---\n"
    for name in missing:
        item = f"- name: {name}\n" + (f'  version: "{PIN}"\n' if name == NEW else "")
        text = edits.insert(text, ("collections",), item, file=file)
    return text


_Edit: TypeAlias = tuple[int, int, str]
"""Begin and end of a part of a text, and its replacement."""


def _edited(text: str, changes: Iterable[_Edit]) -> str:
    """Return a text with changes; those at the same place are in the result in this order."""
    for begin, end, piece in sorted(changes, key=itemgetter(0))[::-1]:
        text = text[:begin] + piece + text[end:]
    return text


def _after(text: str, node: yaml.Node, lines: str) -> _Edit:
    """Return the insertion of lines behind a node in block style."""
    place = len("".join(text.splitlines(keepends=True)[: edits.last_line(node)]))
    return place, place, lines


def _renamed_entry(entry: yaml.Node, *, in_flow: bool) -> Iterator[_Edit]:
    """Yield the changes that replace the old collection; comments and further fields of the entry remain."""
    name, version = nodes.at(entry, "name"), nodes.at(entry, "version")
    pin = f'version: "{PIN}"'
    if version is not None:
        yield _value(version, pin.removeprefix("version: "))
    separator = ", " if in_flow else f"\n{' ' * entry.start_mark.column}"
    new = NEW if name else f"name: {NEW}"
    text = new if version else f"{new}{separator}{pin}"
    yield _value(name or entry, f"{{{text}}}" if in_flow and not name else text)


def _value(node: yaml.Node, text: str) -> _Edit:
    """Return the change of a value, which can be empty."""
    begin, end = node.start_mark.index, node.end_mark.index
    return begin, end, text if begin < end else f" {text}"


CHECKLIST = PurePosixPath("MIGRATION.md")
_REQUIREMENTS = PurePosixPath("requirements.yml")
_INSTALL = """\
COPY requirements.yml ${HOME}/requirements.yml
RUN ansible-galaxy collection install -r ${HOME}/requirements.yml \\
 && chmod -R ug+rwx ${HOME}/.ansible
"""
_ENDS = {"FROM", "COPY", "ADD"}
"""Instructions before which the collections are installed."""
_OLD_META = re.compile(r"(?<![\w.])meta\.(name|namespace)\b")
_OLD_MODULE = re.compile(r"\bcommunity\.kubernetes\.(?=k8s|helm)")
_FACTS = re.compile(r"^(\s*(?:-\s+)?)(?:(?:kubernetes\.core|community\.kubernetes)\.)?k8s_facts(?=\s*:)", re.MULTILINE)
_SHORT = re.compile(rf"^(\s*(?:-\s+)?)({'|'.join(sorted(unsupported.OF_UTIL))})(?=\s*:)", re.MULTILINE)
_TASKS = {"removed-variable", "old-collection", "removed-module", "short-name"}
_SUCCESSORS: tuple[tuple[re.Pattern[str], str], ...] = (
    (_FACTS, r"\1kubernetes.core.k8s_info"),
    (_SHORT, r"\1operator_sdk.util.\2"),
    (_OLD_MODULE, "kubernetes.core."),
    (_OLD_META, r"ansible_operator_meta.\1"),
)
_WATCH_RULES = {"template-in-sample", "ansible-variable"}


def require_clean_tree() -> None:
    """Raise ConfigError unless the working directory is in a Git repository and has no uncommitted changes."""
    program = shutil.which("git")
    command = [program or "git", "status", "--porcelain", "--", "."]
    done = subprocess.run(command, check=False, capture_output=True, text=True) if program else None
    if done is None or done.returncode:
        raise ConfigError(
            "--write requires git and a project in a Git repository: run `git init`, and commit all files"
        )
    if done.stdout.strip():
        changed = ", ".join(line[3:] for line in done.stdout.splitlines()[:3])
        raise ConfigError(f"--write requires a Git tree without changes: commit or stash them first ({changed})")


def write(project: Project, report: Report, image: str) -> list[str]:
    """Make the mechanical changes of a report. `image`: base image. Return the paths of changed and new files."""
    changes = ChangeSet(project.root)
    automatic = [finding for finding in report.findings if finding.is_automatic]
    missing = _missing_collections(automatic)
    needs_file = missing or any(finding.file == str(_REQUIREMENTS) for finding in automatic)
    if needs_file and Path(_REQUIREMENTS).is_file():
        changes.edit(_REQUIREMENTS, lambda text: migrated(text, missing, str(_REQUIREMENTS)))
    elif needs_file:
        changes.create(_REQUIREMENTS, migrated("", missing, str(_REQUIREMENTS)))
    for parsed in project.dockerfiles:
        complete = dockerfile.parse(parsed.file, _with_install(parsed)) if missing else parsed
        changes.edit(PurePosixPath(parsed.file), _constant(dockerfile.migrated(complete, image)))
    for file in sorted({finding.file for finding in automatic if finding.rule in _TASKS} - {str(_REQUIREMENTS)}):
        if (project.root / file).resolve().is_relative_to(project.root.resolve()):  # roles can be outside the project
            changes.edit(PurePosixPath(file), _renamed)
    if any(finding.rule in _WATCH_RULES for finding in automatic):
        changes.edit(PurePosixPath(project.watches_file), lambda text: _with_fields(text, project))
    created, changed = changes.apply()
    return [*created, *changed]


def write_checklist(report: Report, changed: Iterable[str]) -> None:
    """Write MIGRATION.md: the findings that are left after the mechanical changes."""
    Path(CHECKLIST).write_text(_checklist(report, sorted(changed)), encoding="utf-8")


def _constant(text: str) -> Callable[[str], str]:
    return lambda _: text


def _missing_collections(findings: Iterable[Finding]) -> list[str]:
    names = (finding.subject for finding in findings if finding.rule == "missing-collection")
    return list(dict.fromkeys(names))


def _with_install(parsed: Dockerfile) -> str:
    """Return a Dockerfile that installs the collections of requirements.yml, before the first COPY of its base."""
    if "ansible-galaxy" in parsed.text or parsed.base is None:
        return parsed.text
    lines, start = parsed.text.splitlines(keepends=True), parsed.stage
    ends = (entry.first - 1 for entry in parsed.instructions if entry.name in _ENDS and entry.first > start)
    first = next(ends, len(lines))
    lines[first - 1] = lines[first - 1].rstrip("\n") + "\n"
    return "".join([*lines[:first], _INSTALL, *lines[first:]])


def _renamed(text: str) -> str:
    """Return a file of tasks with successors of names."""
    for pattern, successor in _SUCCESSORS:
        text = pattern.sub(successor, text)
    return text


def _with_fields(text: str, project: Project) -> str:
    """Return watches.yaml with the fields that keep the Go operator's behaviour for the samples and CRDs."""
    try:
        root = next(yaml.compose_all(text, Loader=yaml.SafeLoader), None)
    except yaml.YAMLError:
        return text  # only its expansion is valid, so the report still lists the fields
    text += "" if text.endswith("\n") else "\n"
    by_line = {node.start_mark.line + 1: node for node in nodes.items(root) if isinstance(node, yaml.MappingNode)}
    for watch in sorted(project.content.watches, key=lambda item: -item.line):
        node = by_line.get(watch.line)
        if node is not None and not node.flow_style:
            text = _edited(text, _fields(text, node, _added(project, watch)))
    return text


def _fields(text: str, watch: yaml.MappingNode, added: Mapping[str, list[str] | str]) -> Iterator[_Edit]:
    """Yield the changes that set fields of a watch; comments remain."""
    fields = {key.value.lower(): value for key, value in nodes.pairs(watch)}
    new = ""
    for name, values in added.items():
        plain = f"[{', '.join(values)}]" if isinstance(values, list) else values
        value = fields.get(name.lower())
        if value is None:
            new += f"{' ' * watch.start_mark.column}{name}: {plain}\n"
        elif isinstance(value, yaml.SequenceNode) and value.value and not value.flow_style:
            known, margin = set(map(nodes.text, value.value)), " " * value.start_mark.column
            yield _after(text, value, "".join(f"{margin}- {item}\n" for item in values if item not in known))
        else:
            yield _value(value, plain)
    yield _after(text, watch, new)


def _added(project: Project, watch: Watch) -> dict[str, list[str] | str]:
    """Return fields of a watch and their values."""
    findings = [finding for owner, finding in samples.findings_of_watches(project) if owner is watch]
    added: dict[str, list[str] | str] = {}
    if any(finding.rule == "template-in-sample" for finding in findings):
        added["markUnsafe"] = "false"
    if names := sorted({finding.subject for finding in findings if finding.rule == "ansible-variable"}):
        added["allowAnsibleVariables"] = [*sorted(watch.allow_ansible_variables), *names]
    return added


def _checklist(report: Report, changed: list[str]) -> str:
    lines = [
        f"# Migration of {report.project}",
        "",
        f"Target: ansible-core {report.core}; {'; '.join(report.reasons)}.",
        "",
        "`ansible-operator migrate` prints the current list. Delete this file after the migration.",
        "",
    ]
    if changed:
        lines += ["## Changed by `migrate --write`", "", *(f"- [ ] review {path}" for path in changed), ""]
    for need, heading in HEADINGS.items():
        groups = grouped(finding for finding in report.findings if finding.need == need)
        if groups:
            lines += [f"## {heading}", ""]
        for first, others in groups:
            also = f" (also in {', '.join(others)})" if others else ""
            lines.append(f"- [ ] {first.place}: {first.message}{also}. Fix: {first.fix}.")
        if groups:
            lines.append("")
    lines += [
        "## Test",
        "",
        "- [ ] `ansible-operator validate`",
        "- [ ] `ansible-operator dev`, and apply the samples",
        "- [ ] build the image, deploy it to a test cluster, and scale the old operator to zero there",
        "",
    ]
    return "\n".join(lines)
