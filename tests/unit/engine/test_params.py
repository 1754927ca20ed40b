"""Variables of a run: names in snake case, and which of them are data or unsafe."""

from __future__ import annotations

import asyncio
import string
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.engine import extravars, params
from runner.core.engine.params import convert, is_large, snake_case
from runner.core.watches.spec_paths import SpecPath
from runner.core.watches.watch import Finalizer, Role
from runner.values.errors import TerminalError
from runner.values.objects import GVK
from tests.kit.watch_values import watch_value

PAIRS = [
    tuple(line.split("\t"))
    for line in Path(__file__).with_name("snake_case.tsv").read_text(encoding="utf-8").splitlines()
]
ASCII_KEYS = st.text(alphabet=string.ascii_letters + string.digits + "_- .", max_size=40)
CAUSE = {"reason": "changed", "details": ["spec.size"], "failures": 0}
VARIABLES = {
    *("ansible_operator_run", "ansible_operator_meta"),
    *("_cache_example_com_memcached", "_cache_example_com_memcached_spec"),
}
"""Those of each run."""
ROLE = Role("memcached", Path("/opt/ansible/roles/memcached"))


def memcached(spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "cache.example.com/v1alpha1",
        "kind": "Memcached",
        "metadata": {"name": "sample", "namespace": "default"},
        "spec": spec,
    }


def build(spec: Any, *, finalizing: bool = False, **watch: Any) -> params.Parameters:
    """Build the parameters of a run for this spec and these fields of the watch."""
    return params.build(memcached(spec), watch_value(content=ROLE, **watch), cause=CAUSE, finalizing=finalizing)


def build_except(spec: Any, *paths: str) -> params.Parameters:
    """Build parameters where keys at these paths are data."""
    return build(spec, snake_case_except=tuple(map(SpecPath.parse, paths)))


class TestSnakeCase:
    @pytest.mark.parametrize(("key", "expected"), PAIRS)
    def test_keys_of_the_table_are_converted_as_expected(self, key: str, expected: str) -> None:
        assert snake_case(key) == expected
        assert snake_case("") == snake_case("  ") == ""

    @given(ASCII_KEYS)
    def test_letters_and_digits_keep_their_order(self, key: str) -> None:
        assert snake_case(key).replace("_", "") == "".join(key.lower().replace("_", "").replace("-", "").split(" "))

    @given(st.text())
    def test_no_key_at_all_raises(self, key: str) -> None:
        assert isinstance(snake_case(key), str)


class TestBuild:
    def test_a_spec_becomes_variables_in_snake_case_at_every_depth(self) -> None:
        made = build({"replicaCount": 3, "extraMap": {"someKey": [{"podIPs": 1}, [{"baseURLPath": 2}]]}}).extra_vars
        assert made["replica_count"] == 3
        assert made["extra_map"] == {"some_key": [{"pod_ips": 1}, [{"base_url_path": 2}]]}

    def test_the_object_and_its_spec_come_as_written(self) -> None:
        made = build({"replicaCount": 3}).extra_vars
        assert made["_cache_example_com_memcached"] == memcached({"replicaCount": 3})
        assert made["_cache_example_com_memcached_spec"] == {"replicaCount": 3}
        assert made["ansible_operator_meta"] == {"name": "sample", "namespace": "default"}

    @pytest.mark.parametrize("spec", [{}, {"ansibleOperatorRun": 7}], ids=["absent", "given"])
    def test_no_field_of_the_spec_replaces_the_reason_for_the_run(self, spec: dict[str, Any]) -> None:
        made = build(spec)
        assert made.extra_vars["ansible_operator_run"] == CAUSE
        assert "ansible_operator_run" in made.unsafe_keys

    def test_keys_are_not_converted_if_the_watch_disables_it(self) -> None:
        made = build({"replicaCount": {"podIPs": 1}}, snake_case_parameters=False).extra_vars
        assert made["replicaCount"] == {"podIPs": 1}
        assert "replica_count" not in made

    def test_keys_that_are_data_stay_and_the_way_to_them_is_converted(self) -> None:
        written = {key: {"innerKey": number} for number, (key, _) in enumerate(PAIRS)}
        snaked = {snake: {"inner_key": number} for number, (_, snake) in enumerate(PAIRS)}
        made = build_except({"podConfig": {"envVars": written, "otherMap": written}}, "spec.podConfig.envVars")
        assert made.extra_vars["pod_config"] == {"env_vars": written, "other_map": snaked}
        assert all(collision.path == "spec.podConfig.otherMap" for collision in made.collisions)

    @pytest.mark.parametrize("path", ["spec.nodePools[*].nodeLabels", "spec.nodePools.nodeLabels"])
    def test_keys_that_are_data_stay_in_each_item_of_a_list(self, path: str) -> None:
        made = build_except({"nodePools": [{"nodeLabels": {"podIPs": 1}, "maxSize": 2}, {"maxSize": 3}, "text"]}, path)
        assert made.extra_vars["node_pools"] == [{"node_labels": {"podIPs": 1}, "max_size": 2}, {"max_size": 3}, "text"]

    def test_keys_of_data_are_not_converted_below_a_path_with_a_wildcard(self) -> None:
        spec = {"byTeam": {"teamA": {"envVars": {"aB": 1}, "aB": 1}, "a.B": {"cD": {"eF": 1}}}}
        made = build_except(spec, "spec.byTeam.*.envVars", 'spec.byTeam["a.B"]')
        assert made.extra_vars["by_team"] == {
            "team_a": {"env_vars": {"aB": 1}, snake_case("aB"): 1},
            snake_case("a.B"): {"cD": {"eF": 1}},
        }

    def test_a_path_to_the_spec_itself_leaves_all_keys_as_they_are_and_reserved_names_are_found(self) -> None:
        made = build_except({"someKey": 1, "ansible_host": "x", "ansibleHost": "data"}, "spec")
        assert (made.extra_vars["someKey"], "some_key" in made.extra_vars) == (1, False)
        assert (made.reserved, made.extra_vars["ansibleHost"]) == (("ansible_host",), "data")

    @pytest.mark.parametrize(
        "key",
        [
            *("ansibleConnection", "ansible_connection", "ansibleSshCommonArgs", "ansibleShellExecutable"),
            *("ansible-become-exe", "ansiblePythonInterpreter", "ansible_facts", "ansibleOperatorRun"),
            *("discoveredInterpreterPython", "_ansible_socket", "hostvars", "groupNames", "environment", "omit"),
            *("vars", "rolePath", "playbookDir", "inventoryHostname", "sopsBinary"),
        ],
    )
    def test_variables_that_ansible_interprets_are_not_taken_from_the_spec(self, key: str) -> None:
        made = build({key: "x", "size": 1})
        assert made.reserved == (snake_case(key),)
        assert made.extra_vars.get(snake_case(key)) in (None, CAUSE)
        assert made.extra_vars["size"] == 1
        assert made.extra_vars["_cache_example_com_memcached_spec"] == {key: "x", "size": 1}

    @pytest.mark.parametrize("key", ["ansible", "myAnsibleUser", "role", "group", "host", "port", "become"])
    def test_names_that_ansible_does_not_interpret_are_passed_on(self, key: str) -> None:
        made = build({key: "x"})
        assert (made.reserved, made.extra_vars[snake_case(key)]) == ((), "x")

    def test_a_watch_can_allow_single_variables(self) -> None:
        made = build({"ansibleUser": "a", "ansibleHost": "b"}, allow_ansible_variables=frozenset({"ansible_user"}))
        assert (made.reserved, made.extra_vars["ansible_user"]) == (("ansible_host",), "a")

    @pytest.mark.parametrize("spec", [None, [], "text", 3, True])
    def test_a_spec_that_is_not_a_map_counts_as_empty(self, spec: Any) -> None:
        made = build(spec).extra_vars
        assert made.keys() == VARIABLES
        assert made["_cache_example_com_memcached_spec"] == {}

    def test_an_object_without_spec_runs_with_an_empty_one(self) -> None:
        obj = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "n"}, "data": {"k": "dg=="}}
        made = params.build(obj, watch_value(gvk=GVK("", "v1", "Secret")), cause=CAUSE, finalizing=False).extra_vars
        assert made == {
            "ansible_operator_run": CAUSE,
            "ansible_operator_meta": {"name": "s", "namespace": "n"},
            "__secret": obj,
            "__secret_spec": {},
        }

    @pytest.mark.parametrize(("finalizing", "state"), [(False, "present"), (True, "absent")])
    def test_variables_of_the_watch_win_over_the_spec_and_those_of_a_finalizer_over_both(
        self, *, finalizing: bool, state: str
    ) -> None:
        spec = {"size": 1, "state": "odd", "ansibleOperatorMeta": "from spec", "other": 2}
        finalizer = Finalizer("example.com/f", ROLE, {"state": "absent"}, None)
        of_watch = {"size": "{{ other }}", "state": "present"}
        made = build(spec, finalizing=finalizing, vars=of_watch, finalizer=finalizer)
        assert (made.extra_vars["size"], made.extra_vars["state"]) == ("{{ other }}", state)
        assert made.extra_vars["ansible_operator_meta"] == {"name": "sample", "namespace": "default"}
        assert made.unsafe_keys == {"other", *VARIABLES}, "only values of the watch are templates"

    def test_only_text_of_others_than_writers_of_the_spec_is_unsafe_if_the_watch_disables_it(self) -> None:
        made = params.build(
            {**memcached({"a": "{{ b }}"}), "status": {"a": "{{ c }}"}},
            watch_value(content=ROLE, mark_unsafe=False),
            cause=CAUSE,
            finalizing=False,
        )
        assert made.unsafe_keys == {"ansible_operator_run", "ansible_operator_meta"}
        whole = made.extra_vars["_cache_example_com_memcached"]
        assert whole["status"] == extravars.Foreign({"a": "{{ c }}"})
        assert whole["metadata"]["name"] == extravars.Foreign("sample")
        assert whole["spec"] == {"a": "{{ b }}"}

    def test_keys_that_fall_together_are_named_and_the_last_wins(self) -> None:
        made = build({"fooBar": 1, "foo_bar": 2, "list": [{"aKey": 1, "a-key": 2}]})
        assert made.extra_vars["foo_bar"] == 2
        assert [str(collision) for collision in made.collisions] == [
            "spec: 'fooBar' and 'foo_bar' both become 'foo_bar'; 'foo_bar' is used",
            "spec.list[0]: 'aKey' and 'a-key' both become 'a_key'; 'a-key' is used",
        ]

    def test_only_the_first_of_thousands_of_collisions_are_named_and_long_keys_are_cut(self) -> None:
        many = {name: 1 for number in range(1000) for name in (f"fooBar{number}", f"foo_bar{number}")}
        first, *others = build({"x" * 1000: many}).collisions
        assert len(others) == 19
        long = f"spec.{'x' * 100}…"
        assert str(first) == f"{long}: 'fooBar0' and 'foo_bar0' both become 'foo_bar0'; 'foo_bar0' is used"

    @pytest.mark.lengthy
    def test_a_spec_of_reserved_names_takes_time_in_proportion_to_their_number(self) -> None:
        spec = {f"ansible_{number}": None for number in range(60_000)}
        began = time.process_time()
        made = build(spec)
        assert time.process_time() - began < 5  # 20 s if each name is compared with each other
        assert len(made.reserved) == 60_000
        assert not spec.keys() & made.extra_vars.keys()

    @pytest.mark.lengthy
    def test_a_long_key_is_not_repeated_for_each_value_below_it(self) -> None:
        spec = {"x" * 100_000: {f"k{number}": [None] for number in range(5_000)}}
        tracemalloc.start()
        try:
            build(spec)
            assert params.has_template(spec) is None
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 50 << 20

    def test_a_spec_that_nests_too_deep_is_refused_until_it_changes(self) -> None:
        spec: Any = {}
        for _ in range(20000):
            spec = {"aB": spec}
        with pytest.raises(TerminalError, match=r"Memcached default/sample nests too deep"):
            build(spec)


class TestHasTemplate:
    @pytest.mark.parametrize(
        ("spec", "path"),
        [
            ({"a": 1, "b": ["x", {"c": "{{ d }}"}]}, "spec.b[1].c"),
            ({"a": "{% if x %}"}, "spec.a"),
            ({"a": "x {# comment"}, "spec.a"),
            ({"a": {"{{ key }}": 1}}, "spec.a.{{ key }}"),
            ({"first": {"x": "{{ 1 }}"}, "second": "{{ 2 }}"}, "spec.first.x"),
            ({"a": "{ { } }", "b": None, "c": [1, True]}, None),
            (None, None),
        ],
    )
    def test_the_first_template_is_found(self, spec: Any, path: str | None) -> None:
        assert params.has_template(spec) == path


async def test_large_objects_are_converted_one_at_a_time_and_do_not_delay_small_ones() -> None:
    may_end, running, most = threading.Event(), 0, 0

    def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        may_end.wait()
        running -= 1

    large = [asyncio.create_task(convert(work, large=True)) for _ in range(3)]
    assert await convert(lambda: "small", large=False) == "small"
    may_end.set()
    await asyncio.gather(*large)
    assert most == 1


def test_an_object_is_large_by_the_size_of_its_json() -> None:
    assert not is_large({"spec": {"a": 1}})
    assert is_large({"spec": {"a": [{}] * 30_000}})
