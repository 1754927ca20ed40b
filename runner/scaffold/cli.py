"""`ansible-operator init` and `ansible-operator create api`.

Owns arguments and output of these commands. Errors pass through as ConfigError and OperatorError: the command line
above prints them.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import ConfigError

if TYPE_CHECKING:
    from runner.scaffold import api

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no public name for it

_PLUGINS = ("ansible", "ansible.sdk.operatorframework.io/v1", "ansible.sdk.operatorframework.io")

_TO_BE_WRITTEN = re.compile(r"roles/\w+(?<!_finalizer)/tasks/main\.yml|playbooks/\w+\.yml")
"""What `create api` leaves to the developer."""

_INIT = """\
Make this folder the project of an operator: watches.yaml, roles/, playbooks/, molecule/, config/ with what is deployed,
Makefile, Dockerfile. Nothing that is there is overwritten. With --kind, the first kind is added at once."""

_INIT_EXAMPLES = """\
examples:
  ansible-operator init --domain example.com
  ansible-operator init --domain example.com --group cache --version v1alpha1 --kind Memcached --generate-role"""

_API = """\
Add a kind to the project in this folder: its CRD, the operator's rights, roles for people, a sample, an entry in
watches.yaml, a test for molecule, and a role unless there is one of that name. For a kind that the project has, a
version is added to its CRD. Files that exist are only added to."""

_API_EXAMPLES = """\
examples:
  ansible-operator create api --group cache --kind Memcached --finalizer
  ansible-operator create api --group cache --version v1beta1 --kind Memcached
  ansible-operator create api --group infra --kind Tenant --namespaced=false --short-name tn"""


def add_commands(subparsers: Subparsers) -> None:
    """Add `init` and `create`."""
    form = argparse.RawDescriptionHelpFormatter
    init = subparsers.add_parser(
        "init", help="begin a project in this folder", description=_INIT, epilog=_INIT_EXAMPLES, formatter_class=form
    )
    init.add_argument("--plugins", default="ansible", help="only `ansible`; for compatibility")
    init.add_argument("--domain", default="my.domain", help="behind every group's name [my.domain]")
    init.add_argument("--project-name", default="", metavar="NAME", help="[the folder's name]")
    init.add_argument("--project-version", default="3", choices=["3"], help="of the file PROJECT; for compatibility")
    _add_kind(init)
    init.set_defaults(func=_init)
    create = subparsers.add_parser("create", help="`create api`: add a kind to the project in this folder")
    commands = create.add_subparsers(title="commands", required=True, metavar="COMMAND")
    api = commands.add_parser(
        "api", help="add a kind", description=_API, epilog=_API_EXAMPLES, formatter_class=form, allow_abbrev=False
    )
    _add_kind(api)
    api.set_defaults(func=_create_api)


def _add_kind(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--group", default="", help="the kind's group, without the domain")
    parser.add_argument("--version", default="", help="the kind's version [v1alpha1]")
    parser.add_argument("--kind", default="", help="the kind, such as Memcached")
    parser.add_argument("--plural", default="", help="its plural in lower case [the usual English one]")
    parser.add_argument("--short-name", action="append", default=[], metavar="NAME", help="for kubectl; repeatable")
    _add_switch(parser, "namespaced", "its objects live in namespaces [true]")
    _add_switch(parser, "generate-role", "write a role for it; the default, unless there is one")
    _add_switch(parser, "generate-playbook", "write a playbook for it, which runs instead of the role")
    _add_switch(parser, "finalizer", "write a role that runs when an object is deleted")
    _add_switch(parser, "watch", "run something for its objects [true]; false: roles of other kinds read them")


def _add_switch(parser: argparse.ArgumentParser, flag: str, text: str) -> None:
    parser.add_argument(
        f"--{flag}", nargs="?", const="true", default=None, choices=["true", "false"], metavar="true|false", help=text
    )


def _init(arguments: argparse.Namespace) -> int:
    from runner.scaffold import api, init  # noqa: PLC0415 - help needs neither templates nor YAML
    from runner.scaffold.changeset import ChangeSet  # noqa: PLC0415 - the same

    if arguments.plugins not in _PLUGINS:
        raise ConfigError(f"--plugins {arguments.plugins}: projects here are made of Ansible; leave it out")
    changes = ChangeSet(Path.cwd())
    begun = init.begin(changes, arguments.project_name, arguments.domain)
    notes = []
    if arguments.kind:
        notes = api.add(changes, begun, _wanted(arguments))
    elif arguments.group or arguments.version:
        raise ConfigError("--kind is missing: with --group or --version, `init` adds a first kind")
    _tell(changes.apply(), notes)
    if not arguments.kind:
        _say("Next: ansible-operator create api --group GROUP --kind KIND")
    return 0


def _create_api(arguments: argparse.Namespace) -> int:
    from runner.scaffold import api, project  # noqa: PLC0415 - the same
    from runner.scaffold.changeset import ChangeSet  # noqa: PLC0415 - the same

    changes = ChangeSet(Path.cwd())
    if not (changes.root / project.FILE).exists():
        raise ConfigError(f"{project.FILE}: there is none in {changes.root}; `ansible-operator init` begins a project")
    if not arguments.kind:
        raise ConfigError("--kind is missing: the kind to add, such as Memcached")
    notes = api.add(changes, project.parse(changes.text(project.FILE)), _wanted(arguments))
    _tell(changes.apply(), notes)
    return 0


def _wanted(arguments: argparse.Namespace) -> api.Wanted:
    from runner.scaffold.api import Wanted  # noqa: PLC0415 - the same

    return Wanted(
        group=arguments.group,
        version=arguments.version or "v1alpha1",
        kind=arguments.kind,
        plural=arguments.plural,
        short_names=tuple(arguments.short_name),
        namespaced=None if arguments.namespaced is None else arguments.namespaced == "true",
        role=arguments.generate_role == "true",
        playbook=arguments.generate_playbook == "true",
        finalizer=arguments.finalizer == "true",
        watched=arguments.watch != "false",
    )


def _tell(written: tuple[list[str], list[str]], notes: list[str]) -> None:
    created, changed = written
    lines = [*(f"created  {path}" for path in created), *(f"changed  {path}" for path in changed)]
    # A role comes before the playbook that runs it: that is where the work is done.
    empty = sorted((path for path in created if _TO_BE_WRITTEN.fullmatch(path)), reverse=True)
    following = [f"Next: write tasks into {empty[0]}; `ansible-operator dev` runs them"] if empty else []
    _say(*lines, *(f"Note: {note}" for note in notes), *following)


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
