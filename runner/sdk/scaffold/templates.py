"""Files of a new project: literal files below `templates/`. `@{name}` is replaced in them and in their paths.

`dot-` at the start of a file's name is replaced by `.`, so that tools ignore the templates themselves.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from runner.base.yamlfile import edits

_ROOT = Path(__file__).parent / "templates"
_WHOLE = re.compile(r"(?<=[:-] )@\{([a-z_]+)\}(?=$|@\{)", re.MULTILINE)


class _Template(string.Template):
    """Template with `@{name}` only: Makefiles, Ansible and shells use `$`, `{{` and `@` themselves."""

    # `string.Template` requires these four groups; two of them never match.
    pattern: ClassVar[Any] = r"@\{(?:(?P<braced>[a-z_]+)\}|(?P<invalid>)(?P<named>(?!))?(?P<escaped>(?!))?)"


def render(text: str, values: Mapping[str, Any]) -> str:
    """Return the text with each `@{name}` replaced. A whole value of YAML gets quotes if it needs them.

    Raises:
        KeyError: a name has no value.
    """
    text = _WHOLE.sub(lambda match: edits.scalar(values[match[1]]), text)
    return _Template(text).substitute(values)


def tree(name: str, values: Mapping[str, Any], root: Path = _ROOT) -> Iterator[tuple[PurePosixPath, str]]:
    """Yield path and text of each file of a folder of templates, in order of their paths."""
    base = root / name
    for path in sorted(path for path in base.rglob("*") if path.is_file()):
        relative = PurePosixPath(render(path.relative_to(base).as_posix(), values))
        if relative.name.startswith("dot-"):
            relative = relative.with_name(f".{relative.name.removeprefix('dot-')}")
        yield relative, render(path.read_text(encoding="utf-8"), values)


def snippet(name: str, values: Mapping[str, Any]) -> str:
    """Return a part of a file."""
    return render((_ROOT / "snippets" / name).read_text(encoding="utf-8"), values)
