"""`generate crds`, as a user types it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.kit.commands import Type


CRD = Path("config/crd/bases/cache.example.com_memcacheds.yaml")
SPECS = Path("roles/memcached/meta/argument_specs.yml")
SAMPLE = Path("config/samples/cache_v1alpha1_memcached.yaml")


def specs(**entry: Any) -> None:
    SPECS.write_text(yaml.safe_dump({"argument_specs": {"main": entry}}))


def spec_of(number: int = 0) -> dict[str, Any]:
    schema = yaml.safe_load(CRD.read_text())["spec"]["versions"][number]["schema"]["openAPIV3Schema"]
    found: dict[str, Any] = schema["properties"]["spec"]
    return found


def test_the_schema_gets_into_the_crd_and_the_rest_of_it_stays(typed: Type) -> None:
    CRD.write_text(CRD.read_text().replace("  scope: Namespaced\n", "  # by hand\n  scope: Namespaced\n"))
    before = CRD.read_text().splitlines()
    specs(options={"size": {"type": "int"}})
    assert typed("generate crds") == (0, f"changed  {CRD}\n", "")
    assert spec_of() == {
        "type": "object",
        "properties": {"size": {"type": "integer", "format": "int64"}},
        "default": {},
    }
    after = CRD.read_text().splitlines()
    gone = [line.strip() for line in before if line not in after]
    assert gone[0] == "description: Desired state."
    assert ["Users can set each variable." in line for line in gone[1:]] == [True]


@pytest.mark.lengthy
def test_generated_files_keep_their_line_ends(typed: Type) -> None:
    specs(options={"size": {"type": "int", "required": True}})
    for path in (CRD, SAMPLE):
        path.write_text(path.read_text(), newline="\r\n")
    assert typed("generate crds")[0] == 0
    for path in (CRD, SAMPLE):
        text = path.read_bytes()
        assert b"size:" in text, path
        assert text.count(b"\n") == text.count(b"\r\n"), path


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("entry", "written"),
    [
        ({"required_one_of": [["size", "count"]]}, []),
        ({}, [{"rule": "has(self.size) && self.size > 0", "message": "say how many"}]),
    ],
)
def test_a_rule_that_requires_a_field_makes_the_spec_required_without_default(
    typed: Type, entry: dict[str, Any], written: list[dict[str, str]]
) -> None:
    specs(options={"size": {"type": "int"}, "count": {"type": "int"}}, **entry)
    (SPECS.parent / "crd_validations.yml").write_text(yaml.safe_dump(written))
    assert typed("generate crds")[0] == 0
    assert "default" not in spec_of()
    schema = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["required"] == ["spec"]


@pytest.mark.lengthy
def test_generating_again_changes_nothing(typed: Type) -> None:
    specs(options={"size": {"type": "int", "required": True}}, required_one_of=[["size"]])
    assert typed("generate crds")[0] == 0
    once = CRD.read_text()
    assert typed("generate crds --check") == (0, "1 CRD is up to date\n", "")
    assert typed("generate crds")[0] == 0
    assert CRD.read_text() == once
    assert once.count("- spec\n") == 1


def test_a_check_writes_nothing_and_fails_where_something_differs(typed: Type) -> None:
    before = CRD.read_text()
    specs(options={"size": {"type": "int"}})
    assert typed("generate crds --check") == (1, f"differs  {CRD}\n", "")
    assert CRD.read_text() == before


def test_a_role_without_argument_specs_takes_anything(typed: Type) -> None:
    SPECS.unlink()
    assert typed("generate crds")[0] == 0
    assert spec_of()["x-kubernetes-preserve-unknown-fields"] is True


def test_a_schema_by_hand_is_kept_while_the_role_has_no_argument_specs(typed: Type) -> None:
    specs(options={"size": {"type": "int"}})
    assert typed("generate crds")[0] == 0
    by_hand = CRD.read_text()
    SPECS.unlink()
    code, out, err = typed("generate crds")
    assert (code, out) == (0, "1 CRD is up to date\n")
    assert "Kind=Memcached is kept, because no argument specs describe it" in err
    assert CRD.read_text() == by_hand


def test_further_rules_come_from_a_file_of_the_role(typed: Type) -> None:
    rule = {"rule": "self.size < 10", "message": "at most nine"}
    (SPECS.parent / "crd_validations.yml").write_text(yaml.safe_dump([rule]))
    specs(options={"size": {"type": "int"}}, required_one_of=[["size"]])
    assert typed("generate crds")[0] == 0
    assert [each["message"] for each in spec_of()["x-kubernetes-validations"]] == [
        "one of size must be set",
        "at most nine",
    ]


@pytest.mark.lengthy
def test_only_the_watched_version_is_written(typed: Type) -> None:
    assert typed("create api --group cache --version v1 --kind Memcached")[0] == 0
    specs(options={"size": {"type": "int"}})
    assert typed("generate crds")[0] == 0
    assert "size" in spec_of(0)["properties"]
    assert "properties" not in spec_of(1)


@pytest.mark.lengthy
def test_choices_of_text_that_yaml_reads_as_another_type_need_quotes(typed: Type) -> None:
    options = "{mode: {choices: [yes, 'no', auto]}, sizes: {type: list, elements: str, choices: [1]}, a: {type: bool}}"
    SPECS.write_text(f"argument_specs:\n  main:\n    options: {options}\n")
    why = "because YAML reads this choice as"
    boolean = (
        f"mode: the role does not accept the text yes, {why} a boolean; write 'yes' in quotes, or set `type: bool`"
    )
    number = f"sizes: the role does not accept the text 1, {why} a number; write '1' in quotes"
    for command in ("generate crds", "generate crds --check"):
        assert typed(command)[2].splitlines() == [f"{SPECS}:3: warning: {line}" for line in (boolean, number)]


def test_a_file_that_cannot_be_written_is_an_error_with_its_cause(typed: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    specs(options={"size": {"type": "int"}})
    monkeypatch.setattr(Path, "write_text", refuse)
    assert typed("generate crds") == (1, "", f"error: cannot read or write {CRD}: Permission denied\n")


def test_a_sample_in_another_encoding_is_reported_and_the_crds_are_written(typed: Type) -> None:
    specs(options={"size": {"type": "int", "required": True}})
    SAMPLE.with_name("a.yaml").write_bytes(b"a: \xe9\n")
    code, out, err = typed("generate crds")
    assert (code, f"changed  {SAMPLE}: required options" in out) == (0, True)
    assert "a.yaml: error: invalid UTF-8" in err


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("break_it", "why"),
    [
        (CRD.unlink, "no CRD for cache.example.com/v1alpha1, Kind=Memcached"),
        (lambda: CRD.write_text("a: ["), "cannot read"),
        (
            lambda: CRD.write_text(CRD.read_text().replace("name: v1alpha1", "name: v1")),
            "version v1alpha1 has no `schema",
        ),
        (lambda: SPECS.write_text("a: 1"), "`argument_specs` must be a map"),
        (lambda: (SPECS.parent / "crd_validations.yml").write_text("a: 1"), "must be a list of rules"),
        (lambda: (SPECS.parent / "crd_validations.yml").write_text("- rule: 3"), "must be a list of rules"),
        (lambda: Path("watches.yaml").write_text("[]"), "has no watches"),
    ],
)
def test_an_invalid_project_is_an_error(typed: Type, break_it: Callable[[], object], why: str) -> None:
    specs(options={})
    break_it()
    code, out, err = typed("generate crds")
    assert (code, out) == (2, "")
    assert why in err


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("options", "spec"),
    [
        ({"size": {"type": "int", "required": True}, "name": {"type": "str"}}, {"size": 1}),
        (
            {
                "zone": {"required": True, "choices": ["eu", "us"]},
                "tls_mode": {"type": "bool", "required": True},
                "users": {"type": "list", "elements": "str", "required": True},
                "store": {
                    "type": "dict",
                    "required": True,
                    "options": {"size": {"type": "str", "required": True}, "kind": {"type": "str"}},
                },
            },
            {"zone": "eu", "tlsMode": True, "users": [], "store": {"size": "example"}},
        ),
        ({"size": {"type": "int"}}, {}),
    ],
)
def test_a_sample_with_an_empty_spec_gets_the_required_options(
    typed: Type, options: dict[str, Any], spec: dict[str, Any]
) -> None:
    specs(options=options)
    before = SAMPLE.read_text()
    assert typed("generate crds --check")[0] == 1
    assert SAMPLE.read_text() == before
    code, out, _ = typed("generate crds")
    assert (code, f"changed  {SAMPLE}: required options" in out) == (0, bool(spec))
    assert yaml.safe_load(SAMPLE.read_text()) == yaml.safe_load(before) | {"spec": spec}
    assert typed("validate")[0] == 0
    once = SAMPLE.read_text()
    assert typed("generate crds")[1] == "1 CRD is up to date\n"
    assert SAMPLE.read_text() == once
