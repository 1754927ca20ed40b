"""Values that templates read: the same ones, with the same messages, as by Ansible itself."""

from __future__ import annotations

from typing import Any

import pytest

from runner.engines.warm import versions
from runner.engines.warm.patches import values
from tests.engines.warm.unit.patches.test_fields import trusted
from tests.kit.forks import load_plugins, seen

pytestmark = pytest.mark.skipif(not versions.TAGGED, reason="before ansible-core 2.19 values have no tags")
VARIABLES: dict[str, Any] = {
    "text": "words",
    "number": 7,
    "nested": {"a": ["{{ text }}", {"b": "{{ number }}", "c": "plain", "d": None}], "e": True},
    "later": "{{ nested.a[1].b + 1 }}",
    "broken": "{{ missing.too }}",
    "loop": "{{ loop }}",
    "tuple": ("{{ text }}", 1),
    "omitted": {"kept": 1, "gone": "{{ omit }}"},
    "not_closed": "{{ text",
    "comment": "{# nothing #}text",
}
TEMPLATES = (
    "{{ nested }}",
    "{{ nested.a[1].c ~ text ~ later }}",
    "{{ nested | combine({'f': '{{ text }}'}, recursive=true) }}",
    "{{ nested.a | map('string') | list }}",
    "{% macro twice(value) %}{{ value ~ value }}{% endmacro %}{{ twice(nested.a[0]) }}",
    "{% for key, value in nested.items() %}{{ key }}={{ value }};{% endfor %}",
    "{{ missing }}",
    "{{ missing | default(nested.a) }}",
    "{{ broken }}",
    "{{ broken is defined }}",
    "{{ [broken, text] | first }}",
    "{{ loop }}",
    "{{ tuple }}",
    "{{ omitted }}",
    "{{ omit }}",
    "{{ not_closed }}",
    "{{ comment }}",
    "{{ old }}",
    "{{ [old, text] | join(',') }}",
    "{{ {'a': old}.a | upper }}",
    "{{ strange }}",
    "{{ [strange] }}",
    "{{ lookup('vars', 'nested') }}",
    "{{ query('list', nested.a) }}",
    "plain",
    "",
)


def rendered(template: str, *, marked: bool) -> Any:
    """Return the value of a template, or its error, and the messages about it."""
    from ansible._internal._templating._engine import TemplateEngine  # noqa: PLC0415 - in a fork
    from ansible.parsing.dataloader import DataLoader  # noqa: PLC0415 - as above
    from ansible.utils.display import Display  # noqa: PLC0415 - as above
    from ansible.vars import manager  # noqa: PLC0415 - as above

    load_plugins()
    messages: list[str] = []
    display: Any = Display()
    display.display = lambda text, *_, **__: messages.append(text)
    old = (
        manager._DEPRECATE_VARS
        if hasattr(manager, "_DEPRECATE_VARS")
        else manager.VariableManager._PLAY_HOSTS_DEPRECATED_TAG
    )
    variables = {**trusted(VARIABLES), "old": old.tag("former"), "strange": object}
    engine = TemplateEngine(DataLoader(), variables=variables)
    found = []
    for _ in range(2):
        try:
            value = engine.template(trusted(template) if marked else template)
        except Exception as error:  # noqa: BLE001 - it is what is compared
            # Which call exceeded the depth of the stack is chance.
            found.append(f"{type(error).__name__}: {error}".partition(" while calling")[0].partition(" in compa")[0])
        else:
            found.append(described(value))
    return [found, messages]


def described(value: Any) -> str:
    """Return a value with the types and tags of all that it consists of."""
    from ansible.module_utils._internal._datatag import AnsibleTagHelper  # noqa: PLC0415 - since 2.19

    tags = sorted(tag.__name__ for tag in AnsibleTagHelper.tag_types(value))
    content: Any = value
    if isinstance(value, dict):
        content = {described(key): described(each) for key, each in value.items()}
    elif isinstance(value, list | tuple):
        content = [described(each) for each in value]
    return f"{type(value).__name__}{tags}{content}"


@pytest.mark.lengthy
@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("marked", [True, False])
def test_a_template_has_the_value_and_the_messages_that_it_has_by_ansible_itself(
    template: str, *, marked: bool
) -> None:
    def ours() -> object:
        values.install()
        return rendered(template, marked=marked)

    assert seen(ours) == seen(lambda: rendered(template, marked=marked))


def test_the_use_of_a_deprecated_value_is_announced() -> None:
    def act() -> object:
        values.install()
        return rendered("{{ [old, text] | join(',') }}", marked=True)

    (_, messages) = seen(act)
    assert any("DEPRECATION" in message for message in messages), messages


@pytest.mark.skipif(versions.CORE < (2, 20), reason="before ansible-core 2.20 the copy of all variables is not marked")
def test_all_variables_have_the_marked_copy_of_their_present_value() -> None:
    def act() -> object:
        from ansible.vars import manager  # noqa: PLC0415 - in a fork

        theirs = manager._DEPRECATE_VARS
        values.install()
        ours = manager._DEPRECATE_VARS
        changed = ["a"]
        found = []
        for value in ("text", 7, True, None, 1.5, changed, {"a": changed}, trusted("{{ text }}")) * 2:
            found.append(described(ours.tag(value)) == described(theirs.tag(value)))
            changed.append("b")
        return [found, ours.tag("text") is ours.tag("text"), ours.tag(changed) is ours.tag(changed)]

    assert seen(act) == [[True] * 16, True, False]
