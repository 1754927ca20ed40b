"""`ansible-operator init`, `ansible-operator create api` and `ansible-operator generate pods`.

Owns arguments and output of these commands. Errors pass through as ConfigError and OperatorError; the caller prints
them.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from runner.base.config import commands
from runner.base.config.commands import Subparsers
from runner.sdk.schema import cli as schema_cli
from runner.values.errors import ConfigError

if TYPE_CHECKING:
    from runner.sdk.scaffold import api

_PLUGINS = ("ansible", "ansible.sdk.operatorframework.io/v1", "ansible.sdk.operatorframework.io")

_TO_BE_WRITTEN = re.compile(r"roles/\w+(?<!_finalizer)/tasks/main\.yml|playbooks/\w+\.yml")
"""Files that the developer has to edit after `create api`."""

_INIT = """\
Create an operator project in this folder: watches.yaml, roles/, playbooks/, molecule/, config/ with the manifests,
Makefile and Dockerfile. Existing files are never overwritten. With --kind, `init` also adds the first kind."""

_INIT_EXAMPLES = ("--domain example.com", "--domain example.com --group cache --kind Memcached")

_API = """\
Add a kind to the project in this folder: its CRD, the operator's RBAC rules, user roles, a sample, an entry in
watches.yaml, a molecule test, and a role unless one of that name exists. If the project already has the kind, a version
is added to its CRD. Existing files are only extended."""

_API_EXAMPLES = (
    "--group cache --kind Memcached --finalizer",
    "--group cache --version v1beta1 --kind Memcached",
    "--group infra --kind Tenant --namespaced=false",
)

_PODS = """\
Write the manifests of an operator with a watch that sets `isolation: pod` to config/pods, and include them in
config/default: permissions, the Service to which pods of runs connect, and the operator's port and address. Charts,
bundles and manifests of the project then contain them too. Existing files are only extended."""

_CREATE = "Add parts to the project in this folder. Existing files are only extended."


def add_commands(subparsers: Subparsers) -> None:
    """Add `init` and `create`."""
    init = commands.add(subparsers, "init", _init, "create a project in this folder", _INIT, _INIT_EXAMPLES)
    init.add_argument("--plugins", default="ansible", help="must be `ansible`; for compatibility")
    init.add_argument("--domain", default="my.domain", help="domain of the project's API groups [my.domain]")
    init.add_argument("--project-name", default="", metavar="NAME", help="name of the project [the folder's name]")
    init.add_argument(
        "--project-version", default="3", choices=["3"], metavar="3", help="format of PROJECT; for compatibility"
    )
    _add_kind(init)
    text = "`create api`: add a kind to the project in this folder"
    create = commands.group(subparsers, "create", text, _CREATE, _API_EXAMPLES)
    _add_kind(commands.add(create, "api", _create_api, "add a kind", _API, _API_EXAMPLES))


def add_generate_commands(subparsers: Subparsers) -> None:
    """Add `pods` to the commands of `generate`."""
    text = "write the manifests for runs in pods"
    schema_cli.add_watches_file(commands.add(subparsers, "pods", _pods, text, _PODS, ("",)))


def _add_kind(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--group", default="", help="API group without the domain")
    parser.add_argument("--version", default="", help="API version [v1alpha1]")
    parser.add_argument("--kind", default="", help="kind, such as Memcached")
    parser.add_argument("--plural", default="", help="plural in lower case [the English plural of the kind]")
    parser.add_argument(
        "--short-name", action="append", default=[], metavar="NAME", help="short name for kubectl; repeatable"
    )
    _add_switch(parser, "namespaced", "the kind is namespaced [true]")
    _add_switch(parser, "generate-role", "create a role; the default, unless one exists")
    _add_switch(parser, "generate-playbook", "create a playbook, which runs instead of the role")
    _add_switch(parser, "finalizer", "create a role that runs when an object is deleted")
    _add_switch(parser, "inventory", "run on the hosts of the spec, with the credentials of a Secret")
    _add_switch(parser, "watch", "reconcile objects of the kind [true]; false: other kinds' roles only read them")


def _add_switch(parser: argparse.ArgumentParser, flag: str, text: str) -> None:
    parser.add_argument(
        f"--{flag}", nargs="?", const="true", default=None, choices=["true", "false"], metavar="true|false", help=text
    )


def _init(arguments: argparse.Namespace) -> int:
    from runner.sdk.scaffold import api, project  # noqa: PLC0415 - help needs neither templates nor YAML
    from runner.sdk.scaffold.changeset import ChangeSet  # noqa: PLC0415 - the same

    if arguments.plugins not in _PLUGINS:
        raise ConfigError(f"--plugins {arguments.plugins}: only Ansible is supported; remove the flag")
    changes = ChangeSet(Path.cwd())
    begun = project.begin(changes, arguments.project_name, arguments.domain)
    notes = []
    if arguments.kind:
        notes = api.add(changes, begun, _wanted(arguments))
    elif arguments.group or arguments.version:
        raise ConfigError("--kind is required with --group or --version")
    _report(changes.apply(), notes)
    if not arguments.kind:
        _print("Next: ansible-operator create api --group GROUP --kind KIND")
    return 0


def _create_api(arguments: argparse.Namespace) -> int:
    from runner.sdk.scaffold import api, project  # noqa: PLC0415 - the same
    from runner.sdk.scaffold.changeset import ChangeSet  # noqa: PLC0415 - the same

    changes = ChangeSet(Path.cwd())
    known = project.read(changes)
    if not arguments.kind:
        raise ConfigError("--kind is required, such as Memcached")
    notes = api.add(changes, known, _wanted(arguments))
    _report(changes.apply(), notes)
    return 0


def _pods(arguments: argparse.Namespace) -> int:
    from runner.sdk.scaffold import pods, project  # noqa: PLC0415 - the same
    from runner.sdk.scaffold.changeset import ChangeSet  # noqa: PLC0415 - the same

    changes = ChangeSet(Path.cwd())
    known = project.read(changes)
    pods.add(changes, known, schema_cli.load_watches(arguments.watches_file), arguments.watches_file)
    written = changes.apply()
    _report(written, [] if any(written) else ["config/pods and config/default are up to date"])
    return 0


def _wanted(arguments: argparse.Namespace) -> api.ApiRequest:
    from runner.sdk.scaffold.api import ApiRequest  # noqa: PLC0415 - the same

    return ApiRequest(
        group=arguments.group,
        version=arguments.version or "v1alpha1",
        kind=arguments.kind,
        plural=arguments.plural,
        short_names=tuple(arguments.short_name),
        namespaced=None if arguments.namespaced is None else arguments.namespaced == "true",
        role=arguments.generate_role == "true",
        playbook=arguments.generate_playbook == "true",
        finalizer=arguments.finalizer == "true",
        inventory=arguments.inventory == "true",
        watched=arguments.watch != "false",
    )


def _report(written: tuple[list[str], list[str]], notes: list[str]) -> None:
    created, changed = written
    lines = [*(f"created  {path}" for path in created), *(f"changed  {path}" for path in changed)]
    # A role is listed before the playbook that runs it, because the tasks are in the role.
    empty = sorted((path for path in created if _TO_BE_WRITTEN.fullmatch(path)), reverse=True)
    following = [f"Next: add tasks to {empty[0]}; run them with `ansible-operator dev`"] if empty else []
    _print(*lines, *(f"Note: {note}" for note in notes), *following)


def _print(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
