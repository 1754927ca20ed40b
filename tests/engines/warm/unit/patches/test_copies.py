"""Deep copies of variables: equal to Ansible's own, with the same types, tags and shared parts."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest

from runner.engines.warm import versions
from runner.engines.warm.patches import copies
from tests.kit.forks import seen

TEXT = """
first: &shared [1, two, {three: 3.5, four: [x, y]}]
second: *shared
when: 2026-01-02
nested: {list: [{a: b}], text: "{{ first }}", empty: {}, none: null, yes: true}
"""


def load() -> Any:
    """Return variables as Ansible loads them from a file, with what filters and modules add."""
    from ansible.parsing.dataloader import DataLoader  # noqa: PLC0415 - in a fork
    from ansible.utils.unsafe_proxy import wrap_var  # noqa: PLC0415 - as above

    value = DataLoader().load(TEXT, file_name="/vars.yml")
    value["unsafe"] = wrap_var({"output": ["{{ text }}", b"bytes", 7]})
    value["plain"] = {"set": {1, 2}, "tuple": ("a", ["b"])}
    return value


def described(value: Any) -> Any:
    """Return a value's types, and what Ansible attaches to it."""
    attached = str(getattr(value, "_ansible_tags_mapping", None) or getattr(value, "ansible_pos", ""))
    if isinstance(value, dict):
        return [type(value).__name__, attached, [[described(key), described(each)] for key, each in value.items()]]
    if isinstance(value, list | tuple):
        return [type(value).__name__, attached, [described(each) for each in value]]
    return [type(value).__name__, attached, repr(value)]


def test_a_copy_has_the_values_types_and_tags_that_pythons_own_copy_has() -> None:
    def act() -> object:
        value = load()
        theirs = copy.deepcopy(value)
        copies.install()
        ours = copy.deepcopy(value)
        return [described(ours) == described(theirs) == described(value), ours == value]

    assert seen(act) == [True, True]


def test_a_copy_shares_no_container_and_keeps_what_is_shared_inside() -> None:
    def act() -> object:
        copies.install()
        value = load()
        ours = copy.deepcopy(value)
        ours["nested"]["list"][0]["a"] = "changed"
        ours["first"][2]["four"].append("z")
        ours["plain"]["tuple"][1].append("c")
        itself: dict[str, Any] = {}
        itself["itself"] = itself
        copied = copy.deepcopy(itself)
        return [
            value["nested"]["list"][0]["a"],
            value["first"][2]["four"],
            value["plain"]["tuple"][1],
            ours["first"] is ours["second"],
            copied["itself"] is copied and copied is not itself,
        ]

    assert seen(act) == ["b", ["x", "y"], ["b"], True, True]


@pytest.mark.lengthy
@pytest.mark.skipif(not versions.TAGGED, reason="ansible-core before 2.19 does not search the stack")
def test_the_caller_of_a_deprecated_method_is_found_as_by_ansible() -> None:
    def act() -> object:
        from ansible.module_utils._internal import _stack  # noqa: PLC0415 - since 2.19

        def found() -> list[Any]:
            frame = _stack.caller_frame()
            assert frame is not None
            return [frame.filename, frame.function, frame.frame is sys._getframe()]

        def hidden() -> list[Any]:
            _skip_stackwalk = True
            return [[frame.filename, frame.function, frame.lineno] for frame in list(_stack.iter_stack())[1:]]

        theirs = [found(), hidden()]
        copies.install()
        return [theirs[0], [found(), hidden()] == theirs]

    (_, function, is_frame), same = seen(act)
    assert (function, is_frame, same) == ("found", True, True)
