"""Strings from the object are never templated, wherever a run sees them; strings from the watch still are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runner.core.engine import params
from runner.core.engine.job import Outcome
from runner.core.watches.watch import Finalizer, Role, Watch
from tests.kit.watch_values import watch_value

if TYPE_CHECKING:
    from tests.integration.engine.runs import Ran, Runs

pytestmark = pytest.mark.asyncio(loop_scope="session")

TEMPLATE = "{{ 1000 + 1 }}"
CAUSE = {"reason": "created", "details": [], "failures": 0}
SPEC: dict[str, Any] = {
    "text": TEMPLATE,
    "halves": ["{", "{ 1000 + 1 }}"],
    "nested": [[TEMPLATE, {"inner": TEMPLATE}]],
    "aMap": {"{{1000+2}}": 5, "block": "{% if true %}1001{% endif %}", "comment": "{# x #}1001"},
    "keysOnly": {"{{1000+3}}": 1},
    "odd": {
        "vault": "!vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6162",
        "unsafe": "!unsafe x",
        "yes": "yes",
        "number": "12",
        "12": "null",
        "date": "2026-11-21",
        "empty": "",
        "none": None,
        "merge": "<<",
        "<<": "=",
        "float": 1e22,
        "big": 2**62,
        "true": True,
        "unicode": "naïve 😀 \u2028 \x85 \x7f \ufeff",
        "quotes": 'it\'s "quoted" \\ # : - ? & * % @ `\n\ttab',
        "list": [],
        "map": {},
    },
}
ANNOTATION = {"example.com/note": TEMPLATE}

ROLE = """
- name: keep
  set_fact: {copied: "{{ text }}", copied_map: "{{ a_map }}", joined: "{{ halves[0] ~ halves[1] }}"}
- name: seen
  set_fact:
    seen:
      text: "{{ text }}"
      copied: "{{ copied }}"
      copied_map: "{{ copied_map }}"
      joined: "{{ joined }}"
      within: "before {{ text }} after"
      object: "{{ _cache_example_com_memcached.spec.text }}"
      annotation: "{{ _cache_example_com_memcached.metadata.annotations }}"
      as_written: "{{ _cache_example_com_memcached_spec }}"
      lookup: "{{ lookup('vars', 'text') }}"
      lookup_object: "{{ lookup('vars', '_cache_example_com_memcached').spec.nested }}"
      hostvars: "{{ hostvars['localhost']['text'] }}"
      hostvars_map: "{{ hostvars.localhost.a_map }}"
      template: "{{ lookup('template', 'seen.j2') }}"
      task_var: "{{ task_var }}"
      default: "{{ undefined_variable | default(text) }}"
      combined: "{{ a_map | combine({'more': text}) }}"
      items: "{{ keys_only | dict2items }}"
      json: "{{ a_map | to_json | from_json }}"
      odd: "{{ odd }}"
      types: "{{ odd.values() | map('type_debug') | list }}"
      trusted: "{{ of_watch }}"
      trusted_list: "{{ of_watch_list[0].inner }}"
      of_finalizer: "{{ of_finalizer }}"
  vars: {task_var: "{{ text }}"}
- name: looped
  set_fact: {loop_seen: "{{ loop_seen | default([]) + [item] }}"}
  loop: "{{ nested[0] + [text] + (keys_only.keys() | list) + (_cache_example_com_memcached_spec.aMap.keys() | list) }}"
- name: looped over maps
  set_fact: {dict_seen: "{{ dict_seen | default([]) + [item.key, item.value] }}"}
  with_dict: "{{ keys_only | combine({'a': text}) }}"
- name: shell
  command: "{{ ansible_playbook_python }} -c 'import sys; print(sys.argv[1:])' {{ text | quote }} {{ copied | quote }}"
  register: shell
- name: told
  debug: {var: text}
- name: write
  copy: {content: "{{ {'seen': seen, 'loop': loop_seen, 'dict': dict_seen, 'shell': shell.stdout} | to_json }}", dest: "{{ out }}"}
"""  # noqa: E501 - a template is one line


def watch(role: Role, *, mark_unsafe: bool) -> Watch:
    return watch_value(
        content=role,
        vars={"of_watch": "{{ 2000 + 1 }}", "of_watch_list": [{"inner": "{{ of_watch }}"}]},
        finalizer=Finalizer(
            "example.com/f", role, {"of_finalizer": "{{ of_watch }}", "out": "{{ lookup('env', 'OUT') }}"}, None
        ),
        mark_unsafe=mark_unsafe,
    )


def memcached(spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "cache.example.com/v1alpha1",
        "kind": "Memcached",
        "metadata": {"name": "sample", "namespace": "default", "annotations": ANNOTATION},
        "spec": spec,
    }


async def run(runs: Runs, role: Role, made: params.Parameters, **environment: str) -> Ran:
    """Run a role with variables; it must succeed."""
    variables: dict[str, Any] = {"extra_vars": made.extra_vars, "unsafe_keys": made.unsafe_keys}
    ran = await runs.run(role, **variables, environment={"ANSIBLE_GATHERING": "explicit", **environment})
    assert ran.result.outcome is Outcome.SUCCEEDED, ran.result
    return ran


async def test_no_string_of_the_object_is_templated_anywhere(runs: Runs, tmp_path: Path) -> None:
    role = runs.role("memcached", {"tasks/main.yml": ROLE, "templates/seen.j2": "{{ text }} {{ nested[0][1].inner }}"})
    made = params.build(memcached(SPEC), watch(role, mark_unsafe=True), cause=CAUSE, finalizing=True)
    out = tmp_path / "out.json"

    await run(runs, role, made, OUT=str(out))

    written = json.loads(out.read_text(encoding="utf-8"))
    seen = written["seen"]
    for name in ("text", "copied", "object", "lookup", "hostvars", "task_var", "default"):
        assert seen[name] == TEMPLATE, name
    assert seen["joined"] == TEMPLATE
    assert seen["within"] == f"before {TEMPLATE} after"
    assert seen["template"] == f"{TEMPLATE} {TEMPLATE}"
    for name in ("copied_map", "hostvars_map", "json"):
        assert seen[name] == SPEC["aMap"], name
    assert seen["combined"] == {**SPEC["aMap"], "more": TEMPLATE}
    assert seen["items"] == [{"key": "{{1000+3}}", "value": 1}]
    assert seen["annotation"] == ANNOTATION
    assert seen["lookup_object"] == SPEC["nested"]
    assert seen["as_written"] == SPEC
    assert seen["odd"] == SPEC["odd"]
    assert written["loop"] == [*SPEC["nested"][0], TEMPLATE, "{{1000+3}}", *SPEC["aMap"]]
    assert written["dict"] == ["{{1000+3}}", 1, "a", TEMPLATE]
    assert written["shell"] == str([TEMPLATE, TEMPLATE])
    assert "1001" not in out.read_text(encoding="utf-8").replace("%}1001{%", "").replace("#}1001", "")
    assert str(seen["trusted"]) == str(seen["trusted_list"]) == str(seen["of_finalizer"]) == "2001"


async def test_a_spec_of_200_kib_is_complete_and_templates_are_evaluated_if_enabled(
    runs: Runs,
) -> None:
    spec = {
        "items": [{"fieldName": f"value {number}", "text": "x" * 20, f"key{number}": number} for number in range(3000)],
        "evaluated": TEMPLATE,
    }
    role = runs.role(
        "memcached",
        {
            "tasks/main.yml": """
- name: seen
  debug:
    msg:
      evaluated: "{{ evaluated }}"
      length: "{{ vars_items | length }}"
      last: "{{ vars_items[2999] }}"
      as_written: "{{ _cache_example_com_memcached_spec['items'][2999].fieldName }}"
  vars: {vars_items: "{{ lookup('vars', 'items') }}"}
""",
        },
    )
    made = params.build(memcached(spec), watch(role, mark_unsafe=False), cause=CAUSE, finalizing=False)
    assert len(json.dumps(spec)) > 200 << 10

    seen = (await run(runs, role, made)).said("seen")
    assert str(seen["evaluated"]) == "1001"
    assert int(seen["length"]) == 3000
    assert seen["last"] == {"field_name": "value 2999", "text": "x" * 20, "key2999": 2999}
    assert seen["as_written"] == "value 2999"


async def test_text_of_outsiders_is_no_template_even_if_those_of_the_spec_are(runs: Runs) -> None:
    details = [f"ConfigMap a/b: data.{TEMPLATE} (by {TEMPLATE})"]
    cause = {"reason": "dependent changed", "details": details, "failures": 0}
    obj = memcached({"evaluated": TEMPLATE}) | {"status": {"conditions": [{"type": "Ready", "message": TEMPLATE}]}}
    obj["metadata"]["managedFields"] = [{"manager": TEMPLATE}]
    role = runs.role(
        "memcached",
        {
            "tasks/main.yml": """
- name: seen
  debug:
    msg:
      evaluated: "{{ evaluated }}"
      of_object: "{{ _cache_example_com_memcached.spec.evaluated }}"
      reason: "because {{ ansible_operator_run.reason }}"
      details: "{{ ansible_operator_run.details }}"
      status: "{{ _cache_example_com_memcached.status }}"
      manager: "{{ _cache_example_com_memcached.metadata.managedFields[0].manager }}"
""",
        },
    )
    made = params.build(obj, watch(role, mark_unsafe=False), cause=cause, finalizing=False)

    seen = (await run(runs, role, made)).said("seen")
    assert str(seen["evaluated"]) == str(seen["of_object"]) == "1001"
    assert seen["reason"] == "because dependent changed"
    assert seen["details"] == details
    assert seen["status"] == obj["status"]
    assert seen["manager"] == TEMPLATE
