from __future__ import annotations

import time
from pathlib import Path

import pytest

from runner.engines.warm import messages
from runner.engines.warm.messages import Load, Ready


def test_files_have_the_same_content_when_they_are_read(tmp_path: Path) -> None:
    wanted = Load(plugins=frozenset({"a", "b"}), modules=frozenset({"c.d.e"}), imports=frozenset({"kubernetes"}))
    ready = Ready(watched=["/etc/ansible/ansible.cfg"], disabled={"values": "gone"}, problems=["slow"])
    messages.write(tmp_path / messages.LOAD, wanted)
    messages.write(tmp_path / messages.READY, ready)
    assert (messages.read_load(tmp_path), messages.read_ready(tmp_path)) == (wanted, ready)


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


@pytest.mark.parametrize("text", ["x\n" * (4 << 20), "".join(f'{{"imports": ["a{n}"]}}\n' for n in range(60_000))])
def test_however_many_notes_a_role_writes_they_are_read_in_bounded_time(text: str) -> None:
    began = time.thread_time()
    Load.of_lines(text)
    assert time.thread_time() - began < 3


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
