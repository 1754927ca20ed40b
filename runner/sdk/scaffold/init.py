"""`init`: create a project without kinds."""

from __future__ import annotations

from runner import __version__
from runner.errors import ConfigError
from runner.sdk.scaffold import names, project, templates
from runner.sdk.scaffold.changeset import ChangeSet
from runner.sdk.scaffold.project import Project

BASE_IMAGE = f"ghcr.io/owner/ansible-operator-runner:{__version__}"
"""Image that a release publishes, from `--target base` of this distribution's own Dockerfile."""


def begin(changes: ChangeSet, name: str, domain: str) -> Project:
    """Add the files of every project. Return the project. An empty `name` is replaced by the folder's name.

    Raises:
        ConfigError: the folder is a project, or a name is invalid.
    """
    if (changes.root / project.FILE).exists():
        raise ConfigError(
            f"{project.FILE} exists: this folder is already a project; add a kind with `ansible-operator create api`"
        )
    named = name or changes.root.resolve().name.lower()
    problems = []
    if why := names.domain_problem(domain):
        problems.append(f"--domain {domain}: {why}")
    if why := names.project_problem(named):
        problems.append(f"--project-name {named}: {why}{'' if name else '; the default is the name of the folder'}")
    names.refuse(problems)
    values = {"project_name": named, "domain": domain, "base_image": BASE_IMAGE}
    for path, text in templates.tree("project", values):
        changes.create(path, text)
    begun = Project(named, domain)
    changes.create(project.FILE, begun.text())
    return begun
