"""Hook of mkdocs that adapts pages before rendering.

Fences of the tutorial contain words for its test after their language. Links to files outside docs/ work in repository
browsers, but not on the site: the hook keeps their text.
"""

from __future__ import annotations

import re
from typing import Any

_FENCE = re.compile(r"^( *```[a-z]+) .*$", re.MULTILINE)
_OUTSIDE = re.compile(r"\[([^]]+)\]\((?:\.\./)+(?:runner/|CONTRIBUTING\.md)[^)]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page's text with plain fences and without links to files outside docs/."""
    return _OUTSIDE.sub(r"`\1`", _FENCE.sub(r"\1", markdown))
