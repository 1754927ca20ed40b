"""`status.hosts` between runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runner.core.engine.job import HostRecap, Outcome, RunResult
from runner.features.hosts import record, spec
from runner.features.hosts.inventory import HOST_KEYS, Credentials, Host, Hosts
from runner.values.errors import TerminalError
from runner.values.slots import EMPTY

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
    accepted = result(HostRecap("a", 1, 0, 0, 0), more=EMPTY.having(HOST_KEYS, {"[10.0.0.1]:2222": KEY}))
    before = entries(*record.after_run(hosts(host("a", "10.0.0.1", port=2222)), {}, accepted))
    assert before["a"]["hostKey"] == KEY
    (same,) = record.all_hosts([host("a", "10.0.0.1", port=2222)], before)
    moved, old = record.all_hosts([host("a", "10.0.0.2", port=2222)], before)
    (renamed,) = record.all_hosts([host("b", "10.0.0.1", port=2222)], before)
    assert (same.key, moved.key, old.key, renamed.key) == (KEY, "", KEY, KEY)
    other = result(HostRecap("a", 1, 0, 0, 0), more=EMPTY.having(HOST_KEYS, {"[10.0.0.1]:2222": "ssh-rsa other"}))
    assert record.after_run(hosts(same), before, other)[0]["hostKey"] == KEY


def test_the_first_key_of_a_host_is_kept_whatever_the_case_of_its_address() -> None:
    named = host("a", "DB.Lab.example.com", port=2222)
    # ssh writes the name of the host in lower case.
    accepted = result(more=EMPTY.having(HOST_KEYS, {"[db.lab.example.com]:2222": KEY}))
    before = entries(*record.after_run(hosts(named), {}, accepted))
    assert (before["a"]["address"], before["a"]["hostKey"]) == ("DB.Lab.example.com", KEY)
    assert [each.key for each in record.all_hosts([named], before)] == [KEY]


def test_a_host_with_another_address_or_port_is_a_new_host_and_a_removed_one() -> None:
    before = entries({"name": "db", "address": "10.0.0.1", "ok": 3, "unreachable": 0})
    for address, port in (("10.0.0.2", None), ("10.0.0.1", 2222)):
        new, old = record.all_hosts([host("db", address, port=port)], before)
        assert (new.name, new.is_removed) == ("db", False)
        assert (old.name, old.written, old.port, old.is_removed) == ("db-10.0.0.1", "10.0.0.1", None, True)
        listed = record.at_start(hosts(new, old), before)
        assert [each.get("ok") for each in listed] == [None, 3]  # the results are those of the old machine
        kept = entries(*listed)
        assert [each.name for each in record.all_hosts([host("db", address, port=port)], kept)] == ["db", "db-10.0.0.1"]
        back, other = record.all_hosts([host("db", "10.0.0.1")], kept)  # the old machine is a host again
        assert (back.is_removed, other.written, other.is_removed) == (False, address, True)


def test_a_machine_that_the_resource_names_in_another_way_is_not_removed() -> None:
    before = entries({"name": "db", "address": "DB.example.com", "port": 22, "ok": 1})
    assert [each.name for each in record.all_hosts([host("main", "db.example.com")], before)] == ["main"]


def test_names_of_removed_hosts_are_free() -> None:
    before = entries({"name": "db", "address": "10.0.0.1"}, {"name": "x", "address": "10.0.0.3"})
    named = [host("db", "10.0.0.2"), host("db-10.0.0.1", "10.0.0.9"), host("x", "fd00::1")]
    assert [each.name for each in record.all_hosts(named, before)[3:]] == ["db-10.0.0.1-2", "x-10.0.0.3"]
    long = "a" * 253
    (_, gone) = record.all_hosts([host(long, "10.0.0.2")], entries({"name": long, "address": "10.0.0.1"}))
    assert set(entries(*record.at_start(hosts(gone), {}))) == {gone.name}


@pytest.mark.parametrize("address", ["2001:db8::", f"{'a' * 49}.{'b' * 49}.example.com", f"{'a' * 99}_db"])
def test_a_removed_host_with_a_new_name_is_known_to_the_next_run(address: str) -> None:
    before = entries({"name": "db", "address": address, "hostKey": KEY})
    everything = record.all_hosts([host("db", "10.0.0.2")], before)
    again = record.all_hosts([host("db", "10.0.0.2")], entries(*record.at_start(hosts(*everything), before)))
    assert [(each.written, each.key, each.is_removed) for each in again[1:]] == [(address, KEY, True)]


def test_a_removed_host_that_was_not_reached_is_left_out_of_retries_and_not_forgotten() -> None:
    before = entries({"name": "gone", "address": "10.0.0.9", "unreachable": 1, "removed": True})
    named, left = record.all_hosts([host("a")], before, tries_dead=False)
    assert left.is_left_out
    of_run = hosts(named, left)
    assert (of_run.removed, of_run.reached) == ((), (named,))
    after = record.after_run(of_run, before, result(HostRecap("a", 1, 0, 0, 0)))
    assert after[0] == {"name": "gone", "address": "10.0.0.9", "unreachable": 1, "removed": True}
    assert not record.all_hosts([], before)[0].is_left_out
    still_named = entries({"name": "a", "address": "a", "unreachable": 1})
    assert not any(each.is_left_out for each in record.all_hosts([], still_named, tries_dead=False))


def test_all_entries_that_runs_write_are_read_again() -> None:
    named = [host(f"new{number}") for number in range(spec.MOST_HOSTS)]
    old = [{"name": f"old{number}", "address": f"old{number}", "hostKey": KEY} for number in range(spec.MOST_HOSTS)]
    everything = record.all_hosts(named, entries(*old))
    listed = record.after_run(hosts(*everything), entries(*old), result())
    again = record.all_hosts(named, entries(*listed))
    assert sum(each.is_removed and each.key == KEY for each in again) == spec.MOST_HOSTS
    with pytest.raises(TerminalError, match="more than 500 removed hosts are not clean yet"):
        record.all_hosts([host("another")], entries(*listed))


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
