"""`ansible-operator generate crds`.

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
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no public name for it

_DESCRIPTION = """\
Write the schema of each watched kind's spec into its CRD, from meta/argument_specs.yml of its role: types, defaults,
choices, required options, descriptions and nested options, and as rules what excludes or requires what. Further rules
come from meta/crd_validations.yml of the role. A role without argument specs takes any spec. All other lines of the CRD
stay as they are."""


def add_commands(subparsers: Subparsers) -> None:
    """Add `generate` and its commands."""
    generate = subparsers.add_parser("generate", help="`generate crds`: schemas of CRDs from the roles' argument specs")
    commands = generate.add_subparsers(title="commands", required=True, metavar="COMMAND")
    crds = commands.add_parser(
        "crds",
        help="write schemas into CRDs",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    crds.add_argument("--watches-file", default="./watches.yaml", type=Path, help="[./watches.yaml]")
    crds.add_argument("--crds", default="config/crd/bases", type=Path, metavar="FOLDER", help="[config/crd/bases]")
    crds.add_argument("--check", action="store_true", help="write nothing; exit code 1 if something would be written")
    crds.set_defaults(func=_crds)


def _crds(arguments: argparse.Namespace) -> int:
    from runner import watches  # noqa: PLC0415 - help needs neither watches nor YAML
    from runner.schema import files  # noqa: PLC0415 - the same

    loaded = watches.load(
        arguments.watches_file,
        environ=os.environ,
        cwd=Path.cwd(),
        roles_path=os.environ.get("ANSIBLE_ROLES_PATH", ""),
        collections_path=os.environ.get("ANSIBLE_COLLECTIONS_PATH", ""),
    )
    if not loaded.watches:
        raise ConfigError(f"{arguments.watches_file}: watches nothing; `ansible-operator create api` adds a kind")
    made = files.generate(loaded.watches, arguments.crds)
    changed = [crd for crd in made if crd.after != crd.before]
    if not arguments.check:
        for crd in changed:
            crd.path.write_text(crd.after, encoding="utf-8")
    word = "differs" if arguments.check else "changed"
    lines = [f"{word}  {crd.path}" for crd in changed] or [f"all {len(made)} CRDs are as they should be"]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stderr.write("".join(f"warning: {crd.path}: {each}\n" for crd in made for each in crd.problems))
    return int(arguments.check and bool(changed))
