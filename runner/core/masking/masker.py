"""Masks known secret values in text and in JSON values. Pure.

Guarantees: every form of an added value (see `forms`) is masked, and nothing else. Input without a value is returned as
the same object. Memory is bounded: if there are too many values, `is_exhausted` is set, and the caller must withhold
the text. Time is bounded by a `Budget`: a text that is not searched in time is never returned. `repr` shows no value.
Threads can mask while another thread adds values.

Algorithm: the text is squeezed, and each word of four bytes is looked up in a table of the first words of all forms.
Only at the positions found are the sorted first bytes of all forms searched (`heads`). The time depends on the length
of the text, and on the logarithm of the number of forms.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from runner.core.masking import forms as masking_forms
from runner.core.masking.forms import Form, Heads

MASK = "********"
TOO_SLOW = "withheld: the search for secret values in this text took too long"
"""Replaces a text that could not be searched in time."""

_WORD = 4
_LEAST_INDEXED = 2 * _WORD - 1
"""Length in bytes from which a form contains a whole aligned word at any offset."""
_OFFSETS = tuple(tuple(offset for offset in range(_WORD) if bits >> offset & 1) for bits in range(1 << _WORD))
"""Offsets of a word in the forms that begin with it, by the bits of a number."""
_BRIEF, _LONG = 0.05, 5.0
"""Seconds of CPU time for a text or a document, unless the caller sets a budget."""
_CHECK_EVERY = 64
"""Number of positions between two checks of a budget."""
_WINDOW = 1 << 16
_HEAD = 512
"""Number of bytes of a form in memory; the digest covers the rest of a longer one."""
_MOST_FORMS = 50_000
_MOST_BYTES = 8 << 20
"""Bounds of memory: with the index about 40 MiB."""
_MASK = MASK.encode()
_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
_TOKEN = _BASE64 | frozenset(b"=.~")
_CONTINUES = frozenset(range(0x80, 0xC0))
"""Bytes of a character in UTF-8 after its first one."""
_MOST_PADDING = 2
_BLOCK = 1024
_BACKSLASH = ord("\\")

Span = tuple[int, int]


class SearchTimeoutError(Exception):
    """A text could not be searched within the budget. It may contain values, and must be withheld."""


class Budget:
    """CPU time of the current thread for searches. Create it in the thread that searches."""

    __slots__ = ("_end",)

    def __init__(self, seconds: float) -> None:
        self._end = time.thread_time() + seconds

    def check(self) -> None:
        """Raise SearchTimeoutError if the time is used up."""
        if time.thread_time() > self._end:
            raise SearchTimeoutError


class _Needle(NamedTuple):
    """First bytes of a form, and length and digest to find its end."""

    head: bytes
    length: int
    digest: bytes
    form: Form


class Masker:
    """Masker of added values. `exempt` are words that are never masked."""

    __slots__ = (
        *("_adding", "_bytes", "_by_head", "_count", "_exempt", "_heads", "_index", "_known", "_shifted"),
        "is_exhausted",
    )

    def __init__(self, exempt: Iterable[str] = ()) -> None:
        self._exempt = frozenset(exempt)
        self._known: set[bytes] = set()
        self._adding = threading.Lock()
        self._count = 0
        self._by_head: dict[bytes, tuple[_Needle, ...]] = {}
        self._heads = Heads(_HEAD)
        self._index: dict[int, int] = {}
        """Bits of the offsets of each word in the heads."""
        self._shifted: dict[int, int] = {}
        """The same for short heads that begin one byte after an aligned word: they contain no other."""
        self._bytes = 0
        self.is_exhausted = False
        """Whether some values were not added."""

    def __repr__(self) -> str:
        return f"<Masker of {len(self._known)} values>"

    def __bool__(self) -> bool:
        """Return whether there is any value to mask."""
        return bool(self._count) or self.is_exhausted

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
        for part in (text, *masking_forms.parts(text)):
            word = part.strip()
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
        with self._adding:
            if name in self._known or self.is_exhausted:
                return
            for form in forms:
                if len(form.text) >= masking_forms.LEAST:
                    self._add_form(form)
            self._known.add(name)
            self._bytes += len(name)

    def _add_form(self, form: Form) -> None:
        head = form.text[:_HEAD]
        if self._count >= _MOST_FORMS or self._bytes + len(head) > _MOST_BYTES:
            self.is_exhausted = True
            return
        digest = b"" if len(head) == len(form.text) else _digest(form.text)
        needle = _Needle(head, len(form.text), digest, form._replace(text=b""))
        alike = self._by_head.get(head, ())
        if needle in alike:
            return
        self._bytes += len(head)
        self._by_head[head] = (*alike, needle)
        if not alike:
            self._add_head(head)
        self._count += 1

    def _add_head(self, head: bytes) -> None:
        self._heads.add(head)
        for offset in range(min(_WORD, len(head) - _WORD + 1)):
            _add_word(self._index, head, offset)
        if len(head) < _LEAST_INDEXED:
            _add_word(self._shifted, head, 0)

    def finds(self, data: bytes, budget: Budget | None = None) -> bool:
        """Return whether the text contains a value.

        Raises:
            SearchTimeoutError: the budget does not suffice, as in `data` and `value`.
        """
        return next(self._spans(masking_forms.squeeze(data), budget or Budget(_LONG)), None) is not None

    def data(self, data: bytes, budget: Budget | None = None) -> bytes:
        """Return the masked text."""
        budget = budget or Budget(_LONG)
        spans = _merged(self._spans(masking_forms.squeeze(data), budget))
        return _replaced(data, spans, budget) if spans else data

    def text(self, text: str, budget: Budget | None = None) -> str:
        """Return the masked text, or `TOO_SLOW` if the budget does not suffice. Without a budget the call is brief."""
        try:
            return self._text(text, budget or Budget(_BRIEF))
        except SearchTimeoutError:
            return TOO_SLOW

    def _text(self, text: str, budget: Budget) -> str:
        data = text.encode("utf-8", "surrogatepass")
        masked = self.data(data, budget)
        return text if masked is data else masked.decode("utf-8", "surrogatepass")

    def value(self, value: Any, budget: Budget | None = None) -> Any:
        """Return a JSON value with masked strings and keys; numbers that equal a value are masked too.

        Raises RecursionError if the value is nested too deeply.
        """
        budget = budget or Budget(_LONG)
        if isinstance(value, str):
            return self._text(value, budget)
        if isinstance(value, dict):
            masked = {
                self._text(name, budget) if isinstance(name, str) else name: self.value(item, budget)
                for name, item in value.items()
            }
            same = all(
                new is old and masked[new] is item for new, (old, item) in zip(masked, value.items(), strict=False)
            )
            return value if same and len(masked) == len(value) else masked
        if isinstance(value, list):
            items = [self.value(item, budget) for item in value]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else items
        if isinstance(value, int | float) and not isinstance(value, bool):
            return MASK if self._text(str(value), budget) == MASK else value
        return value

    def _spans(self, squeezed: bytes, budget: Budget) -> Iterator[Span]:
        """Yield the spans of all forms in any order; they can overlap."""
        budget.check()
        yield from self._indexed_spans(squeezed, self._index, 0, budget)
        if self._shifted:
            yield from self._indexed_spans(squeezed, self._shifted, 1, budget)

    def _indexed_spans(self, squeezed: bytes, index: dict[int, int], shift: int, budget: Budget) -> Iterator[Span]:
        words = index.keys()
        for base in range(shift, len(squeezed), _WINDOW):
            window = squeezed[base : base + _WINDOW]
            view = memoryview(window[: len(window) // _WORD * _WORD]).cast("I")
            if words.isdisjoint(view):
                continue
            looked = 0
            for number, word in enumerate(view):
                if word in words:
                    if looked % _CHECK_EVERY == 0:
                        budget.check()
                    looked += 1
                    yield from self._spans_at(squeezed, base + number * _WORD, index[word], budget)

    def _spans_at(self, squeezed: bytes, position: int, offsets: int, budget: Budget) -> Iterator[Span]:
        """Yield the spans of the forms whose first words are at a position."""
        for offset in _OFFSETS[offsets]:
            if offset > position:
                continue
            for head in self._heads.at(squeezed, position - offset):
                for needle in self._by_head[head]:
                    if needle.digest:
                        budget.check()
                    yield _extent(squeezed, position - offset, needle)


def _add_word(index: dict[int, int], head: bytes, offset: int) -> None:
    word = int.from_bytes(head[offset : offset + _WORD], sys.byteorder)
    index[word] = index.get(word, 0) | 1 << offset


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
            while end < len(squeezed) and squeezed[end] in _CONTINUES:  # no part of a character remains
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


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Sort the spans and merge those that overlap: first those that arrive in order, to use little memory."""
    return _joined(sorted(_joined(spans)))


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Merge each span with the one before it if they overlap."""
    joined: list[Span] = []
    for start, end in spans:
        if joined and joined[-1][0] <= start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _replaced(data: bytes, spans: list[Span], budget: Budget) -> bytes:
    """Replace spans of squeezed text in `data`, the text before squeezing."""
    positions = _positions(data, [position for start, end in spans for position in (start, end - 1)])
    pieces: list[bytes] = []
    copied = 0
    for first, last in zip(positions, positions, strict=True):
        budget.check()
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
