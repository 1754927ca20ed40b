from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from runner.core.kube import decode
from runner.core.kube.cache import Cache
from runner.core.kube.watch_events import Applied
from runner.values.objects import ObjectKey


def nested(levels: int, *, lists: bool = False) -> bytes:
    opening, closing = (b"[", b"]") if lists else (b'{"a":', b"}")
    return opening * levels + b'"x"' + closing * levels


def resource(spec: bytes) -> bytes:
    return b'{"metadata": {"name": "n", "namespace": "s", "uid": "u", "resourceVersion": "1"}, "spec": %s}' % spec


def is_cut(obj: Any) -> bool:
    return "nests deeper" in decode.excess(orjson.dumps(obj))


def depth(value: Any) -> int:
    found = 0
    layer = [value]
    while layer := [
        item
        for each in layer
        if isinstance(each, dict | list)
        for item in (each.values() if isinstance(each, dict) else each)
    ]:
        found += 1
    return found


@pytest.mark.parametrize("levels", [1, 50, decode.MAX_DEPTH - 1])
def test_objects_within_the_limit_are_read_whole(levels: int) -> None:
    raw = resource(nested(levels))

    assert decode.loads(raw) == json.loads(raw)
    assert not is_cut(decode.loads(raw))


@pytest.mark.parametrize("levels", [300, 900, 1500, 10_000])
@pytest.mark.parametrize("lists", [True, False])
def test_deeper_objects_keep_their_metadata_and_can_be_cached(levels: int, *, lists: bool) -> None:
    obj = decode.loads(resource(nested(levels, lists=lists)))

    assert obj["metadata"]["uid"] == "u"
    assert depth(obj) <= decode.MAX_DEPTH
    assert is_cut(obj)
    cache = Cache()
    cache.apply("", Applied(obj))
    assert cache.get(ObjectKey("s", "n")) == obj


def test_the_summary_of_an_object_records_that_it_is_cut_until_it_is_flat_again() -> None:
    cache, key = Cache(), ObjectKey("s", "n")
    for spec, version, expected in (
        (nested(1500), b"1", True),
        (b'{"size": 1}', b"2", False),
        (nested(300), b"3", True),
    ):
        raw = resource(spec).replace(b'"resourceVersion": "1"', b'"resourceVersion": "%s"' % version)
        cache.apply("", Applied(decode.loads(raw)))
        summary = cache.summary(key)
        assert summary is not None
        assert bool(summary.excess) is expected


def test_a_deep_object_does_not_change_the_others_of_a_page() -> None:
    page = b'{"items": [%s, %s]}' % (resource(nested(1500)), resource(b'{"size": 1}'))

    deep, other = decode.loads(page)["items"]

    assert is_cut(deep)
    assert other["spec"] == {"size": 1}


def test_brackets_and_quotes_in_strings_are_not_levels() -> None:
    text = '"[{' * 2000
    raw = resource(b'{"text": %s, "deep": %s, "after": [1, {"b": "}"}]}' % (orjson.dumps(text), nested(1500)))

    found = decode.loads(raw)["spec"]

    assert (found["text"], found["after"]) == (text, [1, {"b": "}"}])


@pytest.mark.parametrize("raw", [b"", b"{", b"{]", b"[" * 3000, b'{"a": nope}'])
def test_other_text_is_still_an_error(raw: bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        decode.loads(raw)


def test_an_object_with_more_values_than_a_run_receives_is_cached_and_reports_it() -> None:
    text = orjson.dumps({"spec": {"a": [[]] * decode.MOST_VALUES}})
    assert decode.excess(text) == "the object has more than 100000 values, so a run cannot receive it; divide it"
    assert decode.excess(orjson.dumps({"spec": {"a": "[,{" * decode.MOST_VALUES}})) == ""
