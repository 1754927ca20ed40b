"""Templates that were compiled before the run: the same code, taken only where it is that."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from ansible import constants

from runner.engines.warm import versions
from runner.engines.warm.patches import templates
from runner.engines.warm.patches.templates import CompiledTemplates, Templates
from tests.kit.forks import seen

since_2_19 = pytest.mark.skipif(not versions.TAGGED, reason="changed in ansible-core 2.19")
before_2_19 = pytest.mark.skipif(versions.TAGGED, reason="changed in ansible-core 2.19")
ESCAPES = True if versions.TAGGED else None

TEXTS = (
    "plain words",
    "{{ size }}",
    "{{ names | map('upper') | join(',') | default('none') }}",
    "{% for each in names if each is match('b.*') %}{{ loop.index }}:{{ each }}\n{% endfor %}",
    "{% set x = {'a': [1, 2.5, none, true]} %}{{ x | to_json }}",
    "{{ \"C:\\new\" }} and {{ '{{ nested }}' }}",
    "{{ 1000 | random(seed='s') }}{{ 'é' ~ size | string }}",
)
EXPRESSIONS = ("size > 2 and names is defined", "'}}' in names", "names | length == 2", "not (size | bool)")
VALUES = {"size": 3, "names": ["a", "b"], "nested": "deep"}


def environment() -> Any:
    return versions.template_environments()[0]()


def render(*texts: Any, expressions: tuple[Any, ...] = ()) -> list[Any]:
    """Render as Ansible does, by its own templar."""
    from ansible.parsing.dataloader import DataLoader  # noqa: PLC0415 - in a fork
    from ansible.template import Templar  # noqa: PLC0415 - as above

    templar = Templar(DataLoader(), variables=VALUES)
    if not versions.TAGGED:
        tests = (f"{{% if {each} %}} True {{% else %}} False {{% endif %}}" for each in expressions)
        return [templar.template(text) for text in (*texts, *tests)]
    from ansible.template import trust_as_template  # noqa: PLC0415 - since 2.19

    found = [templar.template(trust_as_template(text)) for text in texts]
    return found + [templar.evaluate_conditional(trust_as_template(each)) for each in expressions]


def error_of(text: str) -> str:
    """Return how rendering fails."""
    with pytest.raises(Exception, match="gone") as caught:
        render(text)
    return f"{type(caught.value).__name__}: {caught.value}"


def noted(*texts: Any, expressions: tuple[Any, ...] = ()) -> list[str]:
    """Return what a run notes that renders these."""
    known = Templates(CompiledTemplates())
    known.install()
    render(*texts, expressions=expressions)
    return list(known.noted.values())


def taken(precompiled: CompiledTemplates, act: Callable[[], object]) -> tuple[int, object]:
    """Return how often a run compiled for which these were precompiled, and what it found."""
    made: Any = type(environment())
    known, generate, count = Templates(precompiled), made._generate, []

    def counted(*args: Any, **options: Any) -> Any:
        count.append(args)
        return generate(*args, **options)

    made._generate = counted
    known.install()
    found = act()
    return len(count), found


@pytest.mark.lengthy
def test_a_run_compiles_nothing_that_a_run_before_it_has_compiled_and_finds_the_same() -> None:
    def both() -> Any:
        cold = render(*TEXTS, expressions=EXPRESSIONS)
        lines = noted(*TEXTS, expressions=EXPRESSIONS)
        return [cold, *taken(templates.precompile(lines), lambda: render(*TEXTS, expressions=EXPRESSIONS))]

    cold, compiled, warm = seen(both)
    assert warm == cold
    assert compiled == (0 if versions.TAGGED else 1)  # before 2.19 Jinja computes the random number


def test_a_filter_with_changed_arguments_causes_a_new_compilation() -> None:
    def change() -> Any:
        text = "{{ names | map('upper') | list }}"
        lines = [line.replace('["filter", "map", "context"]', '["filter", "map", ""]') for line in noted(text)]
        assert '"map", ""' in lines[0]
        return taken(templates.precompile(lines), lambda: render(text))

    assert seen(change) == [1, [["A", "B"]]]


def test_a_template_with_settings_of_its_own_is_compiled_by_each_run() -> None:
    def own() -> Any:
        return noted("#jinja2: variable_start_string:'[%', variable_end_string:'%]'\n[% size %]")

    assert seen(own) == []


@before_2_19
def test_a_run_with_vault_secrets_records_no_templates() -> None:
    def secret() -> Any:
        lines = noted("{{ size + 1 }}")
        constants.DEFAULT_VAULT_PASSWORD_FILE = "/vault-password"
        return [len(lines), noted("{{ size + 1 }}")]

    assert seen(secret) == [1, []]


def test_precompiling_a_template_evaluates_nothing() -> None:
    def random() -> Any:
        text = "{{ 1000000000000 | random }}"
        lines = noted(text)
        return [
            taken(templates.precompile(lines), lambda: render(text))[1],
            taken(templates.precompile(lines), lambda: render(text))[1],
        ]

    one, other = seen(random)
    assert one != other


@before_2_19
@pytest.mark.parametrize("text", ["{{ 'a' | upper }}", "{% if 'b' is match('b') %}{{ size }}{% endif %}"])
def test_a_template_that_jinja_computes_in_part_is_compiled_by_each_run(text: str) -> None:
    def computed() -> Any:
        lines = noted(text)
        return [len(lines), len(templates.precompile(lines).known)]

    assert seen(computed) == [1, 0]


@since_2_19
def test_decrypted_templates_are_not_recorded() -> None:
    def secret() -> Any:
        from ansible._internal._datatag._tags import VaultedValue  # noqa: PLC0415 - since 2.19

        return noted(VaultedValue(ciphertext="x").tag("{{ size }} of a secret"))

    assert seen(secret) == []


def test_long_templates_are_not_recorded_and_their_number_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "MOST", 2)

    def many() -> Any:
        return noted("{{ size }}" + " " * 5000, "{{ size }}1", "{{ size }}2", "{{ size }}3")

    assert [json.loads(line)[0] for line in seen(many)] == ["{{ size }}1", "{{ size }}2"]


@pytest.mark.parametrize("line", ["no JSON", "[]", '["{{ x | gone }}", false, null, []]', '["{{", false, null, []]'])
def test_a_template_that_cannot_be_precompiled_is_left_to_the_run(line: str) -> None:
    def compiled() -> Any:
        precompiled = templates.precompile([line])
        return [len(precompiled.known), precompiled.problems]

    assert seen(compiled) == [0, []]


def test_a_failure_of_the_precompilation_itself_is_a_problem() -> None:
    def compiled() -> Any:
        lines = noted("{{ size + 1 }}", "{{ names | length }}")
        type(environment())._parse = broken
        return list(templates.precompile(lines).problems)

    def broken(*_: object) -> Any:
        raise AttributeError("no such hook")

    assert seen(compiled) == ["2 templates cannot be precompiled: AttributeError: no such hook"]


@pytest.mark.lengthy
def test_a_filter_that_is_gone_fails_as_it_does_without_code_from_before() -> None:
    def gone() -> Any:
        line = json.dumps(["{{ size | gone }}", False, ESCAPES, [["filter", "gone", ""]]])
        known = Templates(templates.precompile([line]))
        known.install()
        return [len(known.precompiled.known), error_of("{{ size | gone }}")]

    assert seen(gone) == [1, seen(lambda: error_of("{{ size | gone }}"))]
