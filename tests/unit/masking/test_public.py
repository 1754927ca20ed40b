"""Words that hide no message although a Secret contains them."""

from __future__ import annotations

from typing import Any

import pytest

from runner.core.masking import public


@pytest.mark.parametrize(
    ("key", "value", "is_name"),
    [
        ("username", "shop", True),
        ("DB_USER", "shop", True),
        ("databaseName", "shop", True),
        ("pgbouncer-host", "shop.ns.svc", True),
        ("postgres.port", "5432", True),
        ("password", "shop", False),
        ("userPassword", "shop", False),
        ("secretUser", "shop", False),
        ("user", "shop:hunter2", False),
        ("user", "a b", False),
        ("users", "shop", False),
        ("host", "https://a:b@c", False),
        ("", "shop", False),
        ("--", "shop", False),
    ],
)
def test_a_key_is_a_name_by_convention(key: str, value: str, *, is_name: bool) -> None:
    assert public.is_name(key, value) is is_name


def test_words_are_spelt_as_values_of_secrets() -> None:
    assert set(public.words(["my-Gateway", "api"])) == {"my-Gateway", "my-gateway", "my_Gateway", "Gateway"}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"database": "orders1", "size": 3, "mode": "standalone"}, {"orders1", "standalone"}),
        ({"password": "standalone", "tls": {"apiKey": "standalone"}}, set()),
        (
            {"env": [{"name": "DB_PASS", "value": "swordfish"}, {"name": "COLOUR", "value": "turquoise"}]},
            {"turquoise", "DB_PASS", "db_pass", "COLOUR", "colour"},
        ),
        ({"extra": "hunter2hunter2", "list": ["gateway", ["storage"]]}, {"gateway", "storage"}),
        (None, set()),
        ("gateway", {"gateway"}),
        ([{"a": None}, 7, ["gateway"]], {"gateway"}),
    ],
)
def test_words_of_a_spec_are_public_unless_their_key_is_sensitive(spec: Any, found: set[str]) -> None:
    assert set(public.of_spec(spec)) == found


@pytest.mark.lengthy
def test_a_large_spec_is_examined_in_part() -> None:
    spec: dict[str, Any] = {f"field{number}": ["gateway"] * 100 for number in range(100_000)}
    assert len(list(public.of_spec(spec))) <= 10_000
