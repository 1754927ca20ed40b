"""The JSON Schema of watches.yaml accepts what the operator reads in the documented spelling, and refuses the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema.exceptions import best_match

from runner.core.watches.field import Field
from tests.kit import editor
from tests.kit.editor import VALIDATOR
from tests.kit.generated import generate
from tests.kit.places import ROOT
from tests.unit.docs.test_reference import EACH, KIND, WRONG, entry_of, with_value

PLACES = ("watches*.yaml", "bench/**/watches.yaml", "examples/*/watches.yaml", "runner/sdk/**/watches.yaml")
assert all(any(ROOT.glob(place)) for place in PLACES)
FILES = [str(path.relative_to(ROOT)) for place in PLACES for path in sorted(ROOT.glob(place))]


def path_of(field: Field) -> str:
    return field.path


def refusals(entry: dict[str, Any]) -> list[str]:
    """The fields that the schema refuses, as in the operator's messages."""
    errors = (best_match([error]) for error in VALIDATOR.iter_errors([entry]))
    return [error.json_path.removeprefix("$[0].") for error in errors if error]


@pytest.mark.parametrize("name", FILES)
def test_a_watches_file_of_the_repository_is_valid(name: str) -> None:
    document = editor.read((ROOT / name).read_text())
    # The scaffold's file has no entry until `create api` adds one.
    assert list(VALIDATOR.iter_errors(document or [])) == []


@pytest.mark.lengthy
def test_the_watches_file_of_a_new_project_is_valid_and_names_its_schema(tmp_path: Path) -> None:
    api = "create api --group cache --version v1alpha1 --kind Memcached --generate-role --finalizer"
    files = generate(tmp_path / "memcached", [["init", "--domain", "example.com"], api.split()])
    text = files["watches.yaml"]
    assert list(VALIDATOR.iter_errors(editor.read(text))) == []
    (comment,) = (line for line in text.splitlines() if line.startswith("# yaml-language-server:"))
    assert json.loads(files[comment.partition("$schema=")[2]]) == VALIDATOR.schema


@pytest.mark.parametrize("field", EACH, ids=path_of)
def test_a_field_has_its_example_its_default_or_a_variable_and_no_value_of_another_type(field: Field) -> None:
    values = ["${VALUE}", "$VALUE", *([editor.read(field.default)] if field.default else [])]
    for entry in (entry_of(field), *(with_value(field, value) for value in values)):
        assert refusals(entry) == []
    (refused,) = refusals(with_value(field, WRONG[field.type]))
    where = field.path.replace("[]", "[0]")
    assert refused in {where, f"{where}[0]"}


@pytest.mark.parametrize("field", [each for each in EACH if each.values], ids=path_of)
def test_a_field_with_a_list_of_values_accepts_no_others(field: Field) -> None:
    for value in field.values:
        assert refusals(with_value(field, [value] if field.type == "list" else value)) == []
    assert len(refusals(with_value(field, ["neither"] if field.type == "list" else "neither"))) == 1


@pytest.mark.parametrize("field", [each for each in EACH if each.required], ids=path_of)
def test_a_required_field_cannot_be_absent_or_null(field: Field) -> None:
    assert len(refusals(with_value(field, None))) == 1
    if not field.section:
        assert len(refusals({name: value for name, value in KIND.items() if name != field.name})) == 1


@pytest.mark.parametrize("entry", [KIND | {"rolle": "memcached"}, {**KIND, "role": None} | {"finaliser": {}}])
def test_an_unknown_field_is_refused(entry: dict[str, Any]) -> None:
    assert len(refusals(entry)) == 1


def test_an_entry_without_role_and_playbook_is_refused() -> None:
    assert len(refusals({name: value for name, value in KIND.items() if name != "role"})) == 1
