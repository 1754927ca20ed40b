"""Values that the API server chooses: placeholders in a plan, and their copies in other objects."""

from __future__ import annotations

import re
from typing import Any

import pytest

from runner.features.plan.requests.calls import ABSENT, read_digest
from runner.features.plan.trial.overlay import KindId, Overlay
from runner.features.plan.trial.stored import Place, UnknownValues, chosen, scalars
from runner.values.objects import GVK, RECORD_OF, Object, ObjectKey

SERVICE, MAP = GVK("", "v1", "Service"), GVK("", "v1", "ConfigMap")
KEY = ObjectKey("shop", "web")
NOTHING: frozenset[str | int] = frozenset()


def service(**spec: Any) -> Object:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}


CHOSEN = service(
    clusterIP="10.96.0.9",
    clusterIPs=["10.96.0.9", "fd00::9"],
    ports=[{"port": 80, "protocol": "TCP", "nodePort": 31000}],
)


def test_a_new_service_gets_the_same_placeholders_in_each_plan_and_loses_them_for_the_next_dry_run() -> None:
    one, two = UnknownValues(), UnknownValues()
    found = one.with_placeholders(SERVICE, KEY, CHOSEN, None, NOTHING)
    assert found == two.with_placeholders(SERVICE, KEY, CHOSEN, None, NOTHING)
    spec = found["spec"]
    assert spec["clusterIP"] == spec["clusterIPs"][0]
    assert spec["clusterIP"].startswith("198.1")
    assert spec["clusterIPs"][1].startswith("2001:db8::")
    assert spec["ports"][0]["nodePort"] > 60000
    assert one.without(SERVICE, KEY, found) == service(ports=[{"port": 80, "protocol": "TCP"}])
    assert one.with_placeholders(SERVICE, KEY, CHOSEN, None, NOTHING) == found


def test_fields_for_which_a_dry_run_chooses_the_same_value_get_their_own_placeholders() -> None:
    ports = [{"port": port, "protocol": "TCP", "nodePort": 30000} for port in (80, 443)]
    unknown = UnknownValues()
    found = unknown.with_placeholders(SERVICE, KEY, service(ports=ports), None, NOTHING)["spec"]["ports"]
    assert found[0]["nodePort"] != found[1]["nodePort"]
    assert [unknown.places[port["nodePort"]].path for port in found] == [
        "spec.ports[TCP/80].nodePort",
        "spec.ports[TCP/443].nodePort",
    ]


def test_values_in_the_request_and_those_that_the_object_had_stay() -> None:
    unknown = UnknownValues()
    assert unknown.with_placeholders(SERVICE, KEY, CHOSEN, CHOSEN, NOTHING) == CHOSEN
    given = frozenset(scalars({"spec": {"ports": [{"nodePort": 31000}], "clusterIPs": ["10.96.0.9", "fd00::9"]}}))
    assert unknown.with_placeholders(SERVICE, KEY, CHOSEN, None, given) == CHOSEN
    headless = service(clusterIP="None", clusterIPs=["None"])
    assert unknown.with_placeholders(SERVICE, KEY, headless, None, NOTHING) == headless
    assert unknown.places == {}


def test_a_node_port_that_is_new_in_an_existing_service_is_unknown_and_its_address_is_not() -> None:
    before = service(
        clusterIP="10.96.0.9", clusterIPs=["10.96.0.9", "fd00::9"], ports=[{"port": 80, "protocol": "TCP"}]
    )
    found = UnknownValues().with_placeholders(SERVICE, KEY, CHOSEN, before, NOTHING)
    assert found["spec"]["clusterIPs"] == ["10.96.0.9", "fd00::9"]
    assert found["spec"]["ports"][0]["nodePort"] > 60000


def test_a_text_is_searched_for_the_values_that_it_can_contain_and_not_for_those_of_all_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled, real = list[str](), re.compile

    def compiles(pattern: str) -> re.Pattern[str]:
        compiled.append(pattern)
        return real(pattern)

    monkeypatch.setattr(re, "compile", compiles)
    unknown = UnknownValues()
    for number in range(500):
        unknown.add(f"10.96.{number}.{number}", Place("Service.", ObjectKey("ns", f"s{number}"), "spec.clusterIPs[0]"))
        assert unknown.marked(f"at 10.96.{number}.{number}") == "at (known after apply)"
    assert max(map(len, compiled)) < 200


def test_only_services_get_placeholders() -> None:
    assert UnknownValues().with_placeholders(MAP, KEY, CHOSEN, None, NOTHING) is CHOSEN
    assert UnknownValues().without(MAP, KEY, CHOSEN) is CHOSEN


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("10.96.0.9", "(known after apply)"),
        ("http://10.96.0.9:80/x", "http://(known after apply):80/x"),
        ("at 10.96.0.9.", "at (known after apply)."),
        ("10.96.0.91", "10.96.0.91"),
        ("110.96.0.9", "110.96.0.9"),
        ("1.10.96.0.9", "1.10.96.0.9"),
        ("10.96.0.9.1", "10.96.0.9.1"),
        ("port 31000, 310001", "port (known after apply), 310001"),
        (31000, "(known after apply)"),
        (31001, 31001),
        (True, True),
        ({"a": [31000, None, "x"]}, {"a": ["(known after apply)", None, "x"]}),
    ],
)
def test_copies_are_recognized_within_texts_and_not_within_longer_values(text: Any, marked: Any) -> None:
    unknown = UnknownValues()
    for place, value in chosen(SERVICE, KEY, CHOSEN):
        unknown.add(value, place)
    assert unknown.marked(text) == marked


def test_uids_times_and_generated_names_are_chosen_by_the_api_server() -> None:
    meta = {"name": "job-x1", "generateName": "job-", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    found = {place.path: value for place, value in chosen(MAP, KEY, {"metadata": meta})}
    assert found == {
        "metadata.uid": "u",
        "metadata.creationTimestamp": "2026-01-01T00:00:00Z",
        "metadata.name": "job-x1",
    }
    assert [place.path for place, _ in chosen(MAP, KEY, {"metadata": {"name": "a"}})] == []


MAPS, SECRETS = KindId("", "configmaps"), KindId("", "secrets")


def obj(uid: str = "u", version: str = "1", **more: Any) -> Object:
    meta = {"name": "a", "namespace": "ns", "uid": uid, "resourceVersion": version, "generation": int(version)}
    return {"metadata": {**meta, **more.pop("metadata", {})}, **more}


def test_status_and_maintained_metadata_do_not_count() -> None:
    first = read_digest(obj(data={"k": 1}), MAPS, "owner")
    assert first == read_digest(obj(version="2", data={"k": 1}, status={"ready": 1}), MAPS, "owner")
    assert first != read_digest(obj(data={"k": 2}), MAPS, "owner")
    assert first != read_digest(obj("recreated", data={"k": 1}), MAPS, "owner")
    assert first != read_digest(obj(data={"k": 1}, metadata={"labels": {"a": "b"}}), MAPS, "owner")
    assert read_digest({}, MAPS, "owner") == ABSENT


def test_a_secret_counts_by_its_version() -> None:
    first = read_digest(obj(data={"password": "one"}), SECRETS, "owner")
    assert first == read_digest(obj(data={"password": "two"}), SECRETS, "owner")
    assert first != read_digest(obj(version="2", data={"password": "one"}), SECRETS, "owner")


def test_the_runs_own_object_and_its_plan_do_not_count() -> None:
    config_map = obj("plan", metadata={"annotations": {RECORD_OF: "owner"}})
    assert read_digest(obj("owner", spec={}), MAPS, "owner") == ""
    assert read_digest(config_map, MAPS, "owner") == ""
    alone = read_digest({"items": [obj()]}, MAPS, "owner")
    assert read_digest({"items": [obj(), obj("owner"), config_map]}, MAPS, "owner") == alone
    assert read_digest({"items": [obj(), config_map]}, MAPS, "another") != alone


def test_the_first_read_of_a_path_counts_and_pages_are_kept_apart() -> None:
    overlay = Overlay()
    overlay.saw("/api/v1/pods", [("labelSelector", "a=b"), ("limit", "1")], "first")
    overlay.saw("/api/v1/pods", [("labelSelector", "a=b")], "second")
    overlay.saw("/api/v1/pods", [("labelSelector", "a=b"), ("continue", "token")], "page")
    assert overlay.reads == {"/api/v1/pods?labelSelector=a%3Db": "first", "/api/v1/pods?labelSelector=a%3Db#1": "page"}
