"""Hook of mkdocs that adapts pages before rendering.

Fences of the tutorial contain words for its test after their language. Links to files outside docs/ work in repository
browsers, but not on the site: the hook keeps their text. Links whose text is a file name get the title of their target.
A comment `buttons` becomes its links, as buttons.
Long code in tables can break after its separators, not inside a word. A comment `screenshot` becomes the pictures that
hack/screenshots.py has written.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_FENCE = re.compile(r"^( *```[a-z]+) .*$", re.MULTILINE)
_OUTSIDE = re.compile(r"\[([^]]+)\]\((?:\.\./)+(?:runner/|examples/feature|CONTRIBUTING\.md)[^)]*\)")


_FILE_NAME = re.compile(r"\[[\w./-]+\.md\]\((?P<path>[\w./-]+\.md)(?P<anchor>#[\w-]+)?\)")
_BUTTONS = re.compile(r"<!-- buttons: (?P<links>.+) -->")
_SCREENSHOT = re.compile(r"<!-- screenshot: (?P<name>[\w-]+): (?P<text>.+) -->")
_CELL = re.compile(r"<td.*?</td>", re.DOTALL)
_CODE = re.compile(r"<code>([^<]*)</code>")
_BREAK = re.compile(r"([/._=,-])(?=\w)")
_SHORT = 16
"""Characters of code that does not break."""
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return a page's text for the site."""
    folder = Path(page.file.abs_src_path).parent
    plain = _OUTSIDE.sub(r"`\1`", _FENCE.sub(r"\1", markdown))
    plain = _BUTTONS.sub(lambda found: found["links"].replace(")", "){ .md-button }"), plain)
    plain = _SCREENSHOT.sub(lambda found: _pictures(found, folder), plain)
    return _FILE_NAME.sub(lambda found: _titled(found, folder), plain)


def on_page_content(html: str, **_: Any) -> str:
    """Return the HTML of a page with places for line breaks in the code of tables."""
    return _CELL.sub(lambda cell: _CODE.sub(_breakable, cell[0]), html)


def _breakable(code: re.Match[str]) -> str:
    if len(code[1]) <= _SHORT:
        return f'<code class="short">{code[1]}</code>'
    return "<code>" + _BREAK.sub(r"\1<wbr>", code[1]) + "</code>"


def _pictures(marker: re.Match[str], folder: Path) -> str:
    """Return the light and the dark screenshot of a marker, if hack/screenshots.py has made them."""
    files = [(scheme, f"screenshots/{marker['name']}-{scheme}.png") for scheme in ("light", "dark")]
    there = [each for each in files if (folder / each[1]).exists()]
    return "\n".join(f"![{marker['text']}]({file}#only-{scheme})" for scheme, file in there)


def _titled(link: re.Match[str], folder: Path) -> str:
    """Return a link with the heading that it leads to as its text. A broken link stays, and mkdocs reports it."""
    target = folder / link["path"]
    headings = _HEADING.findall(target.read_text(encoding="utf-8")) if target.is_file() else []
    anchor = link["anchor"] or ""
    wanted = [each for each in headings if not anchor or _slug(each) == anchor[1:]]
    return f"[{wanted[0]}]({link['path']}{anchor})" if wanted else link[0]


def _slug(heading: str) -> str:
    """Return the anchor of a heading as mkdocs makes it."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())
