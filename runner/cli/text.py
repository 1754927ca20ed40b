"""Texts of the command line: descriptions, examples, and replacements of commands of older SDKs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runner.base.config.options import PREFIX, Option

DESCRIPTION = """\
Run Ansible roles and playbooks as a Kubernetes operator.

watches.yaml maps each watched kind to a role or playbook. When an object of the kind is created, changed or deleted,
the operator runs the role or playbook with the object's spec as variables."""

_SECTIONS = {
    "start": ("init", "create", "migrate"),
    "develop": ("dev", "validate", "generate", "cluster"),
    "look": ("plan", "logs", "rollout"),
    "ship": ("run", "version"),
}
"""Commands in the order of their use."""
_FIRST_STEPS = """\
examples:
  ansible-operator init --domain example.com --group cache --kind Memcached
  ansible-operator dev

For details: `ansible-operator COMMAND --help`. Exit codes: 0 success, 1 failure at run time, 2 invalid input.
`plan` has other exit codes: see its help."""

RUN = f"""\
Watch the kinds in watches.yaml and run their role or playbook for each object.

Write a flag as --flag=value or --flag value; a boolean flag needs no value. Each flag has an environment variable,
{PREFIX}<FLAG> in upper case with underscores: {PREFIX}RECONCILE_PERIOD=1h.
Precedence: flag, environment variable, default in [brackets]. Durations look like 90s, 10m or 1h30m.

Other environment variables:

  ANSIBLE_GATHERING=explicit    gather no facts when a watch names a role
  ANSIBLE_INVENTORY=FILE        inventory file or folder; default: localhost
  ANSIBLE_DEBUG_LOGS=true       print the whole output of each run when it ends
  POD_NAME                      name of this pod"""

RUN_EXAMPLES = (
    "--watches-file=./watches.yaml",
    "--namespace=team-a --namespace=team-b",
    "--kubeconfig=./kubeconfig --log-level=debug",
    "--ansible-args='--diff' --ansible-log-events=everything",
)

VERSION = """\
Show the versions of this program, of the packages that it depends on most, and of Python. A warning names the cause
of slow runs."""

VALIDATE = """\
Check a watches file and the files it refers to, without a cluster and without running anything. The checks include
fields and values, roles and playbooks, YAML, templates, names of modules and plugins, collections, and names that only
older SDKs supported. The project's CRDs are compared with its watches, argument specs and samples. Each problem is one
line with file and line number; invalid YAML is shown below it."""

VALIDATE_EXAMPLES = ("", "--watches-file=deploy/watches.yaml --strict")

_OLD_COMMANDS: dict[tuple[str, ...], str] = {
    ("new",): "`new` was removed: use `ansible-operator init` in a folder with the project's name",
    ("add", "api"): "`add api` was removed: use `ansible-operator create api`",
    ("add", "crd"): "`add crd` was removed: use `ansible-operator create api`",
    ("up", "local"): "`up local` was removed: use `ansible-operator run`, with --kubeconfig and --namespace if needed",
    ("up",): "`up` was removed: use `ansible-operator run`; for a local control plane: `ansible-operator cluster up`",
    ("run", "local"): "`run local` was removed: use `ansible-operator run`",
    ("run", "--local"): "`run --local` was removed: use `ansible-operator run`",
    ("run", "ansible"): "`run ansible` was removed: use `ansible-operator run`",
    ("exec-entrypoint",): "`exec-entrypoint ansible` was removed: use `ansible-operator run`",
    ("build",): "`build` was removed: use `docker build`, or `make docker-build` in a project",
    ("generate", "crd"): "unknown command `generate crd`: use `ansible-operator generate crds`",
}


def replacement_of_old_command(arguments: Sequence[str]) -> str:
    """Return an error with the replacement of a command of an older SDK; empty for other commands."""
    return next((_OLD_COMMANDS[key] for n in (2, 1) if (key := tuple(arguments[:n])) in _OLD_COMMANDS), "")


def overview(helps: Mapping[str, str]) -> str:
    """Return the list of the commands under headings. `helps` contains the summary of each."""
    sections = (
        "\n".join((f"{heading}:", *(f"  {name:<10}{helps[name]}" for name in names if name in helps)))
        for heading, names in _SECTIONS.items()
        if not helps.keys().isdisjoint(names)
    )
    return "\n\n".join((*sections, _FIRST_STEPS))


def help_of(option: Option) -> str:
    """Return an option's help with its default and its other environment variable."""
    default = f" [{option.default}]" if option.default and not option.deprecated else ""
    deprecated = ", deprecated" if option.other_is_deprecated else ""
    also = f" (also: ${option.other_variable}{deprecated})" if option.other_variable else ""
    return f"{option.help}{default}{also}"
