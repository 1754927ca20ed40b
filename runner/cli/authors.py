"""Commands for authors of operators. The image of an operator does not have them: it contains no `runner.sdk`."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.base.config import commands
from runner.base.config.commands import Subparsers
from runner.base.config.options import Option
from runner.base.config.settings import OPTIONS
from runner.cli import text as cli_text
from runner.features.rights import cli as rbac_cli
from runner.sdk.dev import cli as dev_cli
from runner.sdk.devcluster import cli as devcluster_cli
from runner.sdk.migrate import cli as migrate_cli
from runner.sdk.packaging import cli as packaging_cli
from runner.sdk.preview import cli as plan_cli
from runner.sdk.scaffold import cli as scaffold_cli
from runner.sdk.schema import cli as schema_cli

_OK, _BAD_INPUT = 0, 2
_VALIDATE_OPTIONS = ("watches-file", "ansible-roles-path", "ansible-collections-path")


def add_commands(group: Subparsers, add: Callable[[Any, Option], None]) -> None:
    """Add all of them. `add` adds a flag of the operator to a parser."""
    text = "check a watches file and its roles without a cluster"
    validate = commands.add(group, "validate", _validate, text, cli_text.VALIDATE, cli_text.VALIDATE_EXAMPLES)
    for option in OPTIONS:
        if option.flag in _VALIDATE_OPTIONS:
            add(validate, option)
    validate.add_argument("--strict", action="store_true", help="treat warnings as errors")
    scaffold_cli.add_commands(group)
    generated = schema_cli.add_commands(group)
    packaging_cli.add_commands(generated)
    rbac_cli.add_commands(generated)
    scaffold_cli.add_generate_commands(generated)
    devcluster_cli.add_commands(group)
    dev_cli.add_commands(group, add)
    migrate_cli.add_commands(group)
    plan_cli.add_commands(group, add)


def _validate(arguments: argparse.Namespace) -> int:
    from runner.app.features import FEATURE_FIELDS  # noqa: PLC0415 - as above
    from runner.base.config import sources  # noqa: PLC0415 - as above
    from runner.compatibility import (  # noqa: PLC0415 - as above
        core_changes,
        unsupported,
        validation,
    )
    from runner.sdk.checks import plugins, schemas, templates  # noqa: PLC0415 - as above
    from runner.sdk.migrate import image  # noqa: PLC0415 - as above
    from runner.sdk.schema import project, usage  # noqa: PLC0415 - as above

    settings, warnings = sources.load(arguments, os.environ)
    copied = image.files(image.dockerfiles(), settings.watches_file)
    search_path = replace(settings.search_path(os.environ, Path.cwd()), image=copied)
    result = validation.validate(
        settings.watches_file, environ=os.environ, cwd=Path.cwd(), search_path=search_path, features=FEATURE_FIELDS
    )
    scan = templates.scan(result, Path.cwd(), search_path, result.problems)
    plugins.report(scan, search_path, Path.cwd(), os.environ, result.problems)
    usage.report(result.watches, Path("config/crd/bases"), cwd=Path.cwd(), places=search_path, problems=result.problems)
    project.report(result.watches, settings.watches_file, cwd=Path.cwd(), problems=result.problems)
    schemas.report(result, Path("config/crd/bases"), Path.cwd(), scan, result.problems)
    result.problems.warnings += [finding.to_problem() for finding in unsupported.findings(result)]
    warnings = (*warnings, *core_changes.warnings(result, search_path, os.environ))
    level_of_warnings = "error" if arguments.strict else "warning"
    reported = [(level_of_warnings, f"{level_of_warnings}: {sentence}") for sentence in warnings]
    reported += result.problems.report(strict=arguments.strict)
    lines = [line for _, line in reported]
    levels = Counter(level for level, _ in reported)
    lines.append(
        f"{settings.watches_file}: {_count(len(result.watches), 'watch', 'watches')}, "
        f"{_count(levels['error'], 'error', 'errors')}, {_count(levels['warning'], 'warning', 'warnings')}"
    )
    sys.stdout.write("\n".join(lines) + "\n")
    return _BAD_INPUT if levels["error"] else _OK


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
