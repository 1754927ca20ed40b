"""What mkdocs does to pages before it reads them.

Fences of the guide carry words for its test behind their language, which mkdocs does not know.
"""

from __future__ import annotations

import re
from typing import Any

_FENCE = re.compile(r"^( *```[a-z]+) .*$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page's text with fences that name a language and nothing else."""
    return _FENCE.sub(r"\1", markdown)
