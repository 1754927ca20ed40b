"""Projects whose files are not where the scaffold puts them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.sdk.migrate import image
from tests.kit.commands import Type
from tests.unit.migrate.projects import DOCKERFILE, WATCHES, Analyse, Write

Rules = Callable[..., list[tuple[str, str]]]
OLD = "- ansible.builtin.debug: {msg: '{{ meta.name }}'}\n"
GO = "FROM quay.io/operator-framework/ansible-operator:v1.42.3\n"


@pytest.fixture
def several(project: Path, write: Write) -> Path:
    """A project with two watches files, one of them in a folder, and its Dockerfile in another."""
    (project / "watches.yaml").rename(project / "watches-k8s.yaml")
    (project / "Dockerfile").unlink()
    write("build/Dockerfile", DOCKERFILE.replace("COPY watches.yaml", "COPY watches-k8s.yaml"))
    write("openshift/watches-os.yaml", WATCHES.replace("Shop", "Route").replace("role: shop", "role: route"))
    write("roles/route/tasks/main.yml", OLD)
    write("group_vars/kinds.yml", "- {kind: Shop, version: v1}\n- {kind: Other, role: x}\n")
    write("molecule/default/watches.yaml", WATCHES.replace("role: shop", "role: gone"))
    return project


@pytest.mark.usefixtures("several")
def test_watches_files_are_found_by_their_content_and_dockerfiles_in_any_folder(
    typed: Type,
) -> None:
    code, out, _ = typed("migrate --output=json")
    report = json.loads(out)
    places = [(each["rule"], f"{each['file']}:{each['line']}") for each in report["findings"]]
    assert places == [("base-image", "build/Dockerfile:1"), ("removed-variable", "roles/route/tasks/main.yml:1")]
    files = "the watches files are openshift/watches-os.yaml, watches-k8s.yaml; --watches-file selects one of them"
    assert (code, report["ansibleCore"]["reasons"][-1]) == (1, files)


@pytest.mark.usefixtures("several")
def test_an_argument_selects_one_of_several_watches_files(typed: Type) -> None:
    code, out, err = typed("migrate --watches-file=openshift/gone.yaml")
    assert (code, out) == (2, "")
    assert "openshift/gone.yaml: file not found" in err
    _, out, _ = typed("migrate --watches-file=openshift/watches-os.yaml")
    assert "are openshift" not in out
    assert "not analysed: watches-k8s.yaml; --watches-file selects one of them" in out


@pytest.mark.usefixtures("several")
def test_a_trial_of_several_operators_requires_the_choice_of_one(typed: Type) -> None:
    code, _, err = typed("migrate --try")
    assert code == 2
    assert "--try runs one operator: select openshift/watches-os.yaml, watches-k8s.yaml with --watches-file" in err


@pytest.mark.lengthy
def test_the_changes_of_several_watches_files_are_written(several: Path, typed: Type) -> None:
    sample = "apiVersion: shop.example.com/v1\nkind: Route\nspec: {ansibleUser: '{{ a }}'}\n"
    (several / "config/samples").mkdir(parents=True)
    (several / "config/samples/route.yaml").write_text(sample)
    for command in ("init -q", "add .", "-c user.name=a -c user.email=a@example.com commit -qm a"):
        subprocess.run(["git", *command.split()], check=True)
    typed("migrate --write")
    assert "ansible_operator_meta.name" in (several / "roles/route/tasks/main.yml").read_text()
    assert (several / "watches-k8s.yaml").read_text() == WATCHES
    assert "ansible-operator-runner" in (several / "build/Dockerfile").read_text()
    checklist = (several / "MIGRATION.md").read_text()
    assert "allowAnsibleVariables: [ansible_user]" in checklist, "a flow mapping is left to the user"


COPIES = (
    "COPY ansible/roles/ ${HOME}/roles/\nCOPY ansible/playbooks ${HOME}/playbooks\n",
    "WORKDIR /opt\nCOPY ansible ansible/\n",
    'COPY ["ansible/roles", "/opt/ansible/roles"]\nADD --chown=1001:0 ansible/playbooks/*.yml $HOME/playbooks/\n',
    "ENV P=/opt/x ANSIBLE_ROLES_PATH=/opt/x/r\nCOPY ansible/roles $P/r\nCOPY ansible/playbooks playbooks/\n",
)


@pytest.mark.lengthy
@pytest.mark.parametrize("copies", COPIES)
@pytest.mark.parametrize("place", [".", "build"])
def test_roles_and_playbooks_are_read_where_the_dockerfile_copies_them(
    rules: Rules, project: Path, typed: Type, copies: str, place: str
) -> None:
    (project / "Dockerfile").unlink()
    files = {
        "watches.yaml": WATCHES + WATCHES.replace("Shop", "Site").replace("role: shop", "playbook: playbooks/site.yml"),
        f"{place}/Dockerfile": GO + copies,
        "roles/shop/tasks/main.yml": "[]\n",
        "ansible/roles/inner/tasks/main.yml": OLD,
        "ansible/roles/other/tasks/main.yml": OLD,
        "ansible/playbooks/site.yml": "- hosts: localhost\n  roles: [inner]\n  tasks:\n"
        "    - include_role: {name: /opt/ansible/roles/other}\n"
        if "/opt/x" not in copies
        else "- hosts: localhost\n  roles: [inner, other]\n",
    }
    assert rules(files) == [
        ("removed-variable", f"ansible/roles/{role}/tasks/main.yml:1") for role in ("inner", "other")
    ]
    _, out, _ = typed("validate")
    assert "not found" not in out
    assert "ansible/roles/inner/tasks/main.yml:1: warning: meta.name was removed" in out


def test_an_operator_in_a_folder_has_the_files_beside_its_watches_file(
    rules: Rules, typed: Type, project: Path
) -> None:
    (project / "watches.yaml").unlink()
    files = {
        "operators/shop/watches.yaml": WATCHES.replace("role: shop", "role: till"),
        "operators/shop/Dockerfile": DOCKERFILE.replace("COPY requirements.yml ${HOME}/requirements.yml\n", ""),
        "operators/shop/roles/till/tasks/main.yml": OLD,
    }
    assert rules(files) == [("removed-variable", "operators/shop/roles/till/tasks/main.yml:1")]
    code, out, _ = typed("validate --watches-file=operators/shop/watches.yaml")
    assert (code, "not found" in out) == (0, False)


def test_the_first_folder_with_all_copied_files_is_the_context_of_a_build(project: Path, write: Write) -> None:
    write("images/one/Dockerfile", f"{GO}COPY . /opt/ansible\nCOPY roles/ /opt/ansible/roles/\n")
    found = image.files(image.dockerfiles(), Path("watches.yaml"))
    assert found.sources(Path("/opt/ansible/roles/shop"))[0] == project / "roles/shop"
    write("images/one/roles/shop/tasks/main.yml", "[]\n")
    found = image.files([each for each in image.dockerfiles() if "one" in each.file], Path("watches.yaml"))
    assert found.sources(Path("/opt/ansible/roles/shop"))[0] == project / "images/one/roles/shop"


def test_only_what_a_watch_a_finalizer_or_an_import_reaches_is_a_play(rules: Rules) -> None:
    files = {
        "watches.yaml": "- {group: shop.example.com, version: v1, kind: Shop, playbook: playbooks/shop.yml,\n"
        "   finalizer: {name: shop.example.com/end, playbook: playbooks/end.yml}}\n",
        "playbooks/shop.yml": "- hosts: localhost\n- import_playbook: more.yml\n",
        "playbooks/more.yml": f"- hosts: localhost\n  tasks:\n  {OLD}",
        "playbooks/end.yml": f"- hosts: localhost\n  tasks:\n  {OLD}",
        "playbooks/vars.yml": "size: '{{ meta.name }}'\n",
        "playbooks/tasks.yml": OLD,
    }
    assert rules(files) == [("removed-variable", "playbooks/end.yml:3"), ("removed-variable", "playbooks/more.yml:3")]


@pytest.mark.parametrize(
    "entry",
    [
        "name: https://github.com/ansible-collections/community.general.git\n    type: git",
        "name: community.general\n    source: git@example.com:mirror/general.git\n    type: git",
        "source: https://example.com/forks/community.general\n    type: git",
        "git+https://example.com/forks/many.git#/collections/community/general,main",
        "git+ssh://git@example.com/forks/community.general,1.0.0",
        "https://example.com/ansible-collection-community.general.git",
    ],
)
def test_a_collection_with_a_git_url_is_known_by_its_repository_or_folder(rules: Rules, entry: str) -> None:
    text = f"collections:\n  - {entry}\n"
    assert rules({"requirements.yml": text, "roles/shop/tasks/main.yml": "- ufw: {state: on}\n"}) == []
    text = text.replace("general", "mysql")
    rule = ("missing-collection", "roles/shop/tasks/main.yml:1")
    assert rule in rules({"requirements.yml": text})


def test_a_dockerfile_can_install_a_collection_from_git(rules: Rules) -> None:
    install = "RUN ansible-galaxy collection install git+https://example.com/forks/community.general.git,main\n"
    assert rules({"Dockerfile": DOCKERFILE + install, "roles/shop/tasks/main.yml": "- ufw: {state: on}\n"}) == []


def test_a_git_url_without_the_name_of_a_collection_can_contain_any(analyse: Analyse) -> None:
    text = "collections:\n  - name: https://example.com/tools/ansible-modules.git\n    type: git\n"
    report = analyse({"requirements.yml": text, "roles/shop/tasks/main.yml": "- ufw: {state: on}\n"})
    (found,) = [each for each in report.findings if each.rule == "missing-collection"]
    assert (found.need, found.is_automatic) == ("check", False)
    assert found.message.endswith("unless https://example.com/tools/ansible-modules.git contains it")


def test_roles_without_a_static_reference_are_read_and_a_templated_name_is_reported(analyse: Analyse) -> None:
    report = analyse(
        {
            "roles/shop/tasks/main.yml": "- ansible.builtin.include_role: {name: 'part_{{ kind }}'}\n",
            "roles/part_a/tasks/main.yml": OLD,
        }
    )
    assert [(each.rule, each.place, each.need) for each in report.findings if each.rule != "base-image"] == [
        ("removed-variable", "roles/part_a/tasks/main.yml:1", "now"),
        ("not-read", "roles/shop/tasks/main.yml:1", "check"),
    ]
    assert report.reasons[-1] == "2.21 is not proven: this analysis found 1 role that is not read"
