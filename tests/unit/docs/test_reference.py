"""What the reference pages and the JSON Schema say of watches.yaml, annotations and flags is what the readers do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema.exceptions import best_match

from hack import reference
from runner.app.features import FEATURE_FIELDS
from runner.base.yamlfile import fields as yamlfields
from runner.base.yamlfile.fields import FieldContext
from runner.core.watches import declared, watch
from runner.core.watches.field import Field, Type
from runner.core.watches.watch import Watch
from runner.values.errors import ConfigError
from tests.kit import editor
from tests.kit.editor import VALIDATOR
from tests.kit.generated import generate
from tests.kit.places import ROOT

EACH = [field for fields in declared.with_features(FEATURE_FIELDS).values() for field in fields]
KIND = {"group": "cache.example.com", "version": "v1alpha1", "kind": "Memcached", "role": "memcached"}
WRONG: dict[Type, object] = {
    "text": ["no", "text"],
    "boolean": "sometimes",
    "whole number": "1.5 or so",
    "number": "many",
    "duration": "soon",
    "mapping": ["no", "mapping"],
    "list": "no list",
    "list of mappings": ["no mapping"],
    "list of names": [["no name"]],
}
Read = Callable[[dict[str, object]], Watch]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Read:
    project = tmp_path_factory.mktemp("project")
    for folder in ("roles/memcached", "roles/cleanup", "playbooks"):
        (project / folder).mkdir(parents=True)
    (project / "playbooks/site.yml").write_text("[]\n")

    def read_entry(entry: dict[str, object]) -> Watch:
        (project / "watches.yaml").write_text(yaml.safe_dump([entry]))
        path = Path("watches.yaml")
        loaded = watch.load(path, environ={}, cwd=project, roles_path="", collections_path="", features=FEATURE_FIELDS)
        assert loaded.warnings == () or "playbook" in entry
        return replace(loaded.watches[0], line=0)

    return read_entry


def entry_of(field: Field) -> dict[str, object]:
    return {**KIND, **yaml.safe_load(field.example)}


def with_value(field: Field, value: object) -> dict[str, object]:
    """The field's example, with another value in the field's own place."""
    entry = entry_of(field)
    here: dict[str, object] = entry
    *above, last = field.path.split(".")
    for part in above:
        found = here[part.removesuffix("[]")]
        inner = found[0] if isinstance(found, list) else found
        assert isinstance(inner, dict)
        here = inner
    here[last] = value
    return entry


@pytest.mark.lengthy
def test_the_reference_contains_exactly_the_fields_that_are_read(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    initialize = yamlfields.Fields.__init__

    def note(self: yamlfields.Fields, node: yaml.MappingNode, place: FieldContext, known: Sequence[str]) -> None:
        path = re.sub(r"\[\d+\]", "[]", place.path)
        seen.update(f"{path}.{name}" if path else name for name in known)
        initialize(self, node, place, known)

    monkeypatch.setattr(yamlfields.Fields, "__init__", note)
    for field in EACH:
        read(entry_of(field))
    # A reference selects by labels as a watch does; the page lists these fields once.
    assert {path for path in seen if not path.startswith("references[].selector.")} == {field.path for field in EACH}


@pytest.mark.parametrize("field", EACH, ids=lambda field: field.path)
def test_example_default_and_type_of_a_field_are_those_of_the_reader(read: Read, field: Field) -> None:
    assert field.path.split(".")[0].removesuffix("[]") in yaml.safe_load(field.example)
    read(entry_of(field))
    with pytest.raises(ConfigError) as refused:
        read(with_value(field, WRONG[field.type]))
    assert field.path.replace("[]", "[0]") in str(refused.value)
    if field.default:
        left_out: dict[str, object] = {name: value for name, value in KIND.items() if name != field.path}
        assert read(with_value(field, yaml.safe_load(field.default))) == read(left_out)


@pytest.mark.parametrize("field", [each for each in EACH if each.values], ids=lambda field: field.path)
def test_the_values_of_a_field_are_those_that_the_reader_accepts(read: Read, field: Field) -> None:
    def problem(value: object) -> str:
        try:
            read(with_value(field, [value] if field.type == "list" else value))
        except ConfigError as error:  # also a relation to other fields
            return str(error)
        return ""

    assert [value for value in field.values if f"{field.path.replace('[]', '[0]')}: invalid" in problem(value)] == []
    assert f"{field.path.replace('[]', '[0]')}: invalid" in problem("neither")


def test_the_reference_contains_exactly_the_annotations_of_the_code() -> None:
    found: set[str] = set()
    for path in (ROOT / "runner").rglob("*.py"):
        text = path.read_text()
        found.update(re.findall(r'= "(ansible\.sdk\.operatorframework\.io/[a-z-]{2,}|operator-sdk/[a-z-]+)"', text))
        found.update(
            f"ansible.sdk.operatorframework.io/{name}" for name in re.findall(r' = PREFIX \+ "([a-z-]+)"', text)
        )
    _, _, section = (ROOT / "docs/watches.md").read_text().partition("\n## Reference: annotations\n")
    assert found == set(re.findall(r"^\| `([a-z./-]+)` \|", section.partition("\n## ")[0], re.MULTILINE))


@pytest.mark.parametrize(("name", "text"), reference.pages().items(), ids=list(reference.pages()))
def test_a_generated_page_is_up_to_date(name: str, text: str) -> None:
    assert (ROOT / name).read_text() == text, "run `make reference`"


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
