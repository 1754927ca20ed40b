"""`ansible-operator migrate`.

Owns arguments, output and exit codes of the command: 0 nothing to do, 1 work left, 2 not a project.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from runner.base.config import commands
from runner.base.config.commands import Subparsers
from runner.values.errors import ConfigError

if TYPE_CHECKING:
    from runner.compatibility.finding import Finding, Report
    from runner.sdk.migrate.trial import Trials

_PLACES = 5
"""Further places of a finding that its line names."""
_DESCRIPTION = """\
Report every construct of a project of the Go operator that has another meaning here: in watches, roles, playbooks,
samples, manifests and Dockerfiles. Each finding has its file, line and fix.

Without --write, the command changes no file. With --write, it makes the mechanical changes (base image and packages of
Dockerfiles, collections, renamed modules and variables, settings of watches) in a Git tree without other changes.
With --try, it also runs the project's samples on a local control plane, with each ansible-core and engine.

Exit codes: 0 nothing to do, 1 work left, 2 not a project."""
_EXAMPLES = ("", "../memcached-operator --write")


def add_commands(subparsers: Subparsers) -> None:
    """Add `migrate`."""
    text = "report which parts of a project of the Go operator need a change"
    parser = commands.add(subparsers, "migrate", _migrate, text, _DESCRIPTION, _EXAMPLES, "[DIR] [flags]")
    parser.add_argument("folder", nargs="?", default=".", type=Path, metavar="DIR", help="folder of the project [.]")
    parser.add_argument(
        "--watches-file",
        type=Path,
        metavar="FILE",
        help="watches file, relative to DIR [watches.yaml, otherwise every file whose content is that of one]",
    )
    parser.add_argument(
        "--output", choices=("text", "json"), metavar="text|json", default="text", help="format of the report [text]"
    )
    parser.add_argument(
        "--write", action="store_true", help="make the mechanical changes, and list all other findings in MIGRATION.md"
    )
    parser.add_argument(
        "--base-image", metavar="IMAGE", help="base image for --write [the published one, with -core2.18]"
    )
    parser.add_argument(
        "--try",
        dest="tries",
        action="store_true",
        help="run the samples on a local control plane with ansible-core 2.18 and 2.21, and compare the objects",
    )


def _migrate(arguments: argparse.Namespace) -> int:
    if not arguments.folder.is_dir():
        raise ConfigError(f"{arguments.folder} is not a folder")
    with contextlib.chdir(arguments.folder):
        file, image = arguments.watches_file, arguments.base_image
        report, changed = _written(file, image) if arguments.write else (_analysed(file), [])
        trials = _tried(file) if arguments.tries else None
    if arguments.output == "json":
        tried = {"trial": trials.to_json()} if trials else {}
        sys.stdout.write(json.dumps({**report.to_json(), **tried}, indent=2) + "\n")
    else:
        lines = [*_lines(report), *(f"changed  {path}" for path in changed), *(trials.lines() if trials else ())]
        sys.stdout.write("\n".join(lines) + "\n")
    return int(bool(report.work) or (trials is not None and report.core not in trials.fitting))


def _tried(file: Path | None) -> Trials:
    from runner.sdk.migrate import trial  # noqa: PLC0415 - as below
    from runner.sdk.migrate.project import Project, watches_files  # noqa: PLC0415 - as below

    paths = watches_files(file)
    if len(paths) > 1:
        raise ConfigError(f"--try runs one operator: select {', '.join(map(str, paths))} with --watches-file")
    return trial.run(Project(os.environ, paths[0]))


def _analysed(file: Path | None) -> Report:
    from runner.sdk.migrate import analysis  # noqa: PLC0415 - help needs neither YAML nor Jinja
    from runner.sdk.migrate.project import Project, other_watches_files, watches_files  # noqa: PLC0415 - the same

    paths = watches_files(file)
    others = other_watches_files(paths[0]) if len(paths) == 1 else ()
    return analysis.analyse_all([Project(os.environ, path) for path in paths], others)


def _written(file: Path | None, image: str | None) -> tuple[Report, list[str]]:
    """Make the mechanical changes. Return the report about the changed project, and the changed files."""
    from runner.sdk.migrate import analysis, dockerfile, writing  # noqa: PLC0415 - as above
    from runner.sdk.migrate.project import Project, watches_files  # noqa: PLC0415 - as above

    paths = watches_files(file)
    writing.require_clean_tree()
    changed: list[str] = []
    for path in paths:
        project = Project(os.environ, path)  # reads what was written for the one before
        changed += writing.write(project, analysis.analyse(project), image or dockerfile.TARGET_IMAGE)
    changed = list(dict.fromkeys(changed))
    report = _analysed(file)
    writing.write_checklist(report, changed)
    return report, [*changed, str(writing.CHECKLIST)]


def _lines(report: Report) -> list[str]:
    """Return the report for a terminal."""
    from runner.compatibility.finding import HEADINGS, grouped  # noqa: PLC0415 - as above

    lines = [f"{report.project}: target ansible-core {report.core}", *(f"  - {reason}" for reason in report.reasons)]
    for need, heading in HEADINGS.items():
        findings = [finding for finding in report.findings if finding.need == need]
        if findings:
            lines += ["", f"{heading} ({len(findings)}):"]
        for first, others in grouped(findings):
            lines += _entry(first, others)
    automatic = sum(finding.is_automatic for finding in report.work)
    total = len(report.work)
    summary = "nothing to do" if not total else f"{total} {'change' if total == 1 else 'changes'}"
    lines += [
        "",
        f"Result for ansible-core {report.core}: {summary}" + (f", {automatic} mechanical" if automatic else ""),
    ]
    return lines


def _entry(finding: Finding, others: list[str]) -> list[str]:
    more = f", {len(others) - _PLACES} more" if len(others) > _PLACES else ""
    also = f" (also in {', '.join(others[:_PLACES])}{more})" if others else ""
    return [f"  {finding.place}: {finding.message}{also}", f"    {finding.fix}"]
