"""What is stored before an object is created, and after the response."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runner.core.kube.discovery import ApiResource
from runner.features.prune.coverage import tasks_are_selected
from runner.features.prune.record import MOST_OBJECTS, Basis, CreationRecord, ObjectId
from runner.features.prune.run_objects import RunObjects
from runner.values.objects import GVK, ObjectKey

MAPS = ApiResource(
    GVK("", "v1", "ConfigMap"), "configmaps", namespaced=True, verbs=frozenset(), subresources=frozenset()
)
KEY = ObjectKey("ns", "a")
IDENT = ObjectId("", "configmaps", KEY)


class Storage:
    """Stores after a while, and counts."""

    def __init__(self) -> None:
        self.record = CreationRecord()
        self.stored: list[str] = []
        self.full = 0

    async def store(self) -> None:
        text = self.record.spell()
        await asyncio.sleep(0)
        self.stored.append(text)

    def note_full(self) -> None:
        self.full += 1


@pytest.fixture
def storage() -> Storage:
    return Storage()


@pytest.fixture
def objects(storage: Storage) -> RunObjects:
    return RunObjects(storage.record, Basis("1", "c"), storage.store, storage.note_full, lambda: 100.0)


async def test_an_intent_is_stored_before_the_creation_and_the_uid_in_memory_after_it(
    objects: RunObjects, storage: Storage
) -> None:
    await objects.intends(MAPS, KEY)
    (intent,) = CreationRecord.parse(storage.stored[-1]).intents()
    assert (intent.key, intent.intended, intent.uid) == (KEY, 100, "")
    objects.answered(MAPS, KEY, {"metadata": {"name": "a", "namespace": "ns", "uid": "u"}})
    assert storage.record.objects[IDENT].uid == "u"
    assert storage.record.intents() == []
    assert objects.created == {IDENT: 100.0}
    assert len(storage.stored) == 1


async def test_intents_of_parallel_requests_share_writes_and_none_is_missing(
    objects: RunObjects, storage: Storage
) -> None:
    keys = [ObjectKey("ns", str(number)) for number in range(20)]

    async def intend(key: ObjectKey) -> None:
        await objects.intends(MAPS, key)
        assert any(f'"name":"{key.name}"' in text for text in storage.stored)

    await asyncio.gather(*map(intend, keys))
    assert len(storage.stored) < len(keys)


async def test_a_refused_creation_leaves_no_entry(objects: RunObjects, storage: Storage) -> None:
    await objects.intends(MAPS, KEY)
    objects.answered(MAPS, KEY, None)
    assert (storage.record.objects, objects.created) == ({}, {})
    assert objects.used.has("configmaps", KEY)


async def test_an_object_whose_name_the_api_server_chose_is_recorded_with_its_response(
    objects: RunObjects, storage: Storage
) -> None:
    objects.answered(MAPS, ObjectKey("ns", ""), {"metadata": {"name": "a", "namespace": "ns", "uid": "u"}})
    assert storage.record.objects[IDENT].uid == "u"


async def test_a_creation_beyond_the_limit_is_reported_and_not_stored(objects: RunObjects, storage: Storage) -> None:
    for number in range(MOST_OBJECTS):
        storage.record.intend(MAPS.gvk, "configmaps", ObjectKey("ns", f"x{number}"), objects.basis, 1.0)
    await objects.intends(MAPS, KEY)
    assert (storage.full, storage.stored) == (1, [])
    objects.answered(MAPS, KEY, {"metadata": {"name": "a", "namespace": "ns", "uid": "u"}})
    assert (storage.full, IDENT in storage.record.objects) == (2, False)


@pytest.mark.parametrize(
    "arguments",
    [
        "--tags a",
        "--tags=a",
        "-t a",
        "-ta",
        "-vt a",
        "--skip-tags a",
        "--skip a",
        "--start-at-task 'a b'",
        "-l host",
        "--limit=host",
        "-C",
        "--check",
        "--tags 'unbalanced",
    ],
)
def test_arguments_that_select_tasks_or_hosts_are_found(arguments: str, tmp_path: Path) -> None:
    assert "--ansible-args contains -" in tasks_are_selected(arguments, {}, tmp_path)


@pytest.mark.parametrize(
    "arguments", ["", "-v", "-vvv", "--diff", "--forks 3", "-e a=b", "--extra-vars '{\"tags\": 1}'"]
)
def test_other_arguments_select_nothing(arguments: str, tmp_path: Path) -> None:
    assert tasks_are_selected(arguments, {"ANSIBLE_CONFIG": str(tmp_path / "none.cfg")}, tmp_path) == ""


@pytest.mark.parametrize("name", ["ANSIBLE_RUN_TAGS", "ANSIBLE_SKIP_TAGS"])
def test_variables_that_select_tags_are_found(name: str, tmp_path: Path) -> None:
    assert tasks_are_selected("", {name: "a"}, tmp_path) == f"environment variable {name}"


@pytest.mark.parametrize(
    ("text", "found"), [("[tags]\nskip = a\n", True), ("[tags]\n", False), ("[", False), ("", False)]
)
def test_a_configuration_that_selects_tags_is_found(text: str, *, found: bool, tmp_path: Path) -> None:
    config = tmp_path / "ansible.cfg"
    config.write_text(text)
    assert bool(tasks_are_selected("", {"ANSIBLE_CONFIG": str(config)}, tmp_path)) is found
