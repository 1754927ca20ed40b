"""A watches file as an editor reads it: YAML 1.2, in which `yes` and `off` are text, and the JSON Schema."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml
from jsonschema import Draft7Validator

from hack.watch_schema import schema

VALIDATOR = Draft7Validator(json.loads(schema()))
_BOOLEAN = "tag:yaml.org,2002:bool"


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {  # noqa: RUF012 - the name is PyYAML's
        first: [(tag, pattern) for tag, pattern in found if tag != _BOOLEAN]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(_BOOLEAN, re.compile("true|false"), list("tf"))


def read(text: str) -> Any:
    """Return the first document. Raises YAMLError."""
    return yaml.load(text, _Loader)  # noqa: S506 - a safe loader


def is_valid(text: str) -> bool:
    """Return whether an editor marks nothing."""
    try:
        return bool(VALIDATOR.is_valid(read(text)))
    except yaml.YAMLError:
        return False
