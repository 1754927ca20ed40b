"""Compiles the templates in the files of watched roles and playbooks before runs need them, while no run waits.

Runs note what they compile, but the first ones after a start have no run before them. A file that cannot be read, or a
template that cannot be compiled, is left to the runs, which report it. Import this module only where `model` has loaded
Ansible.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from runner.engines.warm import versions
from runner.engines.warm.patches import templates
from runner.engines.warm.patches.templates import CompiledTemplates, Key
from runner.engines.warm.server import preload

_CONDITIONS = frozenset({"when", "changed_when", "failed_when", "until", "that", "break_when"})
"""Keywords whose values are expressions."""
_LARGEST = 1 << 20
"""Maximum bytes of a file, which a run may wait for."""
_MOST_VALUES = 20_000
"""Maximum number of values that are searched in a file; aliases can multiply them."""


class _Loader(yaml.CSafeLoader):
    """Reads values with a tag, such as `!vault` and `!unsafe`, as null: they have no templates."""


_Loader.add_multi_constructor("!", lambda *_: None)


def compile_files(files: Iterable[str], template_files: Iterable[str], compiled: CompiledTemplates) -> Iterator[None]:
    """Compile the templates in YAML files, and files that are templates, and add them to `compiled`.

    Yields after each file and each template.
    """
    made = versions.template_environments()[0]
    plugins, environment = made(), made()
    every = [*((path, False) for path in sorted(files)), *((path, True) for path in sorted(template_files))]
    for path, is_template in every:
        keys = _keys(Path(path), is_template=is_template)
        yield
        for key in keys:
            if len(compiled.known) >= templates.MOST:
                return
            if key not in compiled.known:
                with contextlib.suppress(Exception), preload.undo_if_reported():
                    templates.compile_text(compiled, plugins, environment, key)
                yield


def _keys(path: Path, *, is_template: bool) -> Iterable[Key]:
    """Return the keys that runs probably use for the templates of a file; empty if it cannot be read."""
    try:
        if path.stat().st_size > _LARGEST:
            return ()
        text = path.read_bytes().decode()
        if is_template:
            keys = [templates.key_of_text(text, is_file=True)]
        else:
            values = _values(yaml.load(text, _Loader), is_condition=False)  # noqa: S506 - it is a safe loader
            texts = itertools.islice(values, _MOST_VALUES)
            keys = [templates.key_of_text(value, is_condition=kind) for value, kind in texts if value]
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return ()
    return dict.fromkeys(key for key in keys if key)


def _values(value: object, *, is_condition: bool) -> Iterator[tuple[str, bool]]:
    """Yield each value: its text, empty if it has no template, and whether it is a condition."""
    match value:
        case list():
            for item in value:
                yield from _values(item, is_condition=is_condition)
        case dict():
            for name, item in value.items():
                yield from _values(item, is_condition=name in _CONDITIONS)
        case str() if is_condition or "{{" in value or "{%" in value:
            yield value, is_condition
        case _:
            yield "", False
