"""Compact uses: the same objects count as used, or more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runner.features.prune.uses import MOST_DIGESTS, UseDigests, UsedObjects
from runner.values.objects import ObjectKey

_KEYS = st.builds(ObjectKey, st.sampled_from(["", "a", "b"]), st.sampled_from(["x", "y", "sh.helm.release.v1.x.v1"]))
_PLURALS = st.sampled_from(["configmaps", "secrets", "pods"])
_OBJECTS = st.lists(st.tuples(_PLURALS, _KEYS), max_size=6)


@given(_OBJECTS, st.lists(st.tuples(_PLURALS, st.sampled_from(["", "a"])), max_size=2), _PLURALS, _KEYS)
def test_digests_contain_what_a_run_used(
    named: list[tuple[str, ObjectKey]], kinds: list[tuple[str, str]], plural: str, key: ObjectKey
) -> None:
    used = UsedObjects()
    for each in named:
        used.name(*each)
    for kind in kinds:
        used.all_of(*kind)
    digests = UseDigests.of(used)
    assert digests.has(plural, key) == used.has(plural, key)
    release = ObjectKey(key.namespace, "x")
    assert digests.has_release(release) == used.has_release(release)


def test_the_union_contains_the_uses_of_both() -> None:
    one, two = UsedObjects(), UsedObjects()
    one.name("configmaps", ObjectKey("a", "x"))
    two.all_of("pods", "a")
    union = UseDigests.of(one).union(UseDigests.of(two))
    assert union.has("configmaps", ObjectKey("a", "x"))
    assert union.has("pods", ObjectKey("a", "any"))
    assert not union.has("pods", ObjectKey("b", "any"))


def test_beyond_the_limit_all_objects_of_the_kinds_with_the_most_objects_count_as_used() -> None:
    used = UsedObjects()
    for number in range(MOST_DIGESTS):
        used.name("configmaps", ObjectKey("a", str(number)))
    used.name("secrets", ObjectKey("a", "x"))
    found = UseDigests.of(used)
    assert len(found.digests) == 1
    assert found.has("configmaps", ObjectKey("a", "unnamed"))
    assert found.has("secrets", ObjectKey("a", "x"))
    assert not found.has("configmaps", ObjectKey("b", "0"))
    assert not found.has("secrets", ObjectKey("a", "unnamed"))
