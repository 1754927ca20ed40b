"""What `validate` says of fields that no role reads and of options that no field sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kit.commands import Type

CRD = Path("config/crd/bases/cache.example.com_memcacheds.yaml")
ROLE = Path("roles/memcached")
SPECS = ROLE / "meta/argument_specs.yml"
Warnings = Callable[[], list[str]]


@pytest.fixture
def warnings(typed: Type) -> Warnings:
    """Validate the project, and return what it warns of."""
    SPECS.unlink()
    (ROLE / "defaults/main.yml").write_text("---\n{}\n")

    def validate() -> list[str]:
        code, out, _ = typed("validate")
        assert code == 0
        return [line for line in out.splitlines() if "warning: " in line]

    return validate


def give_fields(*names: str, **more: Any) -> None:
    crd = yaml.safe_load(CRD.read_text())
    spec = {"type": "object", "properties": {name: {"type": "string"} for name in names}, **more}
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = spec
    CRD.write_text(yaml.safe_dump(crd))


def give_tasks(*tasks: dict[str, Any]) -> None:
    (ROLE / "tasks/main.yml").write_text(yaml.safe_dump([{"name": "Do", **task} for task in tasks]))


def line_of(path: Path, text: str) -> int:
    return next(n for n, line in enumerate(path.read_text().splitlines(), start=1) if text in line)


def test_fields_that_name_hosts_and_their_credentials_are_read_by_the_operator(warnings: Warnings) -> None:
    give_fields("hosts", "credentials", "size")
    give_tasks({"ansible.builtin.debug": {"msg": "a"}})
    inventory = "  inventory: {hosts: spec.hosts, credentials: spec.credentials, allow: [10.0.0.0/8]}\n"
    assert "the variables of 3 fields" in warnings()[0]
    with Path("watches.yaml").open("a") as file:
        file.write(f"{inventory}")
    assert [each.partition("warning: ")[2] for each in warnings()] == [
        f"spec.size: {ROLE} does not read the variable 'size'"
    ]


def test_several_fields_or_variables_of_a_file_are_one_line(warnings: Warnings) -> None:
    give_fields("logLevel", "size", "mode")
    give_tasks({"ansible.builtin.debug": {"msg": "{{ size }}"}})
    (ROLE / "defaults/main.yml").write_text("---\nsize: 1\nimage: a\nport: 1\n")
    unread = ", ".join(f"spec.{key} (line {line_of(CRD, f'{key}:')})" for key in ("logLevel", "mode"))
    found = [line.split(": ", 1)[1] for line in warnings()]
    assert found == [
        f"warning: {ROLE} does not read the variables of 2 fields: {unread}",
        (
            f"warning: no field of {CRD} sets these 2 variables: image (line 3), port (line 4); "
            "`ansible-operator generate crds` generates fields from meta/argument_specs.yml"
        ),
    ]


def test_templates_values_of_defaults_and_roles_that_are_named_read_too(warnings: Warnings) -> None:
    give_fields("one", "two", "three", "four")
    give_tasks({"ansible.builtin.include_role": {"name": "other"}})
    (ROLE / "templates").mkdir(exist_ok=True)
    (ROLE / "templates/a.j2").write_text("{{ one }}")
    (ROLE / "defaults/main.yml").write_text('---\nname: "{{ two }}"\nnever: 1\n')
    (ROLE / "meta/main.yml").write_text("---\ndependencies:\n  - role: third\n")
    for role, text in (("other", "{{ three }}"), ("third", "{{ four }}")):
        Path(f"roles/{role}/tasks").mkdir(parents=True)
        Path(f"roles/{role}/tasks/main.yml").write_text(f'---\n- name: Do\n  debug:\n    msg: "{text}"\n')
    assert [each for each in warnings() if "does not read" in each] == []


def test_a_default_alone_reads_nothing(warnings: Warnings) -> None:
    give_fields("size")
    give_tasks({"ansible.builtin.debug": {"msg": "hello"}})
    (ROLE / "defaults/main.yml").write_text("---\nsize: 1\n")
    assert ["spec.size: roles/memcached does not read" in each for each in warnings()] == [True]


@pytest.mark.parametrize(
    "expression",
    [
        "{{ _cache_example_com_memcached_spec }}",
        "{{ vars['si' ~ 'ze'] }}",
        "{{ lookup('ansible.builtin.vars', which) }}",
        "{{ lookup('varnames', '^s') }}",
    ],
)
def test_a_role_that_may_read_any_field_has_no_warning(warnings: Warnings, expression: str) -> None:
    give_fields("size")
    give_tasks({"ansible.builtin.debug": {"msg": expression}})
    assert warnings() == []


def test_an_include_with_a_variable_role_name_disables_the_warning(warnings: Warnings) -> None:
    give_fields("size")
    give_tasks({"ansible.builtin.include_role": {"name": "{{ which }}"}})
    assert warnings() == []


def test_an_option_without_a_field_is_reported_with_its_place(warnings: Warnings) -> None:
    give_fields("size")
    give_tasks({"ansible.builtin.debug": {"msg": "{{ size }} {{ image }}"}})
    SPECS.write_text("---\nargument_specs:\n  main:\n    options:\n      size: {}\n      image: {}\n      _own: {}\n")
    expected = f"{SPECS}:6: warning: image: no field of {CRD} sets this variable; `ansible-operator generate crds` "
    assert warnings() == [f"{expected}generates fields from meta/argument_specs.yml"]


def test_an_option_with_the_name_of_a_field_is_reported_with_the_variable_that_the_role_gets(
    warnings: Warnings,
) -> None:
    give_fields("size", "bannerText")
    give_tasks({"ansible.builtin.debug": {"msg": "{{ size }} {{ banner_text }}"}})
    SPECS.write_text("---\nargument_specs:\n  main:\n    options:\n      size: {}\n      bannerText: {}\n")
    gets = "the role gets this field as the variable banner_text; name the option banner_text"
    assert warnings() == [f"{SPECS}:6: warning: spec.bannerText: {gets}"]
    SPECS.unlink()
    (ROLE / "defaults/main.yml").write_text("---\nsize: 1\nbannerText: a\n")
    assert warnings() == [f"{ROLE}/defaults/main.yml:3: warning: bannerText: {gets}"]


def test_a_variable_of_the_watch_needs_no_field(warnings: Warnings) -> None:
    give_fields("size")
    give_tasks({"ansible.builtin.debug": {"msg": "{{ size }} {{ image }}"}})
    (ROLE / "defaults/main.yml").write_text("---\nimage: a\n")
    watches = yaml.safe_load(Path("watches.yaml").read_text())
    watches[0]["vars"] = {"image": "b"}
    Path("watches.yaml").write_text(yaml.safe_dump(watches))
    assert warnings() == []


def test_a_crd_that_takes_anything_sets_everything(warnings: Warnings) -> None:
    give_fields("size", **{"x-kubernetes-preserve-unknown-fields": True})
    give_tasks({"ansible.builtin.debug": {"msg": "{{ size }}"}})
    (ROLE / "defaults/main.yml").write_text("---\nimage: a\n")
    assert warnings() == []
