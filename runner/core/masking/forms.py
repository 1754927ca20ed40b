"""Forms of a secret value in output (plain, base64, JSON, YAML, Python, URL), and its secret parts. Pure.

Comparisons use squeezed text (`squeeze`): without blanks, quotes, backslashes and escaped line breaks. Quoting,
wrapping, folding and indentation therefore do not hide a value. Short and common values are not masked.
"""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote, quote_plus

import yaml

LEAST = 6
"""Minimum length of a squeezed value: shorter ones occur in ordinary text."""
_LEAST_VARIETY = 3
"""Minimum number of different characters: `----------` is not a secret."""
_LEAST_DIGITS = 8
"""Minimum length of a number: ports, sizes and dates are shorter."""
_LEAST_LINE = 8
_LEAST_TOKEN = 16
"""Minimum length of the value of a `key: value` line whose key is not sensitive."""
_LONG = 4096
"""Length from which a value has only its plain, JSON and base64 forms."""
_MOST_SEARCHED = 1 << 16
"""Length of the part of a value that is searched for secret parts and lines."""

_COMMON = """
administrator always ansible bearer changed cluster cluster.local config database default development disable disabled
enable enabled external failed global ignore ignored internal kubernetes localhost managed mariadb master message
metadata mongodb namespace opaque operator password postgres postgresql prefer present primary private production
public rabbitmq readonly readwrite replica require required running secret secrets server service skipped staging
standard status string success succeeded system testing unknown unmanaged unreachable username verify-ca verify-full
warning http:// https:// /var/run /var/lib
"""
ORDINARY = frozenset(_COMMON.split())
"""Common values. A password such as `password` is not a secret."""

_BREAKS = (b"\\n", b"\\r", b"\\t")
_DROPPED = b" \t\r\n\\\"'"
RUN = re.compile(rb"(?:\\[nrt]|[ \t\r\n\\\"'])+")
"""Characters that `squeeze` removes."""

_SPECIAL = re.compile(r"[^\x20-\x7e\t\r\n]")
_MARKUP = re.compile("[<>&']")
_NOT_IN_URLS = re.compile(r"[^A-Za-z0-9_.~-]")
_ARMOUR = re.compile(r"-----(BEGIN|END) ([A-Z0-9 ]+)-----")
_KEYED = re.compile(r"""[\s-]*["']?[A-Za-z_][\w./ -]{0,63}["']?\s*[:=]\s*(?P<rest>[^=].*)""")
_SENSITIVE_NAME = r"""
    (?: pass(?:w|word|wd|phrase)? | pwd | secret | token | credentials? | (?<![a-z])auth(?:orization)?(?![a-z])
        | (?:api|access|private) [_.-]? key )
    (?P<more>[\w.-]{0,32})"""
_SENSITIVE = re.compile(
    rf"""(?ix) {_SENSITIVE_NAME} ["']? \s* [:=] \s*
    (?P<value> "[^"\n]+" | '[^'\n]+' | (?:(?:bearer|basic)\s+)?[^\s"',;&]+ )"""
)
_IS_SENSITIVE = re.compile(rf"(?ix) {_SENSITIVE_NAME} $")
_METADATA = re.compile(
    r"(?i)(?:name|file|path|url|uri|mode|type|ref|endpoint|policy|length|method|provider|enabled|sock)s?$"
)
"""Suffixes of keys that refer to a secret without containing it: `secretName`, `tokenUrl`."""
_SCHEME = re.compile(r"(?i)^(?:bearer|basic)\s+")
_USER_INFORMATION = re.compile(r"://[^\s:/@]*:([^\s/@]+)@")


class Form(NamedTuple):
    """Squeezed form of a value. Open ends: the adjacent base64 character contains bits of the value too."""

    text: bytes
    open_start: bool = False
    open_end: bool = False
    is_base64: bool = False


def squeeze(data: bytes) -> bytes:
    """Remove blanks, quotes, backslashes, and escaped line breaks and tabs."""
    for pair in _BREAKS:
        data = data.replace(pair, b"\n")
    return data.translate(None, _DROPPED)


def is_ordinary(text: str) -> bool:
    """Return whether a value is too short or too common to be masked."""
    squeezed = squeeze(text.encode("utf-8", "surrogatepass"))
    if len(squeezed) < LEAST or len(set(squeezed)) < _LEAST_VARIETY or text.strip().lower() in ORDINARY:
        return True
    return squeezed.isdigit() and len(squeezed) < _LEAST_DIGITS


def written(text: str, *, in_urls: bool) -> Iterator[Form]:
    """Yield the plain forms of a text, without blanks around it; with `in_urls`, also the quoted ones."""
    text = text.strip()
    spellings = _spellings(text)
    if in_urls and len(text) <= _LONG and _NOT_IN_URLS.search(text):
        octets = text.encode("utf-8", "surrogatepass")
        spellings |= {quote(octets, safe=""), quote(octets), quote_plus(octets)}
    for spelling in spellings:
        yield Form(squeeze(spelling.encode("utf-8", "surrogatepass")))


def encoded(value: bytes) -> Iterator[Form]:
    """Yield the forms of a value in base64, at each offset in a longer text."""
    for shift in range(3):
        form = _base64(value, shift)
        yield form
        if b"+" in form.text or b"/" in form.text:
            yield form._replace(text=form.text.replace(b"+", b"-").replace(b"/", b"_"))


def _spellings(text: str) -> set[str]:
    """Return the encodings of a text that still differ after squeezing."""
    forms = {text}
    if len(text) > _LONG:
        return forms | ({json.dumps(text), json.dumps(text, ensure_ascii=False)} if _SPECIAL.search(text) else set())
    if _SPECIAL.search(text):
        octets = repr(text.encode("utf-8", "surrogatepass"))[2:-1]
        forms |= {json.dumps(text), json.dumps(text, ensure_ascii=False), repr(text), ascii(text), octets}
        forms |= {_yaml(text, bare=bare) for bare in (False, True)}
        # JSON can contain the output of another encoder.
        forms |= {json.dumps(form) for form in forms}
    if _MARKUP.search(text):
        for dumped in (json.dumps(text), json.dumps(text, ensure_ascii=False)):
            forms.add(_MARKUP.sub(lambda match: f"\\u{ord(match[0]):04x}", dumped))
            # Go does not escape the apostrophe.
            forms.add(re.sub("[<>&]", lambda match: f"\\u{ord(match[0]):04x}", dumped))
    return forms


def _yaml(text: str, *, bare: bool) -> str:
    """Return a text in double quotes of YAML, with other characters than ASCII bare or escaped."""
    written: str = yaml.dump(text, Dumper=yaml.CSafeDumper, default_style='"', width=1 << 30, allow_unicode=bare)
    return written


def _base64(value: bytes, shift: int) -> Form:
    """Return the base64 of a value after `shift` other bytes: only the characters that depend on the value alone."""
    bits, end = 8 * shift, 8 * (shift + len(value))
    encoded = base64.b64encode(bytes(shift) + value)
    return Form(encoded[-(-bits // 6) : end // 6], open_start=bits % 6 != 0, open_end=end % 6 != 0, is_base64=True)


def is_sensitive(name: str) -> bool:
    """Return whether the name of a key, option or variable makes its value a secret."""
    match = _IS_SENSITIVE.search(name)
    return match is not None and not _METADATA.search(match["more"])


def parts(text: str) -> Iterator[str]:
    """Yield the secret parts of a value: values of sensitive keys, and passwords in URLs."""
    text = text[:_MOST_SEARCHED]
    for match in _SENSITIVE.finditer(text):
        if not _METADATA.search(match["more"]):
            yield _SCHEME.sub("", match["value"].strip("\"'"))
    for match in _USER_INFORMATION.finditer(text):
        yield match[1]


def lines(text: str) -> Iterator[str]:
    """Yield the secret lines of a value with several lines.

    A line `key: value` is not secret, because configuration files contain many ordinary ones; its value is, if it looks
    like a token. Certificates are public.
    """
    all_lines = text[:_MOST_SEARCHED].splitlines()
    public = False
    for line in all_lines if len(all_lines) > 1 else ():
        armour = _ARMOUR.search(line)
        if armour:
            public = armour[1] == "BEGIN" and ("CERTIFICATE" in armour[2] or "PUBLIC" in armour[2])
            continue
        stripped = line.strip()
        keyed = _KEYED.fullmatch(stripped)
        if keyed:
            rest = keyed["rest"].strip("\"', ")
            if _looks_like_token(rest):
                yield rest
        elif not public and len(squeeze(stripped.encode("utf-8", "surrogatepass"))) >= _LEAST_LINE:
            yield stripped


def _looks_like_token(text: str) -> bool:
    if len(text) < _LEAST_TOKEN or any(char.isspace() for char in text) or "://" in text:
        return False
    return any(char.isdigit() for char in text) and any(char.isalpha() for char in text)


class _Sorted:
    """Heads in order."""

    __slots__ = ("_prefixes", "heads")

    def __init__(self, heads: list[bytes]) -> None:
        self.heads = heads
        self._prefixes: list[int] | None = None

    @property
    def prefixes(self) -> list[int]:
        """For each head the position of the longest other head that is a prefix of it, or -1."""
        if self._prefixes is None:
            self._prefixes = _prefixes(self.heads)
        return self._prefixes


class Heads:
    """A set of heads of at most `longest` bytes.

    The time of a lookup depends on the logarithm of the number of heads, even if all of them share a prefix. One thread
    can look up while another adds: a lookup reads one immutable tuple.
    """

    __slots__ = ("_longest", "_parts")

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._parts: tuple[_Sorted, ...] = ()
        """Each at least twice as large as the next, so that an addition moves few heads on average."""

    def add(self, head: bytes) -> None:
        """Add a head that is not in the set yet."""
        parts = list(self._parts)
        heads = [head]
        while parts and len(parts[-1].heads) <= len(heads):
            heads = [*parts.pop().heads, *heads]
        heads.sort()
        self._parts = (*parts, _Sorted(heads))

    def at(self, text: bytes, start: int) -> Iterator[bytes]:
        """Yield the heads that begin at a position of a text."""
        beginning = text[start : start + self._longest]
        for part in self._parts:
            heads, prefixes = part.heads, part.prefixes
            # Every head that is a prefix of `beginning` is also a prefix of the last head that is not greater.
            position = bisect_right(heads, beginning) - 1
            while position >= 0 and not beginning.startswith(heads[position]):
                position = prefixes[position]
            while position >= 0:
                yield heads[position]
                position = prefixes[position]


def _prefixes(heads: list[bytes]) -> list[int]:
    prefixes: list[int] = []
    open_: list[int] = []
    for position, head in enumerate(heads):
        while open_ and not head.startswith(heads[open_[-1]]):
            open_.pop()
        prefixes.append(open_[-1] if open_ else -1)
        open_.append(position)
    return prefixes
