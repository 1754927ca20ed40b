"""What the reference pages say of watches.yaml, annotations and flags is what the readers do."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from hack import reference
from runner.app.features import FEATURE_FIELDS
from runner.base.yamlfile import fields as yamlfields
from runner.base.yamlfile.fields import FieldContext
from runner.core.watches import declared, watch
from runner.core.watches.field import Field, Type
from runner.core.watches.watch import Watch
from runner.values.errors import ConfigError
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
