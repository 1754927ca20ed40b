"""The check of English finds what its rules forbid, in prose alone."""

from __future__ import annotations

import pytest

from hack import prose

RULES = prose.rules()


def findings(text: str) -> list[tuple[int, str]]:
    return [(each.line, each.text.split(":")[0]) for each in prose.check(prose.Text("a.md", 1, "docs", text), RULES)]


@pytest.mark.parametrize(
    ("sentence", "forbidden"),
    [
        ("What a run makes is owned.", "'What'"),
        ("Somebody else leads.", "'Somebody'"),
        ("The page tells the reason.", "'tells'"),
        ("The operator asks the API server.", "'asks'"),
        ("Keys that the reader knows are kept.", "'knows'"),
        ("The condition stands until then.", "'stands'"),
        ("The object is looked at again.", "'looked at'"),
        ("'12Q' is no size", "'is no size'"),
        ("Whether the run has ended.", "'Whether'"),
        ("The run goes on.", "'goes on'"),
    ],
)
def test_a_forbidden_expression_is_found(sentence: str, forbidden: str) -> None:
    assert forbidden in [problem for _, problem in findings(sentence)]


@pytest.mark.parametrize(
    "text",
    [
        "The proxy adds an owner reference to every object that a run creates.",
        "What does a run receive?",
        "The known_hosts file is standard; the lock is held. There is no default.",
        "Set `what it says` and see [the page](told.md).",
        "```sh\nwhat nobody says\n```\n\nDone.",
        "<!-- somebody -->\n\nDone.",
        "It means JSON, and it stands for a name.",
    ],
)
def test_plain_sentences_code_and_comments_are_left_alone(text: str) -> None:
    assert findings(text) == []


def test_a_finding_names_the_line_where_its_sentence_begins() -> None:
    text = "# Title\n\nOne.\nTwo is\nfine. Who runs\nis open.\n\n| a | b |\n|---|---|\n| fine | nobody |\n"
    assert findings(text) == [(5, "'Who'"), (10, "'nobody'")]
