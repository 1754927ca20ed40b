"""Results of the analysis of a project: findings, and the ansible-core that fits. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Literal, TypeAlias

from runner.base.yamlfile.tree import Problem

OLD_CORE, NEW_CORE = "2.18", "2.21"
"""The Go operator's ansible-core, default of migrated projects, and that of new projects."""

Need = Literal["now", "stricter core", "check"]
"""`now`: change it before the migration. `stricter core`: change it before ansible-core 2.19 or later. `check`: the
behaviour differs, and the project may depend on it."""

HEADINGS: Mapping[Need, str] = {
    "now": "Change before the migration",
    "stricter core": "Change before ansible-core 2.19 or later",
    "check": "Check",
}
"""Headings of a report, in its order."""


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A construct with another meaning, its place, and its fix."""

    file: str
    """Path relative to the project."""
    line: int
    """0: the whole file."""
    rule: str
    """Name of the check, for tools."""
    message: str
    fix: str
    need: Need = "now"
    is_automatic: bool = False
    """True if `--write` makes the change."""
    subject: str = field(default="", compare=False)
    """Name that `--write` needs: of the collection that is missing, or of the variable that is dropped."""

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def to_problem(self) -> Problem:
        """Return the finding as a warning of `validate`."""
        return Problem(self.file, self.line, "", f"{self.message}: {self.fix}")

    def to_json(self) -> dict[str, Any]:
        """Return the finding for `--output json`."""
        return {
            "file": self.file,
            "line": self.line,
            "rule": self.rule,
            "message": self.message,
            "fix": self.fix,
            "need": self.need,
            "automatic": self.is_automatic,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """Findings about a project, and the ansible-core for which they were made."""

    project: str
    core: str
    """Target ansible-core."""
    reasons: tuple[str, ...]
    """Reasons for the target, a sentence each."""
    findings: tuple[Finding, ...] = field(default=())

    @property
    def work(self) -> tuple[Finding, ...]:
        """Findings that require a change for the target."""
        return tuple(finding for finding in self.findings if self._is_work(finding))

    def _is_work(self, finding: Finding) -> bool:
        return finding.need == "now" or (finding.need == "stricter core" and self.core != OLD_CORE)

    def to_json(self) -> dict[str, Any]:
        """Return the report for `--output json`."""
        return {
            "project": self.project,
            "ansibleCore": {"target": self.core, "reasons": list(self.reasons)},
            "work": len(self.work),
            "findings": [{**finding.to_json(), "work": self._is_work(finding)} for finding in self.findings],
        }


def grouped(findings: Iterable[Finding]) -> list[tuple[Finding, list[str]]]:
    """Return each distinct message once, with its further places, in the order of files."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in sorted(findings):
        groups.setdefault((finding.rule, finding.message, finding.fix), []).append(finding)
    return [(first, [finding.place for finding in rest]) for first, *rest in groups.values()]


Version: TypeAlias = tuple[int, ...]
_STRICTER = (2, 19)


def is_stricter() -> bool:
    """Return whether the installed ansible-core differs from the Go operator's in templates and conditions."""
    return numbers(version("ansible-core"))[:2] >= _STRICTER


def numbers(text: str) -> Version:
    """Return the numbers of a version; empty if it begins with none."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()
