"""Secrets that are lent to Things."""

from __future__ import annotations

import base64
from collections.abc import Callable

from tests.kit.objects import Api

Lend = Callable[..., None]
LABEL = "test.example.com/lend-to-thing"


def lending(api: Api, namespace: str) -> Lend:
    """Return a function that makes a Secret with these values, and lends it to Things. `_` in a key means `-`."""

    def make(name: str = "login", *, lent: bool = True, **values: str) -> None:
        keys = {key: "known_hosts" if key == "known_hosts" else key.replace("_", "-") for key in values}
        data = {keys[key]: base64.b64encode(text.encode()).decode() for key, text in values.items()}
        metadata = {"name": name, "labels": {LABEL: "true"} if lent else {}}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        api.apply(f"/api/v1/namespaces/{namespace}/secrets/{name}", secret)

    return make
