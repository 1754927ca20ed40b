"""Analysis of a project: all findings, and the target ansible-core with its reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from runner.compatibility import core_changes, unsupported
from runner.compatibility.finding import NEW_CORE, OLD_CORE, Finding, Report, Version, numbers
from runner.sdk.migrate import dockerfile, manifests, modules, samples
from runner.sdk.migrate.project import Project

_RULES = {
    "implicit-boolean": ("condition that is not a boolean", "conditions that are not booleans"),
    "template-module": ("template that kubernetes.core sends as text", "templates that kubernetes.core sends as text"),
    "number-as-text": ("number in a field that requires text", "numbers in fields that require text"),
}
_UNREAD = "not-read"
_UNPROVEN = {
    core_changes.UNPROVEN: ("condition of unknown type", "conditions of unknown type"),
    _UNREAD: ("role that is not read", "roles that are not read"),
}
"""Findings that leave open whether a project works."""
_NOT_PROVEN = f"{NEW_CORE} is not proven"
_NO_OBSTACLE = f"this analysis found no obstacle for {NEW_CORE}"
_WITH_COLLECTIONS = (2, 10)


def analyse(project: Project) -> Report:
    """Return the report about a project. Raises ConfigError if its watches file cannot be read."""
    findings = list(dict.fromkeys(sorted(_findings(project))))
    core = _target(project)
    return Report(project.root.name, core, tuple(_reasons(project, core, findings)), tuple(findings))


def analyse_all(projects: Sequence[Project], others: Sequence[Path] = ()) -> Report:
    """Return the report about a project with one or several watches files. `others`: files that are not analysed.

    Raises ConfigError if a watches file cannot be read.
    """
    reports = [analyse(project) for project in projects]
    reasons = dict.fromkeys(reason for report in reports for reason in report.reasons)
    if any(reason.startswith(_NOT_PROVEN) for reason in reasons):
        reasons = dict.fromkeys(reason for reason in reasons if not reason.startswith(_NO_OBSTACLE))
    files = ", ".join(str(project.watches_file) for project in projects)
    if len(projects) > 1:
        reasons[f"the watches files are {files}; --watches-file selects one of them"] = None
    if others:
        reasons[f"not analysed: {', '.join(map(str, others))}; --watches-file selects one of them"] = None
    findings = sorted({finding for report in reports for finding in report.findings})
    return Report(reports[0].project, reports[0].core, tuple(reasons), tuple(findings))


def _findings(project: Project) -> Iterator[Finding]:
    problems = project.content.problems
    for error in problems.errors:
        yield Finding(error.file, error.line, "error", _text(error.subject, error.message), "correct the file")
    for warning in problems.warnings:
        if not warning.is_hint:
            is_removed = "removed from the SDK" in warning.message
            message, _, fix = warning.message.partition(": use ")
            if is_removed and fix:
                yield Finding(warning.file, warning.line, "removed-variable", message, f"use {fix}", is_automatic=True)
            else:
                text = _text(warning.subject, warning.message)
                yield Finding(warning.file, warning.line, "warning", text, "see the message", "check")
    types = samples.types(project)
    yield from core_changes.findings(project.content, _kubernetes_core(project), types)
    yield from core_changes.unproven(project.content, types)
    for problem in project.content.unread:
        fix = "check the roles that it can name; those in the project's folders of roles are read"
        yield Finding(problem.file, problem.line, _UNREAD, problem.message, fix, "check")
    yield from unsupported.findings(project.content)
    yield from modules.findings(project)
    yield from samples.findings(project)
    yield from manifests.findings(project)
    for parsed in project.dockerfiles:
        yield from dockerfile.findings(parsed)


def _text(subject: str, message: str) -> str:
    return f"{subject}: {message}" if subject else message


def _kubernetes_core(project: Project) -> Version | None:
    """Return the lowest version of kubernetes.core that requirements.yml permits; None if any is permitted."""
    pinned = project.collections.get("kubernetes.core")
    if pinned is None:
        # community.kubernetes has the same defect; version 2 of it installs kubernetes.core 2.
        return (2, 0, 0) if "community.kubernetes" in project.collections else None
    return numbers(pinned.version.lstrip("=~ ")) or None


def _target(project: Project) -> str:
    """Return the ansible-core of the Dockerfile, if it is migrated; otherwise the Go operator's."""
    for parsed in project.dockerfiles:
        if parsed.is_migrated:
            return parsed.core or NEW_CORE
    return OLD_CORE


def _reasons(project: Project, core: str, findings: list[Finding]) -> Iterator[str]:
    for parsed in project.dockerfiles:
        if parsed.is_migrated:
            yield f"{parsed.file} uses {parsed.image}"
        elif parsed.core:
            contained = (
                f"Ansible {parsed.core}" if numbers(parsed.core) < _WITH_COLLECTIONS else f"ansible-core {parsed.core}"
            )
            yield f"{parsed.file} uses {parsed.image}, which contains {contained}"
            if numbers(parsed.core) < _WITH_COLLECTIONS:
                yield "Ansible 2.9 contained modules that are in collections today: requirements.yml must list these"
        else:
            yield f"{parsed.file} uses {parsed.image}, whose version of Ansible is unknown"
    counts = _counted(findings, _RULES)
    unproven = _counted(findings, _UNPROVEN)
    if counts:
        yield f"ansible-core 2.19 and later reject or change {', '.join(counts)}"
    if unproven:
        yield f"{_NOT_PROVEN}: this analysis found {', '.join(unproven)}"
    elif not counts and core == OLD_CORE:
        yield f"{_NO_OBSTACLE}; {OLD_CORE} is the default of migrated projects"


def _counted(findings: list[Finding], names: Mapping[str, tuple[str, str]]) -> list[str]:
    """Return the number of findings of each rule."""
    counts = Counter(finding.rule for finding in findings if finding.rule in names)
    return [f"{count} {names[rule][count > 1]}" for rule, count in sorted(counts.items())]
