"""What a secret value looks like where it shows, and what of it is secret at all. Pure.

Owns: the forms of a value in output (plain, base64, JSON, YAML, Python, URL), the parts of a value that are secret by
themselves, and which values are too ordinary to be masked. Everything is compared squeezed (`squeeze`): without blanks,
quotes, backslashes and escaped line breaks, so that neither quoting, however deep, nor wrapping, folding or indenting
hides a value. Must not import: anything of this package.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote, quote_plus

import yaml

LEAST = 6
"""Characters, squeezed, from which on a value is masked: shorter ones stand in too much that is no secret."""
_LEAST_VARIETY = 3
"""Different characters: `----------` is no secret."""
_LEAST_DIGITS = 8
"""The same for what is only digits: ports, sizes and dates are shorter."""
_LEAST_LINE = 8
_LEAST_TOKEN = 16
"""The same for the value of a `key: value` line whose key does not tell that it is secret."""
_LONG = 4096
"""Characters from which on a value is expected as it is, in JSON and in base64 only."""
_MOST_LOOKED_AT = 1 << 16
"""Characters of a value in which parts and lines are looked for."""

_COMMON = """
administrator always ansible bearer changed cluster cluster.local config database default development disable disabled
enable enabled failed global ignore ignored internal kubernetes localhost mariadb master message metadata mongodb
namespace opaque operator password postgres postgresql present primary private production public rabbitmq readonly
readwrite replica require required running secret secrets server service skipped staging standard status string
success succeeded system testing unknown unreachable username verify-full warning http:// https:// /var/run /var/lib
"""
ORDINARY = frozenset(_COMMON.split())
"""Values that say nothing and stand everywhere. Whoever has `password` for a password has no secret."""

_BREAKS = (b"\\n", b"\\r", b"\\t")
_DROPPED = b" \t\r\n\\\"'"
RUN = re.compile(rb"(?:\\[nrt]|[ \t\r\n\\\"'])+")
"""What `squeeze` leaves out, run by run."""

_SPECIAL = re.compile(r"[^\x20-\x7e\t\r\n]")
_MARKUP = re.compile("[<>&']")
_NOT_IN_URLS = re.compile(r"[^A-Za-z0-9_.~-]")
_ARMOUR = re.compile(r"-----(BEGIN|END) ([A-Z0-9 ]+)-----")
_KEYED = re.compile(r"""[\s-]*["']?[A-Za-z_][\w./ -]{0,63}["']?\s*[:=]\s*(?P<rest>[^=].*)""")
_TELLING_NAME = r"""
    (?: pass(?:w|word|wd|phrase)? | pwd | secret | token | credentials? | (?<![a-z])auth(?:orization)?(?![a-z])
        | (?:api|access|private) [_.-]? key )
    (?P<more>[\w.-]{0,32})"""
_TELLING = re.compile(
    rf"""(?ix) {_TELLING_NAME} ["']? \s* [:=] \s*
    (?P<value> "[^"\n]+" | '[^'\n]+' | (?:(?:bearer|basic)\s+)?[^\s"',;&]+ )"""
)
_IS_TELLING = re.compile(rf"(?ix) {_TELLING_NAME} $")
_ABOUT = re.compile(
    r"(?i)(?:name|file|path|url|uri|mode|type|ref|endpoint|policy|length|method|provider|enabled|sock)s?$"
)
"""Ends of keys that speak of a secret without holding it: `secretName`, `tokenUrl`."""
_SCHEME = re.compile(r"(?i)^(?:bearer|basic)\s+")
_USER_INFORMATION = re.compile(r"://[^\s:/@]*:([^\s/@]+)@")


class Form(NamedTuple):
    """A value as it shows, squeezed. Open ends: the character of base64 beside it holds some bits of the value too."""

    text: bytes
    open_start: bool = False
    open_end: bool = False
    is_base64: bool = False


def squeeze(data: bytes) -> bytes:
    """Leave out blanks, quotes, backslashes and escaped line breaks and tabs."""
    for pair in _BREAKS:
        data = data.replace(pair, b"\n")
    return data.translate(None, _DROPPED)


def is_ordinary(text: str) -> bool:
    """Whether a value is too short or too common to be masked."""
    squeezed = squeeze(text.encode("utf-8", "surrogatepass"))
    if len(squeezed) < LEAST or len(set(squeezed)) < _LEAST_VARIETY or text.strip().lower() in ORDINARY:
        return True
    return squeezed.isdigit() and len(squeezed) < _LEAST_DIGITS


def written(text: str, *, in_urls: bool) -> Iterator[Form]:
    """Yield the forms of a text that is written as such, perhaps in URLs too, without blanks around it."""
    text = text.strip()
    spellings = _spellings(text)
    if in_urls and len(text) <= _LONG and _NOT_IN_URLS.search(text):
        octets = text.encode("utf-8", "surrogatepass")
        spellings |= {quote(octets, safe=""), quote(octets), quote_plus(octets)}
    for spelling in spellings:
        yield Form(squeeze(spelling.encode("utf-8", "surrogatepass")))


def encoded(value: bytes) -> Iterator[Form]:
    """Yield the forms of a value in base64, whatever it stands between."""
    for shift in range(3):
        form = _base64(value, shift)
        yield form
        if b"+" in form.text or b"/" in form.text:
            yield form._replace(text=form.text.replace(b"+", b"-").replace(b"/", b"_"))


def _spellings(text: str) -> set[str]:
    """How encoders write a text, as far as squeezing does not make it the same."""
    found = {text}
    if len(text) > _LONG:
        return found | ({json.dumps(text), json.dumps(text, ensure_ascii=False)} if _SPECIAL.search(text) else set())
    if _SPECIAL.search(text):
        octets = repr(text.encode("utf-8", "surrogatepass"))[2:-1]
        found |= {json.dumps(text), json.dumps(text, ensure_ascii=False), repr(text), ascii(text), octets}
        found |= {_yaml(text, bare=bare) for bare in (False, True)}
        # What one encoder leaves bare, JSON around it may escape.
        found |= {json.dumps(each) for each in found}
    if _MARKUP.search(text):
        for dumped in (json.dumps(text), json.dumps(text, ensure_ascii=False)):
            found.add(_MARKUP.sub(lambda match: f"\\u{ord(match[0]):04x}", dumped))
            # As Go does, which leaves the apostrophe.
            found.add(re.sub("[<>&]", lambda match: f"\\u{ord(match[0]):04x}", dumped))
    return found


def _yaml(text: str, *, bare: bool) -> str:
    """Write a text in YAML's double quotes, with characters beyond ASCII bare or escaped."""
    written: str = yaml.dump(text, Dumper=yaml.CSafeDumper, default_style='"', width=1 << 30, allow_unicode=bare)
    return written


def _base64(value: bytes, shift: int) -> Form:
    """Encode a value that stands behind `shift` other bytes: the characters that depend on nothing but the value."""
    bits, end = 8 * shift, 8 * (shift + len(value))
    encoded = base64.b64encode(bytes(shift) + value)
    return Form(encoded[-(-bits // 6) : end // 6], open_start=bits % 6 != 0, open_end=end % 6 != 0, is_base64=True)


def is_telling(name: str) -> bool:
    """Whether the value of a key, an option or a variable of this name is secret by its name."""
    found = _IS_TELLING.search(name)
    return found is not None and not _ABOUT.search(found["more"])


def parts(text: str) -> Iterator[str]:
    """Yield what of a value is secret by itself: what stands behind a telling key, and a password in a URL."""
    text = text[:_MOST_LOOKED_AT]
    for match in _TELLING.finditer(text):
        if not _ABOUT.search(match["more"]):
            yield _SCHEME.sub("", match["value"].strip("\"'"))
    for match in _USER_INFORMATION.finditer(text):
        yield match[1]


def lines(text: str) -> Iterator[str]:
    """Yield the lines of a value of several lines that are secret each.

    One that says `key: value` is not, as files of settings hold many ordinary ones: of it only the value counts, if it
    looks like a token. Certificates are public, line by line.
    """
    found = text[:_MOST_LOOKED_AT].splitlines()
    public = False
    for line in found if len(found) > 1 else ():
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
