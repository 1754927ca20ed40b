"""`ansible-operator migrate --write`: the mechanical changes, and MIGRATION.md with the remaining work.

Requires a project in a Git repository without uncommitted changes, so that `git diff` shows what changed. All files are
written, or none.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

import yaml

from runner.base.yamlfile import edits, nodes
from runner.compatibility import unsupported
from runner.compatibility.finding import HEADINGS, Finding, Report, grouped
from runner.core.watches.watch import Watch
from runner.sdk.migrate import dockerfile, samples
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
    root = yaml.compose(text, Loader=yaml.SafeLoader) if text.strip() else None
    entries = nodes.items(nodes.at(root, "collections"))
    names = [nodes.text(nodes.at(entry, "name") or entry) for entry in entries]
    lines = text.splitlines(keepends=True)
    for node, name in reversed(list(zip(entries, names, strict=True))):
        if name == OLD:
            replacement = [] if NEW in names else [f"{' ' * _indent(node)}{line}" for line in _entry(NEW)]
            lines[node.start_mark.line : edits.last_line(node)] = replacement
    after = "".join(lines) or "---\n"
    for name in missing:
        after = edits.insert(after, ("collections",), "".join(_entry(name)), file=file)
    return after


def _entry(name: str) -> list[str]:
    version = [f'  version: "{PIN}"\n'] if name == NEW else []
    return [f"- name: {name}\n", *version]


def _indent(node: yaml.Node) -> int:
    """Return the column of the dash before an item of a list in block style."""
    return max(int(node.start_mark.column) - 2, 0)


CHECKLIST = PurePosixPath("MIGRATION.md")
_REQUIREMENTS = PurePosixPath("requirements.yml")
_INSTALL = """\
COPY requirements.yml ${HOME}/requirements.yml
RUN ansible-galaxy collection install -r ${HOME}/requirements.yml \\
 && chmod -R ug+rwx ${HOME}/.ansible
"""
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
        after = dockerfile.migrated(parsed, image)
        changes.edit(PurePosixPath(parsed.file), _constant(_with_install(after) if missing else after))
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


def _with_install(text: str) -> str:
    """Return a Dockerfile that installs the collections of requirements.yml, before its first COPY."""
    if "ansible-galaxy" in text:
        return text
    lines = text.splitlines(keepends=True)
    first = next((number for number, line in enumerate(lines) if line.startswith(("COPY ", "ADD "))), len(lines))
    return "".join([*lines[:first], _INSTALL, *lines[first:]])


def _renamed(text: str) -> str:
    """Return a file of tasks with successors of names."""
    for pattern, successor in _SUCCESSORS:
        text = pattern.sub(successor, text)
    return text


def _with_fields(text: str, project: Project) -> str:
    """Return watches.yaml with the fields that keep the Go operator's behaviour for the samples and CRDs."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    lines = text.splitlines(keepends=True)
    by_line = {node.start_mark.line + 1: node for node in nodes.items(root)}
    for watch in sorted(project.content.watches, key=lambda item: -item.line):
        node = by_line.get(watch.line)
        added = _added(project, watch)
        if node is None or not added or node.flow_style:
            continue
        last = edits.last_line(node)
        if not lines[last - 1].endswith("\n"):
            lines[last - 1] += "\n"
        fields = {key.value: (key, value) for key, value in nodes.pairs(node)}
        margin = " " * node.start_mark.column
        lines[last:last] = [f"{margin}{name}: {value}\n" for name, value in added.items() if name not in fields]
        for name in sorted(added.keys() & fields.keys(), key=lambda field: -fields[field][0].start_mark.line):
            key, value = fields[name]
            before = lines[key.start_mark.line][: key.start_mark.column]  # the dash, in the first line of a watch
            lines[key.start_mark.line : edits.last_line(value)] = [f"{before}{name}: {added[name]}\n"]
    return "".join(lines)


def _added(project: Project, watch: Watch) -> dict[str, str]:
    """Return fields of a watch and their values in YAML."""
    findings = [finding for owner, finding in samples.findings_of_watches(project) if owner is watch]
    added = {}
    if any(finding.rule == "template-in-sample" for finding in findings):
        added["markUnsafe"] = "false"
    if names := sorted({finding.subject for finding in findings if finding.rule == "ansible-variable"}):
        added["allowAnsibleVariables"] = f"[{', '.join([*sorted(watch.allow_ansible_variables), *names])}]"
    return added


def _checklist(report: Report, changed: list[str]) -> str:
    lines = [
        f"# Migration of {report.project}",
        "",
        f"Target: ansible-core {report.core}. " + ". ".join(_sentence(reason) for reason in report.reasons) + ".",
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


def _sentence(reason: str) -> str:
    return reason[:1].upper() + reason[1:]
