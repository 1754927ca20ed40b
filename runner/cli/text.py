"""What the command line says: descriptions, examples, and answers to the spellings of older SDKs.

Owns: words only. Imports nothing of this package but the table of `options`.
"""

from __future__ import annotations

from collections.abc import Sequence

from runner.config.options import PREFIX, Option

DESCRIPTION = """\
Turn Ansible roles and playbooks into a Kubernetes operator.

watches.yaml says which kinds of objects are watched and which role or playbook runs for them. Whenever such an
object is created, changed or deleted, it runs, with the object's spec as variables."""

EXAMPLES = """\
first steps:
  ansible-operator init                begin a project in this folder
  ansible-operator create api          add a kind to it
  ansible-operator generate crds       write the schema of its spec from the role's argument specs
  ansible-operator validate            check ./watches.yaml and the roles it names
  ansible-operator dev                 control plane, CRDs and operator at once, with a live view
  ansible-operator cluster up          start a control plane on this machine, for trying
  ansible-operator run                 run the operator on the cluster of your kubeconfig
  ansible-operator logs KIND/NAME      show what the last run of an object said

`ansible-operator COMMAND --help` tells more about each. Exit codes: 0 all is well, 1 it failed while running,
2 what was given cannot be used."""

RUN = f"""\
Watch the kinds in watches.yaml, and run their role or playbook when an object needs it.

A flag is written --flag=value or --flag value; a boolean may stand alone. Each can also be set in the environment,
as {PREFIX}<FLAG> in upper case with underscores: {PREFIX}RECONCILE_PERIOD=1h.
The flag wins over the environment, and that over the default in [brackets]. Durations are written like 90s, 10m
or 1h30m."""

RUN_EXAMPLES = """\
also read from the environment:
  ANSIBLE_GATHERING=explicit           gather no facts when a role is run
  ANSIBLE_INVENTORY=FILE               an inventory instead of plain localhost
  ANSIBLE_DEBUG_LOGS=true              print the whole output of each run when it ends
  POD_NAME                             this pod's name

examples:
  ansible-operator run --watches-file=./watches.yaml
  ansible-operator run --namespace=team-a --namespace=team-b --reconcile-period=1h
  ansible-operator run --kubeconfig=./kubeconfig --context=staging --log-level=debug
  ansible-operator run --ansible-args='--diff' --ansible-log-events=everything"""

VALIDATE = """\
Check a watches file and everything it names, without a cluster and without running anything: fields and their
values, roles and playbooks and where they are looked for, the YAML of their files, the collections they use, and
spellings that only older SDKs knew. Each problem is a line with its file and line number."""

VALIDATE_EXAMPLES = """\
examples:
  ansible-operator validate
  ansible-operator validate --watches-file=deploy/watches.yaml --strict"""

_OLD_SPELLINGS: dict[tuple[str, ...], str] = {
    ("new",): "`new` is today's `ansible-operator init`, in a folder of the project's name",
    ("add", "api"): "`add api` is today's `ansible-operator create api`",
    ("add", "crd"): "`add crd` is today's `ansible-operator create api`",
    ("up", "local"): "`up local` is today's `ansible-operator run`, with --kubeconfig and --namespace where needed",
    ("up",): "`up` is today's `ansible-operator run`; a control plane on this machine: `ansible-operator cluster up`",
    ("run", "local"): "`run local` is today's `ansible-operator run`",
    ("run", "--local"): "`run --local` is today's `ansible-operator run`",
    ("run", "ansible"): "`run ansible` is today's `ansible-operator run`",
    ("exec-entrypoint",): "`exec-entrypoint ansible` is today's `ansible-operator run`",
    ("build",): "`build` is today's `docker build`, or `make docker-build` in a project",
    ("generate", "crd"): "`generate crd` is `ansible-operator generate crds`",
}


def answer_to_old_spelling(arguments: Sequence[str]) -> str:
    """Say what a command of an older SDK is called today; empty when it is none."""
    for length in (2, 1):
        answer = _OLD_SPELLINGS.get(tuple(arguments[:length]))
        if answer:
            return answer
    return ""


def help_of(option: Option) -> str:
    """Return an option's help: what it is, its default, and where else it is read from."""
    default = f" [{option.default}]" if option.default and not option.deprecated else ""
    also = f" (also: ${option.also}{', deprecated' if option.also_deprecated else ''})" if option.also else ""
    return f"{option.help}{default}{also}"
