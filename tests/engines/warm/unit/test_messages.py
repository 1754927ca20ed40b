from __future__ import annotations

import os
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runner.engines.warm import messages
from runner.engines.warm.messages import Answer, Load


def test_packed_messages_are_unpacked_unchanged() -> None:
    wanted = Load(plugins=frozenset({"a", "b"}), modules=frozenset({"c.d.e"}), imports=frozenset({"kubernetes"}))
    answer = Answer(pid=7, problem="", watched=("/etc/ansible/ansible.cfg",))

    assert messages.unpack_load(messages.pack(wanted)[messages.LENGTH.size :]) == wanted
    assert messages.unpack_answer(messages.pack(answer)[messages.LENGTH.size :]) == answer


@pytest.mark.lengthy
def test_messages_larger_than_the_buffer_of_a_socket_are_received_whole_with_their_descriptors() -> None:
    large = Load(plugins=frozenset(f"module_{number}" for number in range(200_000)))
    ours, theirs = socket.socketpair()
    with ours, theirs, tempfile.TemporaryFile() as file, ThreadPoolExecutor() as pool:
        sending = pool.submit(ours.sendall, messages.pack(large))
        assert messages.unpack_load(messages.receive(theirs)[0]) == large
        sending.result()
        socket.send_fds(ours, [messages.RUN], [file.fileno()])
        request, (descriptor,) = messages.receive(theirs, messages.STREAMS)
        assert request == b"{}"
        assert os.fstat(descriptor).st_ino == os.fstat(file.fileno()).st_ino
        os.close(descriptor)
        ours.send(messages.pack(large)[:100])
        ours.close()
        assert messages.receive(theirs) == (b"", [])


def test_lines_of_several_runs_are_merged_and_truncated_lines_are_skipped() -> None:
    lines = (
        '{"plugins": ["ansible.plugins.lookup.sequence"]}\n'
        '{"module": "kubernetes.core.k8s", "imports": ["kubernetes", "jsonpatch"]}\n'
        '{"module": "", "imports": ["yaml"]}\n'
        '{"templates": ["one", "other"]}\n'
        '[1]\n{"plugins": 3}\n{"module": "cut'
    )

    assert Load.of_lines(lines) == Load(
        plugins=frozenset({"ansible.plugins.lookup.sequence"}),
        modules=frozenset({"kubernetes.core.k8s"}),
        imports=frozenset({"kubernetes", "jsonpatch", "yaml"}),
        templates=frozenset({"one", "other"}),
    )


def test_merging_keeps_all_entries_and_known_entries_add_nothing() -> None:
    known, fresh = Load(modules=frozenset({"a"})), Load(modules=frozenset({"b"}), imports=frozenset({"c"}))

    assert known | fresh == Load(modules=frozenset({"a", "b"}), imports=frozenset({"c"}))
    assert (known | fresh) | known == known | fresh


def test_notes_that_no_forked_run_wrote_are_skipped() -> None:
    known = '{"plugins": ["one", 5, ["two"], "\\ud800"], "module": "ping"}'
    text = "\n".join(["[" * 100_000, "5", '{"plugins": 5}', '{"module": {}}', '{"templates": [1]}', known])
    assert Load.of_lines(text) == Load(plugins=frozenset({"one"}), modules=frozenset({"ping"}))
    assert messages.mismatch(text) == ""


def test_runs_note_lines_in_a_file_of_their_own(tmp_path: Path) -> None:
    environment = {"ANSIBLE_LOCAL_TEMP": str(tmp_path)}

    messages.note(environment, {"plugins": ["ansible.plugins.lookup.sequence"]})
    messages.note(environment, {"mismatch": "runs have other values of A"})

    text = Path(messages.noted_in(environment)).read_text(encoding="utf-8")
    assert Load.of_lines(text) == Load(plugins=frozenset({"ansible.plugins.lookup.sequence"}))
    assert messages.mismatch(text) == "runs have other values of A"


def test_a_note_that_cannot_be_written_is_dropped(tmp_path: Path) -> None:
    messages.note({"ANSIBLE_LOCAL_TEMP": str(tmp_path / "gone")}, {"plugins": []})

    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("lines", ["", '{"plugins": []}\n', '[1]\n{"mismatch": 3}\n{"mismatch": "cut'])
def test_a_run_that_noted_no_reason_was_forked(lines: str) -> None:
    assert messages.mismatch(lines) == ""


def test_at_most_as_many_templates_are_requested_as_fit_into_a_message() -> None:
    known = Load(templates=frozenset({"a" * 60_000}))
    more = Load(templates=frozenset({"b" * 30_000, "c" * 30_000, "d" * 1_000}))

    assert {each[0] for each in (known | more).templates} == {"a", "b", "d"}
    assert (known | more) | more == known | more
