"""Spec and status of an object without secret values. Pure.

Hidden are the values that the object's last run treats as secret, values under keys such as `password`, and passwords
in URLs.
"""

from __future__ import annotations

from typing import Any

import orjson

from runner.core.engine.run_secrets import RunSecrets
from runner.core.masking.forms import is_sensitive, parts
from runner.core.masking.masker import MASK, TOO_SLOW, Budget, SearchTimeoutError
from runner.values.objects import Object, mapping, metadata

_LONGEST = 32 << 10
"""Bytes of what is shown."""
_BUDGET = 0.1
"""Seconds of CPU time to search for values."""


def fields_of(obj: Object, secrets: RunSecrets | None) -> dict[str, Any] | str:
    """Return `spec` and `status`, without conditions; or why they are not shown. `secrets`: those of the last run."""
    status, generation = mapping(obj.get("status")), metadata(obj).get("generation")
    if secrets is None or status.get("observedGeneration", generation) != generation:
        return "They are shown when a run of this operator with the current spec has ended."
    if secrets.is_exhausted:
        return secrets.withheld
    status = {name: value for name, value in status.items() if name != "conditions"}
    fields = {name: value for name, value in {"spec": obj.get("spec"), "status": status}.items() if value}
    if len(orjson.dumps(fields)) > _LONGEST:
        return "They are too large to be shown."
    try:
        shown: dict[str, Any] = secrets.masker.value(_hidden(fields), Budget(_BUDGET))
    except SearchTimeoutError:
        return TOO_SLOW
    return shown


def _hidden(value: Any) -> Any:
    if isinstance(value, dict):
        names_secret = is_sensitive(str(value.get("name")))
        return {
            key: MASK if item and (is_sensitive(key) or (names_secret and key == "value")) else _hidden(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return list(map(_hidden, value))
    if isinstance(value, str):
        for part in parts(value):
            value = value.replace(part, MASK) if part else value
    return value
