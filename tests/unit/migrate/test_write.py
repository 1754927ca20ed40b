from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from runner.cli import main
from runner.sdk.migrate import writing
from runner.values.errors import ConfigError
from tests.unit.migrate.projects import DOCKERFILE, Write

WATCHES = """\
# our kinds
- group: shop.example.com
  version: v1
  kind: Shop
  role: shop
  finalizer:
    name: shop.example.com/finalizer
    vars: {state: absent}
  # the second kind
- {group: shop.example.com, version: v1, kind: Cart, role: shop}
"""
TASKS = """\
- name: k8s_facts are read
  k8s_facts:
    kind: Pod
    namespace: "{{ meta.namespace }}"  # of the shop
- community.kubernetes.k8s:
    name: "{{ item.meta.name }}-{{ meta.name }}"
"""


@pytest.fixture
def git(project: Path) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        done = subprocess.run(["git", *identity, *arguments], cwd=project, check=True, capture_output=True, text=True)
        return done.stdout

    return run


@pytest.fixture
def migrate(
    project: Path, write: Write, git: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Commit files, and make the mechanical changes; return exit code and output."""

    def run(files: Mapping[str, str], *arguments: str) -> tuple[int, str]:
        for name, text in files.items():
            write(name, text)
        git("init", "-q")
        git("add", ".")
        git("commit", "-qm", "a project")
        code = main.main(["migrate", str(project), "--write", *arguments])
        return code, capsys.readouterr().out

    return run


def test_the_mechanical_part_is_written_and_the_rest_is_a_checklist(
    migrate: Callable[..., tuple[int, str]], project: Path, git: Callable[..., str]
) -> None:
    code, out = migrate(
        {
            "Dockerfile": DOCKERFILE.replace("COPY watches", "RUN dnf install -y git\nRUN rpm -i a.rpm\nCOPY watches"),
            "requirements.yml": "collections:\n  # ours\n  - name: community.kubernetes\n    version: <1.0.0\n",
            "watches.yaml": WATCHES,
            "config/samples/shop.yaml": "apiVersion: shop.example.com/v1\nkind: Shop\n"
            "spec: {title: '{{ x }}', ansibleUser: a}\n",
            "roles/shop/tasks/main.yml": TASKS,
            "roles/shop/templates/a.j2": "{{ meta.name }}\n",
        },
    )
    assert code == 1
    files = ["Dockerfile", "requirements.yml", "roles/shop/tasks/main.yml", "roles/shop/templates/a.j2", "watches.yaml"]
    assert out.splitlines()[-6:] == [f"changed  {each}" for each in [*files, "MIGRATION.md"]]
    assert git("status", "--porcelain").split() == [word for each in files for word in ("M", each)] + [
        "??",
        "MIGRATION.md",
    ]
    dockerfile = (project / "Dockerfile").read_text()
    assert dockerfile.startswith("FROM ansible-operator-runner:0.1.0-core2.18\n")
    assert "apt-get install --yes --no-install-recommends git \\\n" in dockerfile
    assert (project / "requirements.yml").read_text() == (
        'collections:\n  # ours\n  - name: kubernetes.core\n    version: ">=5.3.0,<7.0.0"\n'
    )
    assert (project / "watches.yaml").read_text() == WATCHES.replace(
        "absent}\n", "absent}\n  markUnsafe: false\n  allowAnsibleVariables: [ansible_user]\n"
    )
    assert (project / "roles/shop/tasks/main.yml").read_text() == (
        TASKS.replace("  k8s_facts:", "  kubernetes.core.k8s_info:")
        .replace("{{ meta.", "{{ ansible_operator_meta.")
        .replace("community.kubernetes", "kubernetes.core")
    )
    checklist = (project / "MIGRATION.md").read_text().splitlines()
    assert checklist[0] == f"# Migration of {project.name}"
    assert "- [ ] review watches.yaml" in checklist
    (left,) = [each for each in checklist if "RPM" in each]
    assert left.startswith("- [ ] Dockerfile:8: commands for RPM packages, which the Debian image does not have. Fix: ")


def test_changed_files_keep_their_line_ends(migrate: Callable[..., tuple[int, str]], project: Path) -> None:
    migrate({"requirements.yml": "collections:\r\n  # ours\r\n  - name: community.kubernetes\r\n"})
    assert (project / "requirements.yml").read_bytes() == (
        b'collections:\r\n  # ours\r\n  - name: kubernetes.core\r\n    version: ">=5.3.0,<7.0.0"\r\n'
    )


def test_a_project_without_requirements_gets_the_collections_that_it_uses(
    migrate: Callable[..., tuple[int, str]], project: Path
) -> None:
    (project / "requirements.yml").unlink()
    code, _ = migrate(
        {
            "Dockerfile": "FROM quay.io/operator-framework/ansible-operator:v1.30\nCOPY roles/ ${HOME}/roles/\n",
            "roles/shop/tasks/main.yml": "- k8s: {state: absent}\n- debug: {msg: '{{ a | json_query(b) }}'}\n",
        },
        "--base-image=example.com/ansible-operator-runner:1.0.0-core2.18",
    )
    assert code == 1
    assert "jmespath" in (project / "MIGRATION.md").read_text()
    assert (project / "Dockerfile").read_text() == (
        "FROM example.com/ansible-operator-runner:1.0.0-core2.18\n"
        "COPY requirements.yml ${HOME}/requirements.yml\n"
        "RUN ansible-galaxy collection install -r ${HOME}/requirements.yml \\\n"
        " && chmod -R ug+rwx ${HOME}/.ansible\n"
        "COPY roles/ ${HOME}/roles/\n"
    )
    assert (project / "requirements.yml").read_text() == (
        '---\ncollections:\n  - name: kubernetes.core\n    version: ">=5.3.0,<7.0.0"\n  - name: community.general\n'
    )


def test_collections_are_installed_in_the_stage_of_the_operator_and_comments_of_translated_commands_remain(
    migrate: Callable[..., tuple[int, str]], project: Path
) -> None:
    before = (
        "FROM golang AS tool\nCOPY . /src\nFROM quay.io/operator-framework/ansible-operator:v1.30\n"
        "RUN dnf install -y git && \\\n    # for s3\n    dnf clean all\nRUN cat <<END\nCOPY a b\nEND\n"
    )
    (project / "requirements.yml").unlink()
    migrate(
        {"Dockerfile": before + "COPY --from=tool /x /x\n", "roles/shop/tasks/main.yml": "- k8s: {state: absent}\n"}
    )
    assert (project / "Dockerfile").read_text() == (
        "FROM golang AS tool\nCOPY . /src\nFROM ansible-operator-runner:0.1.0-core2.18\n    # for s3\n"
        "RUN apt-get update \\\n && apt-get install --yes --no-install-recommends git \\\n"
        " && rm -rf /var/lib/apt/lists/*\nRUN cat <<END\nCOPY a b\nEND\n"
        "COPY requirements.yml ${HOME}/requirements.yml\n"
        "RUN ansible-galaxy collection install -r ${HOME}/requirements.yml \\\n"
        " && chmod -R ug+rwx ${HOME}/.ansible\nCOPY --from=tool /x /x\n"
    )


def test_fields_that_a_watch_already_has_are_changed_in_their_place(
    migrate: Callable[..., tuple[int, str]], project: Path
) -> None:
    watches = """\
- allowAnsibleVariables:
    - ansible_user
  group: shop.example.com  # ours
  version: v1
  kind: Shop
  role: shop
  markUnsafe: true
"""
    sample = "apiVersion: shop.example.com/v1\nkind: Shop\nspec: {title: '{{ x }}', ansibleUser: a, ansibleHost: b}\n"
    code, _ = migrate({"watches.yaml": watches, "config/samples/shop.yaml": sample})
    after = watches.replace("    - ansible_user\n", "    - ansible_user\n    - ansible_host\n")
    assert (code, (project / "watches.yaml").read_text()) == (0, after), "the template was a text before too"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  markUnsafe:  # why\n", "  markUnsafe:  # why\n  allowAnsibleVariables: [ansible_user]\n"),
        ("  allowansiblevariables: # why\n", "  allowansiblevariables: [ansible_user] # why\n  markUnsafe: false\n"),
        (
            "  allowAnsibleVariables: [ansible_host]  # why\n",
            "  allowAnsibleVariables: [ansible_host, ansible_user]  # why\n  markUnsafe: false\n",
        ),
        (
            "  allowAnsibleVariables: # it\n  - ansible_host # as\n---\nx: 1\n",
            "  allowAnsibleVariables: # it\n  - ansible_host # as\n  - ansible_user\n  markUnsafe: false\n---\nx: 1\n",
        ),
        ("  vars: {a: ${A}}\n", "  vars: {a: ${A}}\n"),
    ],
)
def test_other_text_of_watches_remains_unchanged(
    migrate: Callable[..., tuple[int, str]], project: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    """YAML without the value of a variable is invalid: such a file remains unchanged."""
    monkeypatch.setenv("A", "1")
    head = "- version: v1\n  group: shop.example.com\n  kind: Shop\n  role: shop\n"
    sample = "apiVersion: shop.example.com/v1\nkind: Shop\nspec: {title: '{{ x }}', ansibleUser: a}\n"
    migrate({"watches.yaml": head + before, "config/samples/shop.yaml": sample})
    assert (project / "watches.yaml").read_text() == head + after


@pytest.mark.parametrize("is_repository", [True, False])
def test_a_tree_with_changes_or_without_git_is_refused(
    project: Path, git: Callable[..., str], capsys: pytest.CaptureFixture[str], *, is_repository: bool
) -> None:
    before = (project / "Dockerfile").read_text()
    if is_repository:
        git("init", "-q")
    assert main.main(["migrate", str(project), "--write"]) == 2
    assert "requires" in capsys.readouterr().err
    assert (project / "Dockerfile").read_text() == before
    assert not (project / "MIGRATION.md").exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "collections:\n- community.kubernetes\n- a.b\n",
            'collections:\n- name: kubernetes.core\n  version: "{pin}"\n- a.b\n',
        ),
        (
            "collections:\n  - name: community.kubernetes\n    version: 2.0.1\n  # pinned\n  - name: kubernetes.core\n",
            "collections:\n  # pinned\n  - name: kubernetes.core\n",
        ),
        (
            "collections: [community.kubernetes, a.b] # ours\n",
            'collections: [{name: kubernetes.core, version: "{pin}"}, a.b] # ours\n',
        ),
        (
            "collections:\n- {name: community.kubernetes} # ours\n- a.b\n",
            'collections:\n- {name: kubernetes.core, version: "{pin}"} # ours\n- a.b\n',
        ),
        (
            "collections:\n-   name: community.kubernetes # ours\n    version: # any\n    source: hub\n---\nx: 1\n",
            'collections:\n-   name: kubernetes.core # ours\n    version: "{pin}" # any\n    source: hub\n---\nx: 1\n',
        ),
    ],
)
def test_the_old_collection_is_replaced_and_comments_remain(before: str, after: str) -> None:
    assert writing.migrated(before, [], "f") == after.replace("{pin}", writing.PIN)


def test_a_file_of_collections_that_is_no_yaml_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"^f: invalid YAML \(.*\); fix the file first$"):
        writing.migrated("collections: [", ["a.b"], "f")
