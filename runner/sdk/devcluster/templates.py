"""Configuration files and objects of a cluster, from the files in `templates/`. `${name}` is replaced in them."""

from __future__ import annotations

import json
from pathlib import Path
from string import Template
from typing import Any

import yaml

_ROOT = Path(__file__).parent / "templates"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def text(name: str, /, **values: object) -> str:
    """Return a file. Values are for quoted strings of JSON, YAML or TOML."""
    quoted = {key: json.dumps(str(value))[1:-1] for key, value in values.items()}
    return Template((_ROOT / name).read_text(encoding="utf-8")).substitute(quoted)


def parsed(name: str, /, **values: object) -> Any:
    """Return the content of a YAML file. The objects in a file have their paths in the API as keys."""
    return yaml.load(text(name, **values), Loader=_LOADER)  # noqa: S506 - a safe loader
