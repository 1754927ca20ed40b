"""What is noted of what a run sees, for watches that skip what has not changed."""

from __future__ import annotations

import orjson

from runner.features.unchanged.requests import READ_SET, ReadSet
from runner.values.digests import digest_of_answer
from runner.values.slots import EMPTY
from tests.unit.proxy.stage import Stage

PATH = "/api/v1/namespaces/ns/configmaps/settings"
SETTINGS = {"kind": "ConfigMap", "metadata": {"name": "settings", "resourceVersion": "5"}, "data": {"a": "1"}}


def looking(stage: Stage) -> ReadSet:
    """Record what the stage's run reads."""
    read_set = ReadSet()
    object.__setattr__(stage.run, "more", EMPTY.having(READ_SET, read_set))
    return read_set


async def test_a_read_is_recorded_with_its_path_and_its_answer_is_unchanged(stage: Stage) -> None:
    read_set = looking(stage)
    body = orjson.dumps(SETTINGS)
    listed = orjson.dumps({"kind": "ConfigMapList", "items": [SETTINGS]})
    stage.api.answers(stage.reply(body), stage.reply(listed), stage.reply(b"{}", "404 Not Found"))
    assert (await stage.get(PATH)).body == body
    await stage.get("/api/v1/namespaces/ns/configmaps?labelSelector=a%3Db")
    await stage.get("/api/v1/namespaces/ns/configmaps/other")
    assert {path: seen.digest for path, seen in read_set.reads.items()} == {
        PATH: digest_of_answer(SETTINGS),
        "/api/v1/namespaces/ns/configmaps?labelSelector=a%3Db": digest_of_answer({"items": [SETTINGS]}),
        "/api/v1/namespaces/ns/configmaps/other": digest_of_answer(None),
    }
    assert not read_set.unseen


async def test_a_read_that_cannot_be_compared_is_recorded_as_unseen(stage: Stage) -> None:
    read_set = looking(stage)
    stage.api.answers(stage.reply(orjson.dumps({"kind": "Table", "rows": []})))
    await stage.get(PATH)
    assert "configmaps" in read_set.unseen


async def test_watches_logs_and_errors_are_not_looked_into(stage: Stage) -> None:
    read_set = looking(stage)
    stage.api.answers(*(stage.reply(b"{}", status) for status in ("200 OK", "200 OK", "500 Oh")))
    await stage.get("/api/v1/namespaces/ns/configmaps?watch=1")
    await stage.get("/api/v1/namespaces/ns/pods/a/log")
    await stage.get(PATH)
    assert (read_set.reads, read_set.unseen) == ({}, "")


async def test_a_run_of_another_watch_leaves_none(stage: Stage) -> None:
    stage.api.answers(stage.reply(orjson.dumps(SETTINGS)))
    assert (await stage.get(PATH)).status == 200
    assert stage.run.more.get(READ_SET) is None
