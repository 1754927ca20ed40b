"""Objects in files, as `plan -f` reads and tries them; and what Kubernetes deletes with an object."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from runner.core.kube.client import Client, PatchType
from runner.core.kube.discovery import ApiResource
from runner.sdk.preview import deletion, selection
from runner.sdk.preview.deletion import Owned
from runner.values.errors import ConfigError, NotFoundError, OperatorError
from runner.values.objects import GVK, LAST_APPLIED, Object, ObjectKey
from tests.kit.wait import patience
from tests.kit.watch_values import watch_value

SHOP = GVK("shop.example.com", "v1", "Shop")
RESOURCE = ApiResource(SHOP, "shops", namespaced=True, verbs=frozenset(), subresources=frozenset())
KEY = ObjectKey("town", "corner")
OBJECT = "{apiVersion: shop.example.com/v1, kind: Shop, metadata: {name: %s}}\n"
OTHER = "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}\n"


def test_files_folders_lists_and_standard_input_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.yaml").write_text(f"# none\n---\n{OBJECT % 'one'}---\n{OTHER}")
    two = {"apiVersion": "shop.example.com/v1", "kind": "Shop", "metadata": {"name": "two"}}
    (tmp_path / "b.json").write_text(json.dumps({"kind": "List", "items": [{"kind": "Pod"}, two]}))
    (tmp_path / "c.txt").write_text("not read")
    monkeypatch.setattr(sys, "stdin", io.StringIO(OBJECT % "three"))
    found, others = selection.given([str(tmp_path), "-"], [watch_value(gvk=SHOP)])
    assert [(each.place.removeprefix(f"{tmp_path}/"), each.obj["metadata"]["name"]) for each in found] == [
        ("a.yaml:3", "one"),
        ("b.json:1", "two"),
        ("standard input:1", "three"),
    ]
    assert others == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (OTHER, r"no object in \S+ is of a watched kind: Shop \(shop.example.com/v1\)"),
        (OBJECT % "", r"\S+:1: the object has no metadata.name"),
        (OBJECT % "12", r"\S+:1: name and namespace in metadata must be text; write them in quotes"),
        (OBJECT % "a, namespace: [b]", r"\S+:1: name and namespace in metadata must be text; write them in quotes"),
        ("text\n", r"\S+:1: not an object"),
        ("a: [\n", r"\S+: invalid YAML"),
    ],
)
def test_a_file_without_a_valid_object_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        selection.given([str(tmp_path / "a.yaml")], [watch_value(gvk=SHOP)])
    with pytest.raises(ConfigError, match="file not found"):
        selection.given([str(tmp_path / "b.yaml")], [watch_value(gvk=SHOP)])


class Server:
    """An API server with at most one object. It records dry runs."""

    def __init__(self, obj: Object | None) -> None:
        self.obj = obj
        self.writes: list[tuple[Any, ...]] = []

    async def get(self, resource: ApiResource, key: ObjectKey) -> Object:
        assert (resource, key) == (RESOURCE, KEY)
        if self.obj is None:
            raise NotFoundError("no", status=404)
        return self.obj

    async def request(self, method: str, path: str, *, params: Any, body: Object) -> Object:
        self.writes.append((method, path, params, body))
        return {"created": True}

    async def patch(
        self, resource: ApiResource, key: ObjectKey, body: object, *, content_type: PatchType, params: Any
    ) -> Object:
        self.writes.append((content_type, resource, key, params, body))
        return {"patched": True}


def tried(server: Server, obj: Object) -> tuple[Object | None, Object]:
    return asyncio.run(selection.tried(cast("Client", server), RESOURCE, KEY, obj))


def test_a_new_object_is_created_by_a_strict_dry_run() -> None:
    server, obj = Server(None), {"metadata": {"name": "corner"}, "spec": {"size": 1}}
    assert tried(server, obj) == (None, {"created": True})
    wanted = {"metadata": {"name": "corner", "namespace": "town"}, "spec": {"size": 1}}
    dry = {"dryRun": "All", "fieldValidation": "Strict"}
    assert server.writes == [("POST", "/apis/shop.example.com/v1/namespaces/town/shops", dry, wanted)]


def test_fields_that_were_applied_before_and_are_missing_now_are_removed() -> None:
    applied = {"metadata": {"name": "corner"}, "spec": {"size": 1, "door": {"a": 1, "b": 2}, "old": {}}}
    before = {"metadata": {"annotations": {LAST_APPLIED: json.dumps(applied)}}, "spec": {"size": 5, "by": "others"}}
    server = Server(before)
    wanted = {"metadata": {"name": "corner"}, "spec": {"size": 2, "door": {"a": 1}}}
    assert tried(server, wanted) == (before, {"patched": True})
    (((media, _, key, params, patch)),) = server.writes
    assert (media, key, params["dryRun"]) == (PatchType.MERGE, KEY, "All")
    assert patch == {
        "metadata": {"name": "corner", "namespace": "town", "annotations": {}},
        "spec": {"size": 2, "door": {"a": 1, "b": None}, "old": None},
    }


@pytest.mark.parametrize("given", [{}, {"annotations": None}, {"annotations": {}}])
@pytest.mark.parametrize("applied", [{}, {"mine": "x"}])
def test_annotations_that_the_file_never_had_are_not_removed(applied: dict[str, str], given: dict[str, Any]) -> None:
    last = json.dumps({"metadata": {"name": "corner", "annotations": applied}})
    server = Server({"metadata": {"annotations": {LAST_APPLIED: last, "team": "x", **applied}}})
    tried(server, {"metadata": {"name": "corner", **given}})
    assert server.writes[0][-1]["metadata"]["annotations"] == dict.fromkeys(applied)


@pytest.mark.parametrize("last", ["words", "[1]", "null", "7", "[" * 100_000])
def test_an_invalid_annotation_of_the_object_that_was_applied_is_an_error_with_advice(last: str) -> None:
    server = Server({"metadata": {"annotations": {LAST_APPLIED: last}}})
    with pytest.raises(OperatorError, match=f"annotation {LAST_APPLIED} is no object in JSON; remove"):
        tried(server, {"metadata": {"name": "corner"}})
    assert server.writes == []


def test_kubernetes_deletes_objects_all_of_whose_owners_are_deleted() -> None:
    def owned(name: str, *owners: str) -> Owned:
        return Owned(SHOP, ObjectKey("town", name), name, frozenset(owners))

    objects = [owned("below", "first"), owned("first", "root"), owned("shared", "root", "other"), owned("loop", "loop")]
    both = owned("both", "first", "below")
    assert [each.uid for each in deletion.collected("root", [*objects, both])] == ["first", "below", "both"]


@pytest.mark.lengthy
def test_a_reader_that_ends_early_causes_no_message() -> None:
    """As `| head -1`. The report is larger than the buffer of a pipe."""
    program = (
        "from runner.values.objects import *\n"
        "from runner.features.plan.changes import *; from runner.sdk.preview import cli\n"
        "ref = lambda n: ObjectRef(GVK('a', 'v1', 'Shop'), ObjectKey('town', f's{n}'))\n"
        "cli.show(Plan([ResourcePlan(ref(n), 'failed', message=str(n)) for n in range(20000)]), 'text')\n"
        "raise SystemExit(3)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "Shop town/s0: the plan failed\n"
        child.stdout.close()
        assert (child.stderr.read(), child.wait(patience())) == ("", 3)
