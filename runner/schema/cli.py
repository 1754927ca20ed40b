"""`ansible-operator generate crds` and `generate argspec`.

Owns arguments and output of the command. Errors pass through as ConfigError: the command line above prints them.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import ConfigError

if TYPE_CHECKING:
    from runner.schema.files import Generated
    from runner.watches.watch import Watch

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no public name for it

_DESCRIPTION = """\
Write the schema of each watched kind's spec into its CRD, from meta/argument_specs.yml of its role: types, defaults,
choices, required options, descriptions and nested options, and as rules what excludes or requires what. Further rules
come from meta/crd_validations.yml of the role. A role without argument specs takes any spec. All other lines of the CRD
stay as they are."""


_DESCRIPTION_BACK = """\
Add to meta/argument_specs.yml of each watched kind's role what the schema of the kind's spec in its CRD has and the
role's file has not: options with types, defaults, choices and descriptions, and what they exclude or require. What
stands in the file stays. What an argument spec cannot say is told."""


def add_commands(subparsers: Subparsers) -> Subparsers:
    """Add `generate` and its commands; return these, for what else is generated."""
    generate = subparsers.add_parser(
        "generate", help="schemas of CRDs, argument specs of roles, a Helm chart, a bundle for OLM, manifests"
    )
    commands = generate.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, run, text, description in (
        ("crds", _crds, "write schemas into CRDs", _DESCRIPTION),
        ("argspec", _argspec, "write argument specs of roles, from the CRDs", _DESCRIPTION_BACK),
    ):
        parser = commands.add_parser(
            name,
            help=text,
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        parser.add_argument("--watches-file", default="./watches.yaml", type=Path, help="[./watches.yaml]")
        parser.add_argument(
            "--crds", default="config/crd/bases", type=Path, metavar="FOLDER", help="[config/crd/bases]"
        )
        parser.add_argument(
            "--check", action="store_true", help="write nothing; exit code 1 if something would be written"
        )
        parser.set_defaults(func=run)
    return commands


def _crds(arguments: argparse.Namespace) -> int:
    from runner.schema import files  # noqa: PLC0415 - help needs no YAML

    made = files.generate(_watches(arguments), arguments.crds)
    return _write(made, "CRDs are as they should be", check=arguments.check)


def _argspec(arguments: argparse.Namespace) -> int:
    from runner.schema import files  # noqa: PLC0415 - the same

    made = files.generate_argspecs(_watches(arguments), arguments.crds, Path.cwd())
    return _write(made, "argument specs have all that the CRDs have", check=arguments.check)


def _watches(arguments: argparse.Namespace) -> tuple[Watch, ...]:
    from runner.watches import watch  # noqa: PLC0415 - the same

    loaded = watch.load(
        arguments.watches_file,
        environ=os.environ,
        cwd=Path.cwd(),
        roles_path=os.environ.get("ANSIBLE_ROLES_PATH", ""),
        collections_path=os.environ.get("ANSIBLE_COLLECTIONS_PATH", ""),
    )
    if not loaded.watches:
        raise ConfigError(f"{arguments.watches_file}: watches nothing; `ansible-operator create api` adds a kind")
    return loaded.watches


def _write(made: list[Generated], fine: str, *, check: bool) -> int:
    """Write what has changed, or say only what would be; return the exit code."""
    changed = [each for each in made if each.after != each.before]
    if not check:
        for each in changed:
            each.path.parent.mkdir(parents=True, exist_ok=True)
            each.path.write_text(each.after, encoding="utf-8")
    word = "differs" if check else "changed"
    lines = [f"{word}  {_shown(each.path)}" for each in changed] or [f"all {len(made)} {fine}"]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stderr.write("".join(f"warning: {_shown(each.path)}: {told}\n" for each in made for told in each.problems))
    return int(check and bool(changed))


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
