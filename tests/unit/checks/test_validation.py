from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from runner.app.features import FEATURE_FIELDS
from runner.base.config import paths
from runner.compatibility import validation

Validate = Callable[[], list[str]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write(tmp_path, "watches.yaml", "- {group: example.com, version: v1, kind: K, role: r}\n")
    write(tmp_path, "roles/r/tasks/main.yml", "- name: say\n  ansible.builtin.debug:\n    msg: hello\n")
    return tmp_path


def write(project: Path, name: str, text: str) -> None:
    path = project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def validate(project: Path) -> Validate:
    def run() -> list[str]:
        environ = {"HOME": str(project / "home")}
        places = paths.search_path(cwd=project, roles_path="", collections_path="", environ=environ)
        report = validation.validate(
            Path("watches.yaml"), environ=environ, cwd=project, search_path=places, features=FEATURE_FIELDS
        )
        expected = [(each, "error") for each in report.problems.errors]
        expected += [(each, "warning") for each in report.problems.warnings]
        return [each.render(level) for each, level in sorted(expected)]

    return run


def test_a_project_that_is_right_has_no_problem(validate: Validate, project: Path) -> None:
    write(project, "roles/r/defaults/main.yml", "---\nsize: 1\n")
    write(project, "roles/r/vars/main.yaml", "")
    write(project, "roles/r/handlers/main.yml", "- name: h\n  operator_sdk.util.k8s_status:\n")
    write(project, "roles/r/meta/argument_specs.yml", "argument_specs:\n  main:\n    options: {size: {type: int}}\n")
    write(project, "roles/r/meta/crd_validations.yml", "- rule: has(self.size)\n  message: say how many\n")
    write(project, "roles/r/tasks/other.yml", "- block:\n    - debug: msg={{ ansible_operator_meta.name }}\n")
    write(project, "roles/r/templates/a.j2", "{{ ansible_operator_meta.namespace }} {{ item.meta.name }}\n")
    assert validate() == []


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("2026-02-31", "day is out of range for month"),
        ("2026-01-01T25:00:00Z", "hour must be in 0..23"),
        ("0b_", "invalid literal for int() with base 2: ''"),
        ("!!bool x", "'x'"),
    ],
)
def test_values_that_ansible_cannot_read_have_their_place(
    validate: Validate, project: Path, value: str, reason: str
) -> None:
    write(project, "roles/r/defaults/main.yml", f"---\nsize: 1\nsince: [{value}]\nuntil: '2026-02-31'\n{value}: 2\n")
    shown, advice = value.removeprefix("!!bool "), f", or quote it if it is text ({reason})"
    problems = [line for line in validate() if line.startswith("roles/r/defaults/main.yml:3")]
    assert problems == [
        f"roles/r/defaults/main.yml:3: error: invalid YAML in column 9: correct the value {shown!r}{advice}"
    ]
    assert sum(advice in line for line in validate()) == 2


def test_problems_of_the_watches_file_and_of_its_roles_are_reported_together(validate: Validate, project: Path) -> None:
    write(project, "watches.yaml", "- {version: v1, kind: K, role: r, manageStatus: 5}\n- {kind: L, role: nowhere}\n")
    write(project, "roles/r/tasks/main.yml", "a: b\n")
    problems = validate()
    assert [line.split(": ")[0] for line in problems] == ["roles/r/tasks/main.yml:1"] + ["watches.yaml:1"] + [
        "watches.yaml:2"
    ] * 2


def test_a_role_without_tasks_would_do_nothing(validate: Validate, project: Path) -> None:
    (project / "roles/r/tasks/main.yml").unlink()
    assert validate() == ["roles/r: error: the role has no tasks/main.yml: add one"]
    write(project, "roles/r/meta/main.yml", "dependencies: [other]\n")
    write(project, "roles/other/tasks/main.yml", "- debug:\n")
    assert validate() == []


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("tasks/main.yml", "- a: [\n", "tasks/main.yml:1: error: invalid YAML"),
        ("tasks/other.yml", "- a: b: c\n", "tasks/other.yml:1: error: invalid YAML"),
        ("tasks/main.yml", "- debug:\n- text\n", "tasks/main.yml:2: error: found text, expected a task"),
        ("tasks/main.yml", "- block:\n    - 5\n", "tasks/main.yml:2: error: found a number, expected a task"),
        ("handlers/main.yml", "text\n", "handlers/main.yml:1: error: found text, expected a list of tasks"),
        ("defaults/main.yml", "- a\n", "defaults/main.yml:1: error: found a list, expected a mapping"),
        ("vars/main.yml", "a: 1\na: 2\n", "vars/main.yml:2: warning: duplicate key 'a' (first in line 1)"),
        (
            "meta/argument_specs.yml",
            "main: {}\n",
            "meta/argument_specs.yml:1: error: found a mapping, expected argument_specs",
        ),
        (
            "meta/argument_specs.yml",
            "argument_specs: {main: 1}\n",
            "meta/argument_specs.yml:1: error: found a number, expected",
        ),
    ],
)
def test_each_file_of_a_role_is_read(validate: Validate, project: Path, name: str, text: str, said: str) -> None:
    write(project, f"roles/r/{name}", text)
    (line,) = validate()
    assert line.startswith(f"roles/r/{said}")


def test_a_binary_file_is_an_error(validate: Validate, project: Path) -> None:
    (project / "roles/r/tasks/main.yml").write_bytes(b"\xff")
    assert validate()[0].startswith("roles/r/tasks/main.yml: error: invalid UTF-8")


def test_tags_of_ansible_and_encrypted_files_are_accepted(validate: Validate, project: Path) -> None:
    write(project, "roles/r/vars/main.yml", "$ANSIBLE_VAULT;1.1;AES256\n6162: [\n")
    write(
        project, "roles/r/defaults/main.yml", "a: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6162\nb: !unsafe '{{ x }}'\n"
    )
    assert validate() == []


SERVER_SIDE = """\
- name: Apply
  kubernetes.core.k8s:
    definition: {}
    server_side_apply: {field_manager: me}
"""


@pytest.mark.parametrize(
    ("rest", "is_reported"),
    [
        ("", True),
        ("    apply: false\n", True),
        ("    apply: true\n", False),
        ('    apply: "{{ it }}"\n', False),
        ("  module_defaults: {kubernetes.core.k8s: {apply: true}}\n", False),
    ],
)
def test_an_ineffective_server_side_apply_is_a_warning(
    validate: Validate, project: Path, rest: str, *, is_reported: bool
) -> None:
    write(project, "roles/r/tasks/main.yml", SERVER_SIDE + rest)
    expected = (
        "roles/r/tasks/main.yml:4: warning: server_side_apply: kubernetes.core.k8s ignores this without `apply: true`"
    )
    assert [line.startswith(expected) for line in validate() if "server_side" in line] == [True] * is_reported


def test_a_collection_that_is_not_installed_is_a_warning_at_its_first_use(validate: Validate, project: Path) -> None:
    write(project, "roles/r/tasks/main.yml", "- name: a\n  no_such.thing.mod:\n- block:\n  - no_such.thing.other:\n")
    (line,) = validate()
    assert line.startswith("roles/r/tasks/main.yml:2: warning: no_such.thing.mod: collection no_such.thing not found; ")
    assert f"{project}/home/.ansible/collections/ansible_collections/no_such/thing" in line


@pytest.mark.parametrize("name", ["tasks/main.yml", "tasks/x.yml", "defaults/main.yml", "templates/deep/a.yaml.j2"])
def test_spellings_of_the_first_sdks_are_a_warning_with_todays(validate: Validate, project: Path, name: str) -> None:
    text = "# meta.name is old\n" if name.endswith(".yml") else "\n"
    lines = {"defaults/main.yml": "a: '{{ meta.namespace }}'\n"}
    write(project, f"roles/r/{name}", text + lines.get(name, "- debug: {msg: '{{ meta.namespace }}'}\n"))
    assert validate() == [
        f"roles/r/{name}:2: warning: meta.namespace was removed from the SDK: use ansible_operator_meta.namespace"
    ]


BROKEN = "- debug: {msg: '{{ meta.name }}'}\n"
FOUND = ":1: warning: meta.name was removed from the SDK: use ansible_operator_meta.name"


class TestIncludes:
    @pytest.mark.parametrize(
        "task",
        [
            "include_role: {name: other}",
            "import_role: {name: other}",
            "ansible.builtin.include_role: {name: other, tasks_from: more}",
            "include_role: name=other tasks_from=more",
            "block: [{include_role: {name: other}}]",
        ],
    )
    def test_a_role_with_a_static_name_is_checked(self, validate: Validate, project: Path, task: str) -> None:
        write(project, "roles/r/tasks/main.yml", f"- {task}\n")
        write(project, "roles/other/tasks/more.yml", BROKEN)
        write(project, "roles/other/tasks/main.yml", "- import_role: {name: third}\n")
        write(project, "roles/third/handlers/main.yml", BROKEN)
        write(project, "roles/third/tasks/main.yml", "- include_role: {name: r}\n")
        assert validate() == [f"roles/other/tasks/more.yml{FOUND}", f"roles/third/handlers/main.yml{FOUND}"]

    @pytest.mark.parametrize(
        ("task", "file"),
        [
            ("include_tasks: ../../../common/a.yml", "common/a.yml"),
            ("import_tasks: {file: ../../../common/a.yml}", "common/a.yml"),
            ("ansible.builtin.include_tasks: deep.d/a.yaml", "roles/r/tasks/deep.d/a.yaml"),
            ("include_tasks: handlers/a.yml", "roles/r/handlers/a.yml"),
            ("include_tasks: /opt/ansible/common/a.yml", "common/a.yml"),
            ("include_tasks: file=../../../common/a.yml", "common/a.yml"),
        ],
    )
    def test_a_task_file_with_a_static_name_is_checked(
        self, validate: Validate, project: Path, task: str, file: str
    ) -> None:
        write(project, "roles/r/tasks/main.yml", f"- {task}\n")
        write(project, file, BROKEN + "- include_tasks: main.yml\n")
        write(project, "common/main.yml", "[]\n")
        assert validate() == [f"{file}{FOUND}"]

    @pytest.mark.parametrize(
        ("task", "said"),
        [
            ("include_role: {name: nowhere}", "role 'nowhere' not found; searched {0}/roles/nowhere"),
            ("include_tasks: nowhere.yml", "file 'nowhere.yml' not found; searched {0}/roles/r/tasks/nowhere.yml, "),
            ("include_role: {name: no.such.role}", "role 'no.such.role' not found; searched {0}/home/.ansible"),
        ],
    )
    def test_one_that_is_missing_is_a_warning_with_the_places(
        self, validate: Validate, project: Path, task: str, said: str
    ) -> None:
        write(project, "roles/r/tasks/main.yml", f"- name: a\n  {task}\n")
        (line,) = validate()
        assert line.startswith(f"roles/r/tasks/main.yml:2: warning: {said.format(project)}")

    @pytest.mark.parametrize(
        "task", ["include_role: {name: '{{ a }}'}", "include_tasks: '{{ a }}.yml'", "include_role: {name: here}"]
    )
    def test_roles_with_template_names_or_of_listed_collections_are_accepted(
        self, validate: Validate, project: Path, task: str
    ) -> None:
        write(project, "roles/r/meta/main.yml", "collections: [no.such, a.b]\n")
        write(project, "home/.ansible/collections/ansible_collections/a/b/roles/here/tasks/main.yml", "- debug:\n")
        write(project, "roles/r/tasks/main.yml", f"- {task}\n")
        assert validate() == []

    def test_dependencies_of_a_role_are_checked(self, validate: Validate, project: Path) -> None:
        write(project, "roles/r/meta/main.yml", "dependencies:\n- other\n- {role: nowhere}\n- name: third\n")
        write(project, "roles/other/tasks/main.yml", BROKEN)
        write(project, "roles/third/tasks/main.yml", BROKEN)
        first, missing, last = validate()
        assert missing.startswith("roles/r/meta/main.yml:3: warning: role 'nowhere' not found; searched ")
        assert [first, last] == [f"roles/{role}/tasks/main.yml{FOUND}" for role in ("other", "third")]

    def test_a_role_of_a_collection_finds_its_neighbours(self, validate: Validate, project: Path) -> None:
        inside = "home/.ansible/collections/ansible_collections/a/b/roles"
        write(project, "roles/r/tasks/main.yml", "- include_role: {name: a.b.one}\n")
        write(project, f"{inside}/one/tasks/main.yml", "- include_role: {name: two}\n")
        write(project, f"{inside}/two/tasks/main.yml", BROKEN)
        assert validate() == [f"{inside}/two/tasks/main.yml{FOUND}"]


class TestPlaybook:
    @pytest.fixture(autouse=True)
    def watches_a_playbook(self, project: Path) -> None:
        write(project, "watches.yaml", "- {version: v1, kind: K, playbook: playbooks/site.yml}\n")

    def test_a_playbook_that_is_right_has_no_problem(self, validate: Validate, project: Path) -> None:
        write(
            project,
            "playbooks/site.yml",
            "- hosts: localhost\n  roles: [r, {role: beside}]\n  tasks:\n    - debug:\n- import_playbook: other.yml\n",
        )
        write(project, "playbooks/roles/beside/tasks/main.yml", "- debug:\n")
        write(project, "playbooks/other.yml", "- hosts: localhost\n")
        assert validate() == []

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("hosts: all\n", ":1: error: found a mapping, expected a list of plays"),
            ("- text\n", ":1: error: found text, expected a play"),
            ("- hosts: all\n  tasks: [5]\n", ":2: error: found a number, expected a task"),
            ("- hosts: all\n  roles: [nowhere]\n", ":2: warning: role 'nowhere' not found; searched "),
            ("- hosts: all\n  tasks:\n    - no_such.thing.mod:\n", ":3: warning: no_such.thing.mod: collection"),
            ("- hosts: all\n  vars: {n: '{{ meta.name }}'}\n", ":2: warning: meta.name was removed from the SDK"),
            ("- [\n", ":1: error: invalid YAML"),
        ],
    )
    def test_a_playbook_is_read_too(self, validate: Validate, project: Path, text: str, said: str) -> None:
        write(project, "playbooks/site.yml", text)
        (line,) = validate()
        assert line.startswith(f"playbooks/site.yml{said}")

    def test_roles_and_files_that_its_tasks_and_imports_name_are_checked(
        self, validate: Validate, project: Path
    ) -> None:
        tasks = "  tasks: [{include_role: {name: beside}}, {import_tasks: tasks/a.yml}]\n"
        write(project, "playbooks/site.yml", f"- import_playbook: other.yml\n- hosts: all\n{tasks}")
        files = ("playbooks/roles/beside/tasks/main.yml", "playbooks/tasks/a.yml")
        for file in files:
            write(project, file, BROKEN)
        write(project, "playbooks/other.yml", "- hosts: all\n  roles: [nowhere]\n- import_playbook: a.b.site\n")
        found = validate()
        assert found[0].startswith("playbooks/other.yml:2: warning: role 'nowhere' not found; searched ")
        assert found[1:] == [f"{file}{FOUND}" for file in files]

    def test_the_roles_of_its_plays_are_checked(self, validate: Validate, project: Path) -> None:
        write(project, "playbooks/site.yml", "- hosts: all\n  roles: [r, '{{ chosen }}', {vars: {a: b}}]\n")
        write(project, "roles/r/tasks/main.yml", "text\n")
        (line,) = validate()
        assert line.startswith("roles/r/tasks/main.yml:1: error: found text")


def test_a_role_of_which_only_another_entry_point_is_included_needs_no_main(validate: Validate, project: Path) -> None:
    task = "- name: a\n  ansible.builtin.include_role:\n    name: parts\n    tasks_from: one\n"
    write(project, "roles/r/tasks/main.yml", task)
    write(project, "roles/parts/tasks/one.yml", "- ansible.builtin.debug:\n")
    assert validate() == []
    write(project, "roles/r/tasks/main.yml", task.replace("    tasks_from: one\n", ""))
    assert validate() == ["roles/parts: error: the role has no tasks/main.yml: add one"]
