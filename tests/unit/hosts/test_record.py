"""`status.hosts` between runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from runner.engine.hosts import Credentials, Host, HostRecap, Hosts
from runner.engine.job import Outcome, RunResult
from runner.hosts import record

KEY = "ssh-ed25519 AAAAC3"


def host(name: str, address: str = "", **different: Any) -> Host:
    return replace(Host(name, address or name, address or name), **different)


def hosts(*each: Host) -> Hosts:
    return Hosts("hosts", each, None, Credentials(), first_use=True)


def result(*recaps: HostRecap, **different: Any) -> RunResult:
    return replace(RunResult(Outcome.SUCCEEDED, None, (), "", None, 1.0), hosts=recaps, **different)


def entries(*listed: Any) -> dict[str, Any]:
    return dict(record.entries({"status": {"hosts": list(listed)}}))


def test_a_run_reports_each_host_and_the_failed_ones_first() -> None:
    found = record.after_run(
        hosts(host("a"), host("b", "b.example.com", port=2222, user="ops"), host("c")),
        {},
        result(HostRecap("a", 3, 1, 0, 0), HostRecap("b", 1, 0, 1, 0), HostRecap("c", 0, 0, 0, 1)),
    )
    assert found == [
        {"name": "b", "address": "b.example.com", "port": 2222, "user": "ops"}
        | {"ok": 1, "changed": 0, "failures": 1, "unreachable": 0},
        {"name": "c", "address": "c", "ok": 0, "changed": 0, "failures": 0, "unreachable": 1},
        {"name": "a", "address": "a", "ok": 3, "changed": 1, "failures": 0, "unreachable": 0},
    ]


def test_a_run_that_died_keeps_what_the_last_one_reported_and_remembers_new_hosts() -> None:
    before = entries({"name": "a", "address": "a", "ok": 3, "failures": 0})
    assert record.after_run(hosts(host("a"), host("b")), before, result(outcome=Outcome.DIED)) == [
        {"name": "a", "address": "a", "ok": 3, "failures": 0},
        {"name": "b", "address": "b"},
    ]


def test_a_removed_host_stays_until_a_run_reached_it_and_did_not_fail() -> None:
    before = entries({"name": "gone", "address": "10.0.0.9", "port": 2222, "user": "ops"})
    found = record.all_hosts([host("a")], before)
    gone = found[1]
    assert (gone.name, gone.written, gone.port, gone.user, gone.is_removed) == ("gone", "10.0.0.9", 2222, "ops", True)
    for recaps in ((), (HostRecap("gone", 1, 0, 1, 0),), (HostRecap("gone", 0, 0, 0, 1),)):
        (entry,) = record.after_run(hosts(gone), before, result(*recaps))
        assert entry["removed"] is True
    assert record.after_run(hosts(gone), before, result(HostRecap("gone", 1, 1, 0, 0))) == []


def test_the_first_key_of_a_host_is_kept_until_its_address_changes() -> None:
    accepted = result(HostRecap("a", 1, 0, 0, 0), host_keys={"[10.0.0.1]:2222": KEY})
    before = entries(*record.after_run(hosts(host("a", "10.0.0.1", port=2222)), {}, accepted))
    assert before["a"]["hostKey"] == KEY
    (same,) = record.all_hosts([host("a", "10.0.0.1", port=2222)], before)
    (moved,) = record.all_hosts([host("a", "10.0.0.2", port=2222)], before)
    assert (same.key, moved.key) == (KEY, "")
    other = result(HostRecap("a", 1, 0, 0, 0), host_keys={"[10.0.0.1]:2222": "ssh-rsa other"})
    assert record.after_run(hosts(same), before, other)[0]["hostKey"] == KEY


def test_entries_that_another_client_broke_are_ignored() -> None:
    broken: list[Any] = [
        7,
        {"name": "a"},
        {"name": "all", "address": "10.0.0.1"},
        {"name": "b", "address": "-oProxyCommand=id"},
        {"name": "c", "address": "10.0.0.1", "port": "22"},
        {"name": "d", "address": "10.0.0.1", "user": "-x"},
        {"name": "e", "address": "10.0.0.1", "hostKey": "k v\n* ssh-rsa evil"},
    ]
    assert set(entries(*broken)) == {"e"}
    assert record.all_hosts([], entries(*broken))[0].key == ""
    assert record.entries({"status": {"hosts": "x"}}) == record.entries({}) == {}
