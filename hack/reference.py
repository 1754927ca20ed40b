"""Writes the pages of the book that are made from code: fields of watches.yaml, annotations, flags.

usage: python -m hack.reference     A test fails while a page says something else than this.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hack.annotations import ON_RESOURCES, ON_WRITTEN, Annotation
from hack.watch_fields import SECTIONS, Field
from runner.config.options import PREFIX, Option
from runner.config.settings import GROUPS

DOCS = Path(__file__).resolve().parents[1] / "docs"
_WATCHES = """\
# Reference: watches.yaml

<!-- Made by `make reference`; edit hack/watch_fields.py instead. -->

A list, an entry for each kind:

```yaml
- group: cache.example.com
  version: v1alpha1
  kind: Memcached
  role: memcached
```

Names of fields match without regard to case; an unknown field is a warning. `${VAR}` and `$VAR` are replaced from the
environment, and stay as they are when the variable is not set. A duration is written like `90s`, `10m` or `1h30m`.
`ansible-operator validate` checks a file and tells all that is wrong with it at once. The last column says whether the
Go operator has the field: yes, or new here.
"""
_ANNOTATIONS = """\
# Reference: annotations

<!-- Made by `make reference`; edit hack/annotations.py instead. -->

Values of annotations are text: quote `"true"`, `"false"` and numbers. The last column says whether the Go operator has
it too.
"""
_FLAGS = f"""\
# Reference: flags of run

<!-- Made by `make reference`; edit runner/config/settings.py instead. -->

What `ansible-operator run` takes. A flag is written `--flag=value` or `--flag value`; a boolean may stand alone. Each
can be set in the environment too, as `{PREFIX}` and the flag in upper case with underscores:
`{PREFIX}RECONCILE_PERIOD=1h`. The flag wins over the environment, and that over the default. Flags of other
commands: `ansible-operator COMMAND --help`.
"""
_VARIABLES = """\
## Other variables

Read from the environment, and not by flags. `<KIND>_<GROUP>` is in upper case, with underscores for dots.

| variable | meaning |
|---|---|
| `ANSIBLE_VERBOSITY_<KIND>_<GROUP>` | `--ansible-verbosity` for one kind |
| `MAX_CONCURRENT_RECONCILES_<KIND>_<GROUP>` | `--max-concurrent-reconciles` for one kind |
| `WORKER_<KIND>_<GROUP>` | the same, deprecated |
| `ANSIBLE_GATHERING` | `explicit`: no facts are gathered when a watch names a role |
| `ANSIBLE_INVENTORY` | file or folder of an inventory, instead of plain localhost |
| `ANSIBLE_DEBUG_LOGS` | `true`: the whole output of each run is printed when it ends |
| `POD_NAME` | this pod's name |

A run has the operator's whole environment.
"""


def pages() -> dict[str, str]:
    """Return each page's name and text."""
    return {
        "watches-reference.md": _text(_watches()),
        "annotations.md": _text(_annotations()),
        "flags.md": _text(_flags()),
    }


def _text(parts: Iterator[str]) -> str:
    return "\n".join(parts).rstrip("\n") + "\n"


def _watches() -> Iterator[str]:
    yield _WATCHES
    for title, fields in SECTIONS:
        yield from (f"## {title}\n", "| field | type | default | meaning | example | Go |", "|---|---|---|---|---|---|")
        yield from map(_row, fields)
        yield ""


def _row(field: Field) -> str:
    default = f"`{field.default}`" if field.default else ""
    return f"| `{field.path}` | {field.type} | {default} | {field.meaning} | `{field.example}` | {field.known} |"


def _annotations() -> Iterator[str]:
    yield _ANNOTATIONS
    yield "## On a watched resource\n"
    yield from _table(ON_RESOURCES)
    yield "\nAn annotation wins over `watches.yaml`, and that over the flag.\n"
    yield "## On what roles write\n"
    yield from _table(ON_WRITTEN)
    yield "\nWhat belongs to whom is told in [proxy.md](proxy.md#ownership).\n"


def _table(annotations: tuple[Annotation, ...]) -> Iterator[str]:
    yield from ("| annotation | value | meaning | Go |", "|---|---|---|---|")
    for each in annotations:
        yield f"| `{each.name}` | {each.value} | {each.meaning} | {each.known} |"


def _flags() -> Iterator[str]:
    yield _FLAGS
    for title, options in GROUPS.items():
        yield from (f"## {title}\n", "| flag | value | default | meaning |", "|---|---|---|---|")
        yield from map(_flag, options)
        yield ""
    yield _VARIABLES


def _flag(option: Option) -> str:
    value = "true, false" if option.is_boolean else option.metavar
    default = f"`{option.default}`" if option.default and not option.deprecated else ""
    deprecated = ", deprecated" if option.other_is_deprecated else ""
    also = f"; also `${option.other_variable}`{deprecated}" if option.other_variable else ""
    meaning = option.help.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")
    return f"| `--{option.flag}` | {value} | {default} | {meaning}{also} |"


def main() -> None:
    """Write the pages."""
    for name, text in pages().items():
        (DOCS / name).write_text(text)


if __name__ == "__main__":
    main()
