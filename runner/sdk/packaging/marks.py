"""Placeholders for Helm templates in YAML documents.

Templates are not valid YAML. So the YAML writer gets a word without special characters instead: as a value, an entry of
a mapping, or an item of a list. After writing, the template replaces the word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from runner.base.yamlfile.edits import Dumper

_VALUE = re.compile(r"HELMVALUE(\d+)X")
_BLOCK = re.compile(r"^( *)(?:- )?HELMBLOCK(\d+)X(?:: null)?\n", re.MULTILINE)


class _Dumper(Dumper):
    """Dumper that writes repeated values again instead of as aliases."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the library's own signature
        return True


@dataclass(slots=True)
class Placeholders:
    """Placeholders of one file."""

    _texts: list[str] = field(default_factory=list)

    def value(self, template: str) -> str:
        """Return a word that becomes `template`, alone or within a string that needs no quotes."""
        return f"HELMVALUE{self._keep(template)}X"

    def block(self, template: str) -> str:
        """Return a key (its value is None) or an item that becomes these lines, with its indentation.

        `@` in the template is the number of columns, `@+2` two more.
        """
        return f"HELMBLOCK{self._keep(template)}X"

    def write(self, document: Any) -> str:
        """Return a document as a template."""
        text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100_000)
        # A `{{` of the document itself is not a template for Helm either.
        text = text.replace("{{", "HELMOPENX").replace("HELMOPENX", '{{ "{{" }}')
        text = _BLOCK.sub(lambda match: self._lines(len(match[1]), int(match[2])), text)
        return _VALUE.sub(lambda match: self._texts[int(match[1])], text)

    def _keep(self, template: str) -> int:
        self._texts.append(template)
        return len(self._texts) - 1

    def _lines(self, columns: int, number: int) -> str:
        template = self._texts[number].replace("@+2", str(columns + 2)).replace("@", str(columns))
        return "".join(f"{' ' * columns}{line}\n" for line in template.splitlines())
