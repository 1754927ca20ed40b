from __future__ import annotations

from collections.abc import Callable

import pytest

from runner.sdk.scaffold import names
from runner.sdk.scaffold.names import Resource


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("Memcached", "memcacheds"),
        ("Proxy", "proxies"),
        ("Gateway", "gateways"),
        ("Mesh", "meshes"),
        ("Box", "boxes"),
        ("MySQLCluster", "mysqlclusters"),
    ],
)
def test_a_kind_has_its_usual_english_plural(kind: str, plural: str) -> None:
    assert names.plural_of(kind) == plural


@pytest.mark.parametrize(
    ("check", "right"),
    [
        (names.kind_problem, ["A", "Memcached", "MySQLCluster", "V2Thing", "K" * 63]),
        (names.version_problem, ["v1", "v1alpha1", "v2beta10", "v10"]),
        (names.group_problem, ["", "cache", "my-cache.team"]),
        (names.domain_problem, ["example.com", "local", "1und1.de"]),
        (names.project_problem, ["a", "memcached-operator", "op2"]),
        (names.plural_problem, ["memcacheds", "tn"]),
    ],
)
def test_valid_names_are_accepted(check: Callable[[str], str], right: list[str]) -> None:
    assert [check(name) for name in right] == [""] * len(right)


@pytest.mark.parametrize(
    ("check", "wrong", "close"),
    [
        (names.kind_problem, "myKind", "MyKind"),
        (names.kind_problem, "my-kind", "MyKind"),
        (names.kind_problem, "my kind 2", "MyKind2"),
        (names.version_problem, "1", "v1"),
        (names.version_problem, "V2", "v2"),
        (names.version_problem, "v1alpha", "v1alpha1"),
        (names.version_problem, "v1.2", "v1"),
        (names.version_problem, "latest", "v1alpha1"),
        (names.group_problem, "Cache", "cache"),
        (names.group_problem, "my_cache", "my-cache"),
        (names.domain_problem, "Example.COM", "example.com"),
        (names.domain_problem, "example..com", "example.com"),
        (names.project_problem, "My Operator", "my-operator"),
        (names.project_problem, "2nd-operator", "nd-operator"),
        (names.project_problem, "operator" * 6, ("operator" * 6)[:40]),
        (names.plural_problem, "Memcacheds", "memcacheds"),
    ],
)
def test_an_invalid_name_is_refused_with_a_proposal(check: Callable[[str], str], wrong: str, close: str) -> None:
    assert check(wrong).endswith(f"(did you mean {close}?)")


@pytest.mark.parametrize(
    ("check", "hopeless"),
    [(names.kind_problem, "—"), (names.domain_problem, ""), (names.project_problem, "123"), (names.plural_problem, "")],
)
def test_without_a_similar_name_nothing_is_proposed(check: Callable[[str], str], hopeless: str) -> None:
    assert "did you mean" not in check(hopeless)
    assert check(hopeless)


def test_all_problems_of_a_kind_are_reported_at_once() -> None:
    wrong = Resource("My Group", "Example.com", "1", "kind", "Kinds")
    flags = [problem.split()[0] for problem in names.problems_of(wrong)]
    assert flags == ["--domain", "--group", "--version", "--kind", "--plural"]


def test_a_group_that_gets_too_long_with_its_domain_is_refused() -> None:
    long = ".".join(["a" * 60] * 3)
    [problem] = names.problems_of(Resource(long, f"{'b' * 60}.{'c' * 60}", "v1", "Kind", "kinds"))
    assert "exceeds 253 characters" in problem
