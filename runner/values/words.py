"""Parts of messages. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def meant(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return `; did you mean X?` with the prefix before X; empty if no known name is similar."""
    close = difflib.get_close_matches(name, [*known], n=1)
    return f"; did you mean {prefix}{close[0]}?" if close else ""


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters; a longer one ends with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
