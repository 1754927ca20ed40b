"""Each folder of examples/ is what the commands in its README generate, plus its own lines."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from runner.core.engine.params import snake_case
from tests.kit.generated import commands_of, foreign_files, generate, missing_files, missing_lines
from tests.kit.places import ROOT

EXAMPLES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/README.md"))
OWN = (
    *("README.md", "roles/*", "playbooks/*", "molecule/default/tasks/*"),
    *("config/samples/*_*.yaml", "config/crd/bases/*"),
)
"""What every example says itself: what it is, what runs, which fields its kinds have, and what they are to come to."""


@pytest.fixture(scope="module", params=EXAMPLES)
def example(request: pytest.FixtureRequest) -> Path:
    return ROOT / "examples" / str(request.param)


@pytest.fixture(scope="module")
def generated(example: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    name = yaml.safe_load((example / "PROJECT").read_text())["projectName"]
    commands = commands_of((example / "README.md").read_text(), name)
    return generate(tmp_path_factory.mktemp(example.name) / name, commands)


def test_each_folder_and_each_page_of_an_example_is_checked() -> None:
    """Else nothing would be compared where a README has gone, or a folder is called otherwise than its page."""
    folders = [path.parent.name for path in (ROOT / "examples").glob("*/watches.yaml")]
    pages = [path.stem for path in (ROOT / "docs/examples").glob("*.md")]
    assert {*folders, *pages} - {"memcached"} == {*EXAMPLES}


@pytest.mark.lengthy
def test_an_example_has_every_generated_file(example: Path, generated: dict[str, str]) -> None:
    assert missing_files(example, generated) == []


def test_an_example_has_every_generated_line_in_its_order(example: Path, generated: dict[str, str]) -> None:
    assert missing_lines(example, generated, OWN) == []


def test_config_and_molecule_of_an_example_hold_nothing_foreign(example: Path, generated: dict[str, str]) -> None:
    assert foreign_files(example, generated, OWN) == []


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("small") / "shop-operator"
    return folder, generate(folder, [["init", "--domain", "example.com"]])


def test_a_project_that_was_just_generated_differs_in_nothing(small: tuple[Path, dict[str, str]]) -> None:
    assert len(small[1]) > 30
    assert missing_files(*small) + missing_lines(*small, ()) + foreign_files(*small, ()) == []


def test_removed_moved_and_added_parts_are_named(small: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    texts = {"Makefile": "a\nb\n", "config/a.yaml": "a\n", "roles/.gitkeep": ""}
    for path, text in (("Makefile", "b\nown\na\n"), ("config/b.yaml", ""), ("molecule/c/d.yml", "")):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert missing_files(tmp_path, texts) == ["config/a.yaml"]
    assert missing_lines(tmp_path, texts, ()) == ["Makefile: b", "config/a.yaml: a"]
    assert missing_lines(tmp_path, texts, ("config/*", "Makefile")) == []
    assert foreign_files(tmp_path, texts, ()) == ["config/b.yaml", "molecule/c/d.yml"]
    assert foreign_files(tmp_path, texts, ("molecule/*",)) == ["config/b.yaml"]


CRDS = sorted((*ROOT.glob("config/crd/bases/*.yaml"), *ROOT.glob("examples/*/config/crd/bases/*.yaml")))


@pytest.mark.parametrize("file", CRDS, ids=lambda file: str(file.name))
def test_the_api_server_drops_unknown_fields_of_a_spec(file: Path) -> None:
    specs = [
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for version in yaml.safe_load(file.read_text())["spec"]["versions"]
    ]
    assert specs
    for spec in specs:
        assert spec["properties"]
        assert not {"x-kubernetes-preserve-unknown-fields", "additionalProperties"} & spec.keys()


@pytest.mark.parametrize("file", ["watches.yaml", "watches-playbook.yaml"])
def test_the_sample_sets_each_variable_of_its_role_that_is_no_field(file: str) -> None:
    """`vars` override the spec, also where the CRD is an older one."""
    (crd,) = ROOT.glob("config/crd/bases/*.yaml")
    (watch,) = yaml.safe_load((ROOT / file).read_text())
    options = yaml.safe_load((ROOT / "roles/memcached/meta/argument_specs.yml").read_text())["argument_specs"]["main"]
    for version in yaml.safe_load(crd.read_text())["spec"]["versions"]:
        fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        set_by_users = {snake_case(name) for name in fields}
        assert set_by_users.isdisjoint(watch["vars"])
        assert set_by_users | watch["vars"].keys() | {"ansible_operator_meta"} == options["options"].keys()
