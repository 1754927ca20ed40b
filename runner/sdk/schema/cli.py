"""`ansible-operator generate crds` and `generate argspec`.

Owns arguments and output of the commands. Errors pass through as ConfigError; the caller prints them.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from runner.base.config import commands
from runner.base.config.commands import Subparsers
from runner.values.errors import ConfigError

if TYPE_CHECKING:
    from runner.core.watches.watch import Watch
    from runner.sdk.schema.files import Generated

_GENERATE = "Write files of the project in this folder from its other files."
_SAMPLES = Path("config/samples")
_EXAMPLES = ("crds", "chart --chart-version 1.2.0")
_DESCRIPTION = """\
Write the schema of each watched kind's spec to its CRD, from meta/argument_specs.yml of its role: types, defaults,
choices, required options, descriptions, nested options, and validation rules for options that exclude or require each
other. meta/crd_validations.yml of the role adds further rules. A role without argument specs accepts any spec. All
other lines of the CRD remain unchanged. A sample with an empty spec gets the required options."""
_DESCRIPTION_BACK = """\
Add the fields of each watched kind's spec in its CRD to meta/argument_specs.yml of its role: options with types,
defaults, choices and descriptions, and which options exclude or require each other. Existing options remain unchanged.
A warning lists parts of the schema that an argument spec cannot express."""


def add_commands(subparsers: Subparsers) -> Subparsers:
    """Add `generate` and its commands. Return these, so that more commands can be added."""
    text = "generate CRD schemas, argument specs of roles, RBAC rules, manifests, a Helm chart, or an OLM bundle"
    subcommands = commands.group(subparsers, "generate", text, _GENERATE, _EXAMPLES)
    for name, run, text, description in (
        ("crds", _crds, "write the schemas of CRDs from the roles' argument specs", _DESCRIPTION),
        ("argspec", _argspec, "write the roles' argument specs from the CRDs", _DESCRIPTION_BACK),
    ):
        parser = commands.add(subcommands, name, run, text, description, ("", "--check"))
        add_watches_file(parser)
        parser.add_argument(
            "--crds", default="config/crd/bases", type=Path, metavar="FOLDER", help="folder of CRDs [config/crd/bases]"
        )
        parser.add_argument(
            "--check", action="store_true", help="write nothing; exit with code 1 if a file is out of date"
        )
    return subcommands


def _crds(arguments: argparse.Namespace) -> int:
    from runner.base.yamlfile.tree import Problems  # noqa: PLC0415 - help needs no YAML
    from runner.sdk.schema import files, project  # noqa: PLC0415 - the same

    watches = load_watches(arguments.watches_file)
    code = _write(files.generate(watches, arguments.crds), "CRD", check=arguments.check)
    problems = Problems()
    files.report_choices(watches, Path.cwd(), problems)
    if not arguments.check:
        for path in files.complete_samples(watches, arguments.crds, _SAMPLES):
            sys.stdout.write(f"changed  {path}: required options, with values to edit\n")
        project.report_samples(Path.cwd(), problems)
    sys.stderr.write("".join(f"{line}\n" for _, line in problems.report(strict=False)))
    return code


def _argspec(arguments: argparse.Namespace) -> int:
    from runner.sdk.schema import files  # noqa: PLC0415 - the same

    generated = files.generate_argspecs(load_watches(arguments.watches_file), arguments.crds, Path.cwd())
    return _write(generated, "argument spec", check=arguments.check)


def add_watches_file(parser: argparse.ArgumentParser) -> None:
    """Add `--watches-file`."""
    parser.add_argument(
        "--watches-file", default="./watches.yaml", type=Path, help="path of watches.yaml [./watches.yaml]"
    )


def load_watches(file: Path) -> tuple[Watch, ...]:
    """Return the watches of a file, which is that of `--watches-file`. Raises ConfigError."""
    from runner.app.features import FEATURE_FIELDS  # noqa: PLC0415 - the same
    from runner.core.watches import watch  # noqa: PLC0415 - the same

    loaded = watch.load(
        file,
        environ=os.environ,
        cwd=Path.cwd(),
        roles_path=os.environ.get("ANSIBLE_ROLES_PATH", ""),
        collections_path=os.environ.get("ANSIBLE_COLLECTIONS_PATH", ""),
        features=FEATURE_FIELDS,
    )
    if not loaded.watches:
        raise ConfigError(f"{file} has no watches; add a kind with `ansible-operator create api`")
    return loaded.watches


def _write(generated: list[Generated], what: str, *, check: bool) -> int:
    """Write the changed files, or only list them with `check`. Return the exit code."""
    from runner.base.yamlfile import edits  # noqa: PLC0415 - as above

    changed = [file for file in generated if file.after != file.before]
    if not check:
        for file in changed:
            file.path.parent.mkdir(parents=True, exist_ok=True)
            edits.write(file.path, file.after)
    word = "differs" if check else "changed"
    counted = f"1 {what} is" if len(generated) == 1 else f"all {len(generated)} {what}s are"
    lines = [f"{word}  {_shown(file.path)}" for file in changed] or [f"{counted} up to date"]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stderr.write(
        "".join(f"warning: {_shown(file.path)}: {problem}\n" for file in generated for problem in file.problems)
    )
    return int(check and bool(changed))


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
