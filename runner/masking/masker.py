"""Masks known secret values in text and in JSON values. Pure.

Guarantees: every form of an added value (see `forms`) is masked, and nothing else. Input without a value is returned as
the same object. Memory is bounded: if there are too many values, `is_exhausted` is set, and the caller must withhold
the text. `repr` shows no value. One thread can mask while another adds values.

Algorithm: the text is squeezed and searched for the first bytes of every form. With many forms, each word of four
bytes is looked up in a table of the first words of all forms. The time then depends on the length of the text only.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from runner.masking import forms as masking_forms
from runner.masking.forms import Form

MASK = "********"

_FEW = 48
"""Number of forms up to which a search for each is faster."""
_WORD = 4
_LEAST_INDEXED = 2 * _WORD - 1
"""Length in bytes from which a form contains a whole aligned word at any offset."""
_WINDOW = 1 << 16
_HEAD = 512
"""Number of bytes of a form in memory; the digest covers the rest of a longer one."""
_MOST_FORMS = 50_000
_MOST_BYTES = 8 << 20
"""Bounds of memory: with the index about 40 MiB."""
_MASK = MASK.encode()
_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
_TOKEN = _BASE64 | frozenset(b"=.~")
_MOST_PADDING = 2
_BLOCK = 1024
_BACKSLASH = ord("\\")

Span = tuple[int, int]


class _Needle(NamedTuple):
    """First bytes of a form, and length and digest to find its end."""

    head: bytes
    length: int
    digest: bytes
    form: Form


class Masker:
    """Masker of added values. `exempt` are words that are never masked."""

    __slots__ = ("_bytes", "_exempt", "_index", "_known", "_needles", "_short", "is_exhausted")

    def __init__(self, exempt: Iterable[str] = ()) -> None:
        self._exempt = frozenset(exempt)
        self._known: set[bytes] = set()
        self._needles: list[_Needle] = []
        self._short: list[_Needle] = []
        self._index: dict[int, list[tuple[int, _Needle]]] = {}
        self._bytes = 0
        self.is_exhausted = False
        """Whether some values were not added."""

    def __repr__(self) -> str:
        return f"<Masker of {len(self._known)} values>"

    def __bool__(self) -> bool:
        """Return whether there is any value to mask."""
        return bool(self._needles) or self.is_exhausted

    def exhaust(self) -> None:
        """Record that some values cannot be added."""
        self.is_exhausted = True

    def add(self, value: str | bytes, exempt: Collection[str] = ()) -> None:
        """Add a value and its secret parts; `exempt` as in the class, for this value only."""
        if isinstance(value, bytes):
            try:
                text = value.decode()
            except UnicodeDecodeError:
                if len(value) >= masking_forms.LEAST:
                    self._add_value(value, masking_forms.encoded(value))
                return
        else:
            text = value
        for each in (text, *masking_forms.parts(text)):
            word = each.strip()
            if self._is_secret(word, exempt):
                data = word.encode("utf-8", "surrogatepass")
                self._add_value(data, chain(masking_forms.written(word, in_urls=True), masking_forms.encoded(data)))
        for line in masking_forms.lines(text):
            if self._is_secret(line, exempt):
                self._add_value(line.encode("utf-8", "surrogatepass"), masking_forms.written(line, in_urls=False))

    def _is_secret(self, word: str, exempt: Collection[str]) -> bool:
        return not masking_forms.is_ordinary(word) and word not in self._exempt and word not in exempt

    def _add_value(self, value: bytes, forms: Iterable[Form]) -> None:
        name = value if len(value) <= _HEAD else hashlib.blake2b(value).digest()
        if name in self._known or self.is_exhausted:
            return
        for form in forms:
            if len(form.text) >= masking_forms.LEAST:
                self._add_form(form)
        self._known.add(name)
        self._bytes += len(name)

    def _add_form(self, form: Form) -> None:
        head = form.text[:_HEAD]
        if len(self._needles) >= _MOST_FORMS or self._bytes + len(head) > _MOST_BYTES:
            self.is_exhausted = True
            return
        digest = b"" if len(head) == len(form.text) else _digest(form.text)
        needle = _Needle(head, len(form.text), digest, form._replace(text=b""))
        self._bytes += len(head)
        if len(self._needles) == _FEW:
            for earlier in self._needles:
                self._add_to_index(earlier)
        if len(self._needles) >= _FEW:
            self._add_to_index(needle)
        self._needles.append(needle)

    def _add_to_index(self, needle: _Needle) -> None:
        if len(needle.head) < _LEAST_INDEXED:
            self._short.append(needle)
            return
        for offset in range(_WORD):
            word = int.from_bytes(needle.head[offset : offset + _WORD], sys.byteorder)
            self._index.setdefault(word, []).append((offset, needle))

    def finds(self, data: bytes) -> bool:
        """Return whether the text contains a value."""
        return next(self._spans(masking_forms.squeeze(data)), None) is not None

    def data(self, data: bytes) -> bytes:
        """Return the masked text."""
        spans = _merged(self._spans(masking_forms.squeeze(data)))
        return _replaced(data, spans) if spans else data

    def text(self, text: str) -> str:
        """Return the masked text."""
        data = text.encode("utf-8", "surrogatepass")
        masked = self.data(data)
        return text if masked is data else masked.decode("utf-8", "surrogatepass")

    def value(self, value: Any) -> Any:
        """Return a JSON value with masked strings and keys; numbers that equal a value are masked too.

        Raises RecursionError if the value is nested too deeply.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            masked = {
                self.text(name) if isinstance(name, str) else name: self.value(each) for name, each in value.items()
            }
            same = all(
                new is old and masked[new] is each for new, (old, each) in zip(masked, value.items(), strict=False)
            )
            return value if same and len(masked) == len(value) else masked
        if isinstance(value, list):
            items = [self.value(each) for each in value]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else items
        if isinstance(value, int | float) and not isinstance(value, bool):
            return MASK if self.text(str(value)) == MASK else value
        return value

    def _spans(self, squeezed: bytes) -> Iterator[Span]:
        """Yield the spans of all forms in any order; they can overlap."""
        few = len(self._needles) <= _FEW
        for needle in self._needles if few else self._short:
            start = squeezed.find(needle.head)
            while start >= 0:
                yield _extent(squeezed, start, needle)
                start = squeezed.find(needle.head, start + 1)
        if not few:
            yield from self._indexed_spans(squeezed)

    def _indexed_spans(self, squeezed: bytes) -> Iterator[Span]:
        words = self._index.keys()
        for base in range(0, len(squeezed), _WINDOW):
            window = squeezed[base : base + _WINDOW]
            view = memoryview(window[: len(window) // _WORD * _WORD]).cast("I")
            if words.isdisjoint(view):
                continue
            for number, word in enumerate(view):
                for offset, needle in self._index.get(word, ()):
                    start = base + number * _WORD - offset
                    if start >= 0 and squeezed.startswith(needle.head, start):
                        yield _extent(squeezed, start, needle)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _extent(squeezed: bytes, start: int, needle: _Needle) -> Span:
    """Return the span of the form at `start`; a truncated form extends over all characters of a token."""
    end = start + len(needle.head)
    if needle.digest:
        whole = squeezed[start : start + needle.length]
        if len(whole) == needle.length and _digest(whole) == needle.digest:
            end = start + needle.length
        else:
            last = min(start + needle.length, len(squeezed))
            while end < last and squeezed[end] in _TOKEN:
                end += 1
    form = needle.form
    if form.open_start and start and squeezed[start - 1] in _BASE64:
        start -= 1
    if form.open_end and end < len(squeezed) and squeezed[end] in _BASE64:
        end += 1
    if form.is_base64:
        padding = squeezed[end : end + _MOST_PADDING]
        end += len(padding) - len(padding.lstrip(b"="))
    return start, end


def _merged(spans: Iterator[Span]) -> list[Span]:
    """Sort the spans and merge those that overlap."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _replaced(data: bytes, spans: list[Span]) -> bytes:
    """Replace spans of squeezed text in `data`, the text before squeezing."""
    positions = _positions(data, [position for start, end in spans for position in (start, end - 1)])
    pieces: list[bytes] = []
    copied = 0
    for first, last in zip(positions, positions, strict=True):
        pieces += (data[copied:first], _MASK)
        copied = last + 1
    pieces.append(data[copied:])
    return b"".join(pieces)


def _positions(data: bytes, squeezed: Iterable[int]) -> Iterator[int]:
    """Yield the positions in `data` of positions in the squeezed text, which ascend."""
    start = end = before = kept = 0
    for position in squeezed:
        while position >= before + kept:
            start, before = end, before + kept
            end = start + _BLOCK
            while end < len(data) and data[end - 1] == _BACKSLASH:
                end += 1
            kept = len(masking_forms.squeeze(data[start:end]))
        inside = position - before
        for run in masking_forms.RUN.finditer(data[start:end]):
            if run.start() > inside:
                break
            inside += run.end() - run.start()
        yield start + inside
