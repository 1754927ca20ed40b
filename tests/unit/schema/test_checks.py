"""What `validate` reports of argument specs, and of CRDs that differ from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kit.commands import Type

CRD = Path("config/crd/bases/cache.example.com_memcacheds.yaml")
ROLE = Path("roles/memcached")
SPECS = ROLE / "meta/argument_specs.yml"
SAMPLE = Path("config/samples/cache_v1alpha1_memcached.yaml")
WATCHES = Path("watches.yaml")


@pytest.fixture
def problems(typed: Type) -> Any:
    """Validate the project, and return the problems without their files."""

    def validate() -> list[str]:
        _, out, _ = typed("validate")
        return [line.partition(":")[2] for line in out.splitlines()[:-1]]

    return validate


def specs(options: dict[str, Any], **entry: Any) -> None:
    SPECS.write_text(yaml.safe_dump({"argument_specs": {"main": {"options": options, **entry}}}, sort_keys=False))


def tasks(text: str) -> None:
    (ROLE / "tasks/main.yml").write_text(f'- name: Show\n  ansible.builtin.debug:\n    msg: "{text}"\n')


def test_keys_and_types_that_ansible_does_not_know_have_their_line(problems: Any) -> None:
    inner = {"type": "list", "elements": "dicts", "optoins": {}}
    specs({"size": {"type": "integr", "requird": True}, "users": {"type": "dict", "options": {"a": inner}}}, autor="me")
    assert problems()[:5] == [
        "5: error: size: unknown type 'integr'; did you mean int?",
        "12: error: a: unknown elements 'dicts'; did you mean dict?",
        " warning: spec.size differs from the argument specs of roles/memcached; run `ansible-operator generate crds`",
        "6: warning: Ansible ignores the key 'requird'; did you mean required?",
        "13: warning: Ansible ignores the key 'optoins'; did you mean options?",
    ]


def test_options_with_which_ansible_fails_are_errors_with_their_line(problems: Any) -> None:
    for line in ("a: int", "a:", "a: {type: dict, options: {b: [int]}}"):
        SPECS.write_text(f"argument_specs:\n  main:\n    options:\n      {line}\n")
        option = "b" if "b" in line else "a"
        assert [each[:12] for each in problems() if "expected a mapping" in each] == [f"4: error: {option}:"]
    SPECS.write_text("argument_specs:\n  main:\n    options: [a]\n")
    assert problems()[0] == "3: error: options: found a list, expected a mapping of options"


@pytest.mark.lengthy
def test_a_crd_is_outdated_until_it_is_generated_and_may_contain_more(typed: Type, problems: Any) -> None:
    options: dict[str, Any] = {"size": {"type": "int", "choices": [1, 3], "required": True}}
    specs(options)
    tasks("{{ size }} {{ port }}")
    assert [line for line in problems() if "generate crds" in line] == [
        " warning: spec.size differs from the argument specs of roles/memcached; run `ansible-operator generate crds`"
    ]
    assert typed("generate crds")[0] == 0
    assert problems() == []
    crd = yaml.safe_load(CRD.read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["size"] |= {"format": "int32", "maximum": 3}
    spec["properties"]["port"] = {"type": "integer"}
    CRD.write_text(yaml.safe_dump(crd))
    assert problems() == []
    for change, path in (
        ({"choices": [1, 5]}, "spec.size"),
        ({"type": "str"}, "spec.size"),
        ({"required": False}, ""),
        ({"default": 3}, ""),
    ):
        specs({"size": {**options["size"], **change}})
        expected = f"{path} differs" if path else ""
        assert [expected in line for line in problems() if "generate crds" in line] == [True] * bool(path), change


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("option", "watch", "line", "path"),
    [
        ({"type": "dict"}, "", 4, "spec.extraConfig"),
        ({"type": "dict", "options": {"labels": {"type": "dict"}}}, "", 7, "spec.extraConfig.labels"),
        ({"type": "list", "elements": "dict"}, "", 4, "spec.extraConfig[*]"),
        ({"type": "dict"}, "  snakeCaseExcept: [spec.extraConfig]\n", 0, ""),
        ({"type": "dict", "options": {"labels": {"type": "dict"}}}, "  snakeCaseExcept: [spec.*.labels]\n", 0, ""),
        ({"type": "list", "elements": "dict"}, "  snakeCaseExcept: ['spec.extraConfig[*]']\n", 0, ""),
        ({"type": "dict"}, "  snakeCaseParameters: false\n", 0, ""),
        ({"type": "dict"}, "  vars: {extra_config: {}}\n", 0, ""),
        ({"type": "dict", "options": {"size": {"type": "int"}}}, "", 0, ""),
        ({"type": "raw"}, "", 0, ""),
    ],
)
def test_keys_of_a_mapping_without_options_are_converted(
    problems: Any, option: dict[str, Any], watch: str, line: int, path: str
) -> None:
    specs({"extra_config": option})
    with WATCHES.open("a") as file:
        file.write(watch)
    converted = [problem for problem in problems() if "become snake_case" in problem]
    advice = "to keep them, add the path to snakeCaseExcept of the watch"
    expected = f"{line}: warning: {path}: its keys become snake_case (logLevel becomes log_level); {advice}"
    assert converted == [expected] * bool(path)


@pytest.mark.parametrize(
    ("options", "watch", "reported"),
    [
        ({"extraConfig": {"type": "str"}}, "", ["4: warning: spec.extraConfig"]),
        ({"a": {"type": "dict", "options": {"logLevel": {}}}}, "", ["7: warning: spec.a.logLevel"]),
        ({"extraConfig": {"type": "str"}}, "  snakeCaseParameters: false\n", []),
        ({"extraConfig": {"type": "str"}}, "  vars: {extraConfig: a}\n", []),
        ({"extra_config": {"type": "str"}}, "", []),
    ],
)
def test_an_option_that_is_no_variable_of_a_spec_is_reported_before_there_is_a_field(
    problems: Any, options: dict[str, Any], watch: str, reported: list[str]
) -> None:
    specs(options)
    with WATCHES.open("a") as file:
        file.write(watch)
    lines = [line for line in problems() if "gets this field" in line]
    assert [line.partition(": the role")[0] for line in lines] == reported
    assert all(line.endswith(("name the option extra_config", "name the option log_level")) for line in lines)


def test_keys_of_a_mapping_that_the_role_reads_unconverted_are_no_problem(problems: Any) -> None:
    specs({"extra_config": {"type": "dict"}})
    tasks("{{ _cache_example_com_memcached_spec.extraConfig | to_json }}")
    assert [line for line in problems() if "become snake_case" in line] == []


@pytest.mark.lengthy
def test_a_path_of_snake_case_except_that_the_schema_lacks_is_an_error(typed: Type, problems: Any) -> None:
    specs({"extra_config": {"type": "dict"}})
    tasks("{{ extra_config }}")
    assert typed("generate crds")[0] == 0
    with WATCHES.open("a") as file:
        file.write("  snakeCaseExcept: [spec.extraConf]\n")
    assert problems()[0] == (
        "3: error: cache.example.com/v1alpha1, Kind=Memcached: snakeCaseExcept[0]: spec.extraConf matches no object: "
        f"{CRD} has no field extraConf there; did you mean extraConfig?"
    )


def test_a_project_without_crds_of_its_own_kinds_is_a_warning(problems: Any) -> None:
    CRD.unlink()
    (line,) = problems()
    assert line == (
        "3: warning: cache.example.com/v1alpha1, Kind=Memcached: no CRD in config/crd/bases defines the watched kind "
        "Memcached; create it with `ansible-operator create api`"
    )
    Path("PROJECT").unlink()
    assert problems() == []


@pytest.mark.lengthy
def test_generate_crds_reports_a_sample_that_becomes_invalid(typed: Type) -> None:
    specs({"size": {"type": "int"}})
    SAMPLE.write_text(SAMPLE.read_text().replace("spec: {}", "spec: {size: a}"))
    code, out, errors = typed("generate crds")
    assert (code, out) == (0, f"changed  {CRD}\n")
    assert errors == f"{SAMPLE}:6: error: spec.size: found text (a), expected a whole number\n"


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("text", "more", "is_reported"),
    [
        ("{{ admin_usr }}", "", True),
        ("{{ admin_usr | default(1) }}", "", True),
        ("{{ admin_usr }}", "admin_usr: 1", False),
        ("{{ admin_usr }}", "- set_fact: admin_usr=1", False),
        ("{{ admin_usr }}", "- debug:\n  register: admin_usr", False),
        ("{% set admin_usr = 1 %}{{ admin_usr }}", "", False),
        ("{{ administrator }}", "", False),
        ("{{ admin_user }}", "", False),
    ],
)
def test_a_variable_that_nothing_defines_and_is_similar_to_a_field_is_mistyped(
    typed: Type, problems: Any, text: str, more: str, *, is_reported: bool
) -> None:
    specs({"admin_user": {"type": "str"}})
    assert typed("generate crds")[0] == 0
    tasks(f"{text} {{{{ admin_user }}}}")
    folder = ROLE / ("defaults" if more.startswith("admin") else "tasks")
    (folder / "more.yml").write_text(more or "[]")
    expected = "no file and no field defines the variable 'admin_usr'; did you mean admin_user (spec.adminUser)?"
    assert [line for line in problems() if "defines the variable" in line] == [f"3: warning: {expected}"] * is_reported


@pytest.mark.lengthy
def test_a_finalizer_that_stores_the_whole_spec_hides_no_unread_field(typed: Type, problems: Any) -> None:
    specs({"admin_user": {"type": "str"}, "backup_bucket": {"type": "str"}})
    assert typed("generate crds")[0] == 0
    finalizer = Path("roles/memcached_finalizer/tasks/main.yml")
    finalizer.parent.mkdir(parents=True)
    spec = "_cache_example_com_memcached_spec"
    finalizer.write_text(f'- ansible.builtin.debug:\n    msg: "{{{{ {spec} }}}} {{{{ {spec}.backupBucket }}}}"\n')
    with WATCHES.open("a") as file:
        file.write("  finalizer: {name: example.com/f, role: memcached_finalizer}\n")
    (unread,) = problems()
    assert unread.endswith("warning: spec.adminUser: roles/memcached does not read the variable 'admin_user'")
    tasks("{{ admin_user }}")
    assert problems() == []
