"""The offline check of samples accepts and rejects what the API server does."""

from __future__ import annotations

from typing import Any

import yaml

from runner.base.yamlfile import tree
from runner.core.kube.client import Client
from runner.sdk.schema import structural
from runner.values.errors import ApiError
from tests.integration.kube.widgets import Kind

TEXT: dict[str, Any] = {"type": "string"}
SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["must"],
    "properties": {
        "must": {"type": "boolean", "default": True},
        "text": {**TEXT, "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
        "choice": {**TEXT, "enum": ["a", "b"]},
        "whole": {"type": "integer", "minimum": 1, "maximum": 5, "exclusiveMaximum": True},
        "number": {"type": "number", "multipleOf": 0.5},
        "port": {"x-kubernetes-int-or-string": True},
        "nullable": {**TEXT, "nullable": True},
        "list": {"type": "array", "maxItems": 2, "items": TEXT},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 2},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": TEXT}},
        "free": {"x-kubernetes-preserve-unknown-fields": True},
        "template": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "properties": {"spec": {"type": "object", "properties": {"a": TEXT}}},
        },
        "nested": {"type": "object", "required": ["a"], "properties": {"a": TEXT, "b": TEXT}},
        "one": {
            "type": "object",
            "properties": {"a": TEXT, "b": TEXT},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        "any": {"type": "integer", "anyOf": [{"minimum": 10}, {"maximum": 2}]},
        "not": {**TEXT, "not": {"enum": ["forbidden"]}},
        "all": {**TEXT, "allOf": [{"minLength": 2}, {"maxLength": 3}]},
    },
}
GOOD = """
- {}
- {must: false, text: abc, choice: b, whole: 4, number: 1.5, nullable: null}
- {must: null, text: null}
- {port: 80}
- {port: http}
- {whole: 4.0}
- {list: [a, "1"], map: {a: 1}, open: {a: x, b: [1]}, free: [1, {a: 2}]}
- {free: null, open: {b: null}}
- {template: {apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {a: x}}}
- {nested: {a: x}}
- {one: {a: x}}
- {any: 1}
- {any: 12}
- {not: permitted, all: abc}
"""
BAD = """
- {must: "yes"}
- {text: a}
- {text: abcde}
- {text: ABC}
- {text: 12}
- {text: true}
- {choice: c}
- {whole: 0}
- {whole: 5}
- {whole: 1.5}
- {whole: "1"}
- {number: 0.7}
- {port: 1.5}
- {port: true}
- {list: [a, b, c]}
- {list: [null]}
- {list: [1]}
- {list: a}
- {map: {a: x}}
- {map: {a: 1, b: 2, c: 3}}
- {map: [a]}
- {open: {a: 1}}
- {template: {spec: {a: x}}}
- {template: {apiVersion: v1, kind: Pod, spec: {b: x}}}
- {nested: {}}
- {nested: {b: x}}
- {nested: {a: null}}
- {nested: {a: x, c: x}}
- {one: {}}
- {one: {a: x, b: x}}
- {any: 5}
- {not: forbidden}
- {all: a}
- {all: abcd}
- {unknown: 1}
"""


async def test_the_check_of_samples_agrees_with_the_api_server(client: Client, namespace: str) -> None:
    schema = {"type": "object", "properties": {"spec": SPEC}}
    kind = Kind(client)
    widgets = await kind.install(schema)
    differing: list[str] = []
    for expected, text in ((True, GOOD), (False, BAD)):
        (specs,) = yaml.compose_all(text, Loader=yaml.SafeLoader)
        for spec in specs.value:
            body = {"apiVersion": kind.gvk.api_version, "kind": kind.gvk.kind, "metadata": {"name": "w"}}
            body["spec"] = tree.plain(spec)
            verdict = "accepted"
            try:
                params = {"dryRun": "All", "fieldValidation": "Strict"}
                await client.request("POST", widgets.path(namespace), params=params, body=body)
            except ApiError as error:
                verdict = str(error)
            (root,) = yaml.compose_all(yaml.safe_dump(body), Loader=yaml.SafeLoader)
            found = [f"{each.path}: {each.message}" for each in structural.violations(root, schema)]
            if not ((verdict == "accepted") is (not found) is expected):
                differing.append(f"{body['spec']}: the API server: {verdict}; the check: {found}")
    await kind.remove()
    assert differing == []
