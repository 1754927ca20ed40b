"""Known values are masked in all output, and only values that may be secret are known."""

from __future__ import annotations

import base64
import json
import re
import textwrap
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.core.masking import public
from runner.core.masking.forms import is_ordinary
from runner.core.masking.masker import MASK, TOO_SLOW, Budget, Masker, SearchTimeoutError

SECRET = "s3cr3t-P@ss \"w\\rd'/+ü=%<&>"

WRITTEN: dict[str, Callable[[str], str]] = {
    "as it is": lambda value: value,
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64 without padding": lambda value: base64.b64encode(value.encode()).decode().rstrip("="),
    "base64 for URLs": lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
    "JSON": json.dumps,
    "JSON with umlauts": lambda value: json.dumps(value, ensure_ascii=False),
    "JSON in JSON": lambda value: json.dumps(json.dumps({"a": value})),
    "JSON in JSON in JSON": lambda value: json.dumps({"x": json.dumps(json.dumps({"a": value}))}),
    "JSON for HTML": lambda value: re.sub("[<>&']", lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value)),
    "Python": repr,
    "Python's ASCII": ascii,
    "Python's bytes": lambda value: repr(value.encode()),
    "Python in JSON": lambda value: json.dumps({"msg": repr({"a": value})}),
    "YAML": lambda value: yaml.safe_dump({"a": value}),
    "YAML with umlauts": lambda value: yaml.safe_dump({"a": value}, allow_unicode=True),
    "YAML in double quotes": lambda value: yaml.safe_dump({"a": value}, default_style='"'),
    "folded YAML": lambda value: yaml.safe_dump({"a": f"{'word ' * 14}{value}"}, width=79),
    "an indented block": lambda value: textwrap.indent(value, "      "),
    "a URL": lambda value: quote(value, safe=""),
    "a path": quote,
    "a form": quote_plus,
    "wrapped base64": lambda value: "\n".join(textwrap.wrap(base64.b64encode(value.encode()).decode(), 16)),
    "a wrapped message": lambda value: textwrap.fill(f"{'word ' * 14}{value}", 79),
}
VALUES = {
    "plain": "hunter2hunter2",
    "short": "s3cr3t",
    "special": SECRET,
    "with spaces": "correct horse battery staple and some more words",
    "of several lines": "first line of it\nsecond 'line'\tof it\n\nlast \\line",
    "non-ASCII": "pässwörter-€-\U0001f511-key",
    "long": "".join(f"{number:x}." for number in range(900)),
}


def known(*values: str | bytes) -> Masker:
    masker = Masker()
    for value in values:
        masker.add(value)
    return masker


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_a_value_is_masked_however_it_is_written(written: Callable[[str], str], value: str) -> None:
    masker = known(value)
    text = f"the password is {written(value)}, and that was it"
    masked = masker.text(text)
    assert MASK in masked
    assert written(value) not in masked
    assert masked.startswith("the password is ")
    assert masked.endswith(", and that was it")
    # All that is left of it are quotes and what the encoding put around it.
    assert len(masked) < len(text) - len(value) // 2 + len(MASK) * value.count("\n") + len(MASK)


@pytest.mark.lengthy
@given(
    value=st.text(min_size=12, max_size=60),
    before=st.text(max_size=20),
    after=st.text(max_size=20),
    written=st.sampled_from(sorted(WRITTEN)),
)
@settings(deadline=None, max_examples=100)
def test_no_part_of_any_value_remains(value: str, before: str, after: str, written: str) -> None:
    if len("".join(char for char in value if char.isalnum() and char.isascii())) < 10 or is_ordinary(value.strip()):
        return
    masker = known(value)
    try:
        text = before + WRITTEN[written](value.strip()) + after
        text.encode()
    except UnicodeEncodeError:
        return
    assert MASK in masker.text(text)


@given(secret=st.binary(min_size=6, max_size=40), before=st.binary(max_size=9), after=st.binary(max_size=9))
@settings(deadline=None)
def test_base64_of_more_than_the_value_hides_the_value(secret: bytes, before: bytes, after: bytes) -> None:
    if len(secret.split()) != 1 or is_ordinary(secret.decode(errors="replace")):
        return
    encoded = base64.b64encode(before + secret + after)
    masked = known(secret).data(encoded)
    assert MASK.encode() in masked
    left = b"".join(masked.split(MASK.encode())).rstrip(b"=")
    assert len(left) <= len(base64.b64encode(before)) + len(base64.b64encode(after))


@given(st.text(), st.lists(st.text(min_size=6, max_size=8), max_size=60))
@settings(deadline=None)
def test_text_without_a_value_stays_the_very_same(text: str, values: list[str]) -> None:
    masker = known(*values)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return
    masked = masker.text(text)
    assert (masked is text) == (not masker.finds(data))


def test_the_rest_of_a_message_stays_readable() -> None:
    masker = known("hunter2hunter2", "correct horse battery")
    message = 'cannot log in as "app" with "hunter2hunter2" (or correct horse\n  battery) at db:5432: refused'
    assert masker.text(message) == f'cannot log in as "app" with "{MASK}" (or {MASK}) at db:5432: refused'
    encoded = base64.b64encode(b"user=app password=hunter2hunter2 host=db").decode()
    masked = masker.text(f"config: {encoded}.")
    before, after = masked.removeprefix("config: ").split(MASK)
    assert base64.b64decode(before + "A" * (-len(before) % 4)).startswith(b"user=app password=")
    assert after.endswith(".")


def test_json_stays_json() -> None:
    masker = known(SECRET, "first\nsecond line", "12345678")
    value = {"a": [SECRET, {SECRET: 1}], "b": json.dumps({"c": SECRET}), "n": 12345678, "m": 987654321, "t": True}
    masked = masker.value(value)
    assert masked == {"a": [MASK, {MASK: 1}], "b": f'{{"c": "{MASK}"}}', "n": MASK, "m": 987654321, "t": True}
    assert json.loads(masker.text(json.dumps(value | {"n": 0})))["a"] == [MASK, {MASK: 1}]
    clean = {"a": ["x", {"y": None}], "n": 1.5}
    assert masker.value(clean) is clean


def test_an_escaped_line_break_before_a_word_is_not_a_part_of_it() -> None:
    masker = known("nightly-secret", "tomorrow-secret")
    other = "x\nightly-secret, \tomorrow-secret"
    assert json.loads(masker.text(json.dumps(other))) == other
    assert json.loads(masker.text(json.dumps("x\nnightly-secret\ttomorrow-secret"))) == f"x\n{MASK}\t{MASK}"


@pytest.mark.parametrize(
    "value",
    [
        "",
        "true",
        "admin",
        "5432",
        "1234567",
        "default",
        "Enabled",
        "password",
        "managed",
        "prefer",
        "-" * 40,
        ' "a" "b" \n',
    ],
)
def test_short_and_common_values_are_not_masked(value: str) -> None:
    masker = known(value)
    assert not masker
    assert masker.text(f"a {value} b") == f"a {value} b"


def test_names_that_the_caller_spares_are_not_masked() -> None:
    masker = Masker(exempt=("my-namespace",))
    masker.add("my-namespace")
    masker.add("my-secret", exempt=("my-secret",))
    assert not masker
    masker.add("my-secret")
    assert masker.text("my-secret in my-namespace") == f"{MASK} in my-namespace"


def test_lines_of_a_private_key_are_masked_one_by_one_and_those_of_a_certificate_are_not() -> None:
    def block(kind: str, seed: str) -> str:
        body = textwrap.wrap(base64.b64encode(seed.encode() * 12).decode(), 64)
        return "\n".join([f"-----BEGIN {kind}-----", *body, f"-----END {kind}-----", ""])

    key, certificate = block("RSA PRIVATE KEY", "key material"), block("CERTIFICATE", "everyone may")
    masker = known(key + certificate)
    lines = masker.value(key.splitlines())
    assert lines == ["-----BEGIN RSA PRIVATE KEY-----", MASK, MASK, MASK, "-----END RSA PRIVATE KEY-----"]
    assert masker.value(certificate.splitlines()) == certificate.splitlines()
    assert masker.text(key + certificate).strip() == MASK


def test_only_the_secret_parts_of_a_settings_file_are_masked() -> None:
    masker = known(
        textwrap.dedent(
            """\
            apiVersion: v1
            kind: ServiceAccount
            secretName: my-certificates
            database:
              host: postgres.example.com
              password: 'topsecret1'
              url: postgres://app:insideurl1@db/app
            apiToken = tok-123456
            session: 0123456789abcdef0123456789abcdef
            """
        )
    )
    for kept in ('"kind": "ServiceAccount"', "my-certificates", "postgres.example.com", "apiVersion: v1"):
        assert masker.text(kept) == kept
    for secret in ("topsecret1", "insideurl1", "tok-123456", "0123456789abcdef0123456789abcdef"):
        assert masker.text(f"<{secret}>") == f"<{MASK}>"
    docker = '{"auths":{"registry.example.com":{"username":"robot","password":"p4ssw0rd!","auth":"cm9ib3Q6eA=="}}}'
    assert known(docker).text("p4ssw0rd! cm9ib3Q6eA== registry.example.com") == f"{MASK} {MASK} registry.example.com"


def test_a_long_value_that_was_cut_short_is_masked_to_its_cut() -> None:
    blob = base64.b64encode(bytes(range(256)) * 40).decode()
    masker = known(blob)
    assert masker.text(f"<{blob}>") == f"<{MASK}>"
    assert masker.text(f"got {blob[:3000]}… (cut) and more") == f"got {MASK}… (cut) and more"


@pytest.mark.parametrize("start", range(4))
def test_a_long_value_that_was_cut_short_leaves_no_part_of_a_character(start: int) -> None:
    value = "Zz9"[:start] + "пароль_и_暗号_😀" * 60
    masker = known(value)
    for cut in range(320, 360):
        masked = masker.value({"a": f"see {value[:cut]}"})
        assert masked["a"].startswith(f"see {MASK}")
        assert masked["a"].removeprefix(f"see {MASK}") in value


@pytest.mark.lengthy
def test_thousands_of_values_that_share_a_prefix_are_searched_in_bounded_time() -> None:
    masker = known(*(f"prefix-that-all-values-share-{number:05d}" for number in range(8000)))
    assert not masker.is_exhausted
    text = "prefix-that-all-values-share-99999 " * 2000
    assert masker.data(text.encode(), Budget(5.0)) == text.encode()
    masked = masker.data(f"{text}prefix-that-all-values-share-04711.{text}".encode(), Budget(5.0))
    assert masked.decode() == f"{text}{MASK}.{text}"


@pytest.mark.lengthy
@given(st.lists(st.text("abc", min_size=6, max_size=9), min_size=1, max_size=80), st.text("abc", max_size=60))
@settings(deadline=None)
def test_the_values_are_masked_and_nothing_else(values: list[str], text: str) -> None:
    masker = known(*values)
    covered: set[int] = set()
    for value in values:
        if known(value):
            starts = (start for start in range(len(text)) if text.startswith(value, start))
            covered.update(position for start in starts for position in range(start, start + len(value)))
    left = "".join(MASK[0] if position in covered else char for position, char in enumerate(text))
    assert re.sub(r"\*+", "*", masker.text(text)) == re.sub(r"\*+", "*", left)


def test_a_text_that_is_not_searched_in_time_is_never_returned() -> None:
    masker = known("hunter2hunter2")
    for search in (masker.finds, masker.data):
        with pytest.raises(SearchTimeoutError):
            search(b"hunter2hunter2", Budget(-1.0))
    with pytest.raises(SearchTimeoutError):
        masker.value({"a": ["hunter2hunter2"]}, Budget(-1.0))
    assert masker.text("hunter2hunter2", Budget(-1.0)) == TOO_SLOW


def test_a_masker_shows_none_of_its_values() -> None:
    masker = known("hunter2hunter2")
    assert "hunter2" not in repr(masker)
    assert "hunter2" not in f"{masker}"
    assert bool(masker)
    assert not Masker()


@pytest.mark.lengthy
def test_a_masker_that_is_full_is_exhausted() -> None:
    masker = Masker()
    blob = bytes(range(256)) * 3
    for number in range(20_000):
        masker.add(number.to_bytes(4, "big") + blob)
        if masker.is_exhausted:
            break
    assert masker.is_exhausted
    assert bool(masker)


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
