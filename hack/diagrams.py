"""Diagrams: boxes on a grid and arrows between them, as SVG. `docs/diagrams/*.toml` contains the sources. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from html import escape
from typing import Any

_CELL, _BOX = (230, 110), (180, 56)
_MARGIN, _LINE = 12, 18
_STYLE = (
    "rect{fill:#e8eaf6;stroke:#5c6bc0}line{stroke:#7986cb;stroke-width:1.5}"
    "text{font:13px sans-serif;text-anchor:middle;fill:#1a237e}.label{font-size:12px;fill:#7986cb}"
)
_ARROW = (
    '<marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0L8 4L0 8z" fill="#7986cb"/></marker>'
)
Point = tuple[float, float]


def svg(source: str) -> str:
    """Return the diagram of a source in TOML."""
    diagram = tomllib.loads(source)
    centers = {box["id"]: _center(*box["at"]) for box in diagram["box"]}
    width, height = (
        int(max(center[axis] for center in centers.values())) + _BOX[axis] // 2 + _MARGIN for axis in (0, 1)
    )
    title = escape(diagram["title"])
    return "\n".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        f"<title>{title}</title>",
        f"<style>{_STYLE}</style>",
        f"<defs>{_ARROW}</defs>",
        *(_arrow(*_ends(arrow, centers), arrow.get("label", "")) for arrow in diagram["arrow"]),
        *(_box(centers[box["id"]], box["text"]) for box in diagram["box"]),
        "</svg>",
        "",
    ))  # fmt: skip


def _center(column: int, row: int) -> Point:
    return _MARGIN + _BOX[0] / 2 + column * _CELL[0], _MARGIN + _BOX[1] / 2 + row * _CELL[1]


def _ends(arrow: Mapping[str, Any], centers: Mapping[str, Point]) -> tuple[Point, Point]:
    start, end = arrow["ends"]
    return centers[start], centers[end]


def _box(center: Point, text: str) -> str:
    lines = text.split("\n")
    top = center[1] + 4 - _LINE * (len(lines) - 1) / 2
    texts = (f'<text x="{center[0]:g}" y="{top + _LINE * n:g}">{escape(line)}</text>' for n, line in enumerate(lines))
    corner = f'x="{center[0] - _BOX[0] / 2:g}" y="{center[1] - _BOX[1] / 2:g}"'
    return f'<rect {corner} width="{_BOX[0]}" height="{_BOX[1]}" rx="6"/>{"".join(texts)}'


def _arrow(start: Point, end: Point, label: str) -> str:
    (x1, y1), (x2, y2) = _border(start, end), _border(end, start)
    line = f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" marker-end="url(#end)"/>'
    is_flat = y1 == y2
    x, y = (x1 + x2) / 2 + (0 if is_flat else 10), (y1 + y2) / 2 + (-6 if is_flat else 4)
    anchor = "middle" if is_flat else "start"
    text = f'<text class="label" x="{x:g}" y="{y:g}" style="text-anchor:{anchor}">{escape(label)}</text>'
    return line + (text if label else "")


def _border(inside: Point, toward: Point) -> Point:
    """Return the point where the line from the center of a box to another point crosses its border."""
    dx, dy = toward[0] - inside[0], toward[1] - inside[1]
    share = min(_BOX[axis] / 2 / abs(each) for axis, each in enumerate((dx, dy)) if each)
    return round(inside[0] + dx * share, 1), round(inside[1] + dy * share, 1)
