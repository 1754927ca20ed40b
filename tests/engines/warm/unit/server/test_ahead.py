"""Templates that the server compiles from the files of roles, before any run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.engines.warm import versions
from runner.engines.warm.patches import templates
from runner.engines.warm.server import ahead
from tests.engines.warm.unit.patches.test_templates import EXPRESSIONS, TEXTS, render, taken
from tests.kit.forks import seen

TASKS = """
- name: Everything
  ansible.builtin.debug:
    msg: ["{{ size }}", {deep: "{{ names | map('upper') | join(',') }}"}]
  when: [size > 2, names is defined]
  until: size == 3
- vars: {secret: !vault "{{ hidden }}", literal: !unsafe "{{ raw }}"}
  ansible.builtin.assert: {that: "'b' in names"}
"""


def compiled(*files: Path, templates_of: Iterable[Path] = ()) -> list[str]:
    """Return the texts that the server compiles from these YAML files, and from files that are templates."""

    def compile_all() -> Any:
        prepared = templates.precompile(())
        for _ in ahead.compile_files(map(str, files), map(str, templates_of), prepared):
            pass
        return [key[0] for key in prepared.known]

    texts: list[str] = seen(compile_all)
    return texts


def condition(text: str) -> str:
    return text if versions.TAGGED else f"{{% if {text} %}} True {{% else %}} False {{% endif %}}"


def test_values_and_conditions_of_tasks_are_compiled_but_nothing_that_is_encrypted_or_unsafe(tmp_path: Path) -> None:
    (file := tmp_path / "main.yml").write_text(TASKS)

    assert compiled(file) == [
        "{{ size }}",
        "{{ names | map('upper') | join(',') }}",
        *map(condition, ("size > 2", "names is defined", "size == 3", "'b' in names")),
    ]


def test_a_run_compiles_nothing_that_the_files_of_its_role_contain(tmp_path: Path) -> None:
    tasks = [{"debug": {"msg": list(TEXTS)}, "when": list(EXPRESSIONS)}]
    (file := tmp_path / "main.yml").write_text(yaml.safe_dump(tasks))

    def run() -> Any:
        prepared = templates.precompile(())
        for _ in ahead.compile_files([str(file)], [], prepared):
            pass
        return taken(prepared, lambda: render(*TEXTS, expressions=EXPRESSIONS))[0]

    assert seen(run) == (0 if versions.TAGGED else 2)  # before 2.19: one with a random number, one with a backslash


def test_a_file_that_is_a_template_is_compiled_as_a_whole(tmp_path: Path) -> None:
    (file := tmp_path / "deployment.yaml").write_text("size: {{ size }}\n")

    assert compiled(templates_of=[file]) == ["size: {{ size }}\n"]


def test_a_file_is_compiled_in_one_way_wherever_the_project_is(tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (file := tmp_path / "templates/main.yml").write_text("['{{ size }}']")

    assert compiled(file) == ["{{ size }}"]


def test_a_large_file_is_left_to_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_LARGEST", 12)
    (file := tmp_path / "main.yml").write_text("['{{ size }}']")

    assert compiled(file, templates_of=[file]) == []


@pytest.mark.parametrize(
    "text",
    [b"\xff", b"- a: [", b"- a: '{{'", b"- a: '{{ size | gone }}'", b"- when: 'a b'", b"[" * 5000, b"&a [*a, '{{']"],
)
def test_what_cannot_be_read_or_compiled_is_left_to_the_runs(tmp_path: Path, text: bytes) -> None:
    (file := tmp_path / "odd.yml").write_bytes(text)

    assert compiled(file, tmp_path / "gone.yml") == []


def test_aliases_cannot_multiply_the_work(tmp_path: Path) -> None:
    lines = ["a0: &a0 '{{ size }}'", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))]
    (file := tmp_path / "bomb.yml").write_text("\n".join(lines))

    assert compiled(file) == ["{{ size }}"]


def test_the_number_of_templates_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "MOST", 2)
    (file := tmp_path / "main.yml").write_text("['{{ a }}', '{{ b }}', '{{ c }}']")

    assert compiled(file) == ["{{ a }}", "{{ b }}"]
