"""Values of fields that cannot be used: each is one error that names the field."""

from __future__ import annotations

import pytest
import yaml

from tests.unit.watches.sample import HEAD, MEMCACHED, Errors, Load

INVALID: dict[str, list[tuple[str, str]]] = {
    # An empty account does not mean the operator's own.
    "serviceAccount": [(text, "") for text in ("a/b/c", "/narrow", "tools/", "Narrow", "a.b/c", "a:b", "{name: a}")]
    + [(text, "") for text in ("", '""', "$EMPTY", "$UNSET")],
    "reconcilePeriod": [(text, "") for text in ("10", "1d", '""', "true", "[1m]", "soon")],
    "maxRunnerArtifacts": [(text, "") for text in ('"5"', "1.5", "true", "-2", "{}")],
    "manageStatus": [
        ('"true"', "found text ('true'), expected true or false without quotes"),
        ("1", "found a number ('1'), expected true or false"),
        ("maybe", "found text ('maybe'), expected true or false"),
        ("[]", "found a list, expected true or false"),
    ],
    "vars": [
        ("[1]", "found a list, expected a mapping"),
        ("text", "found text ('text'), expected a mapping"),
        ("{a: .inf}", "cannot be represented in JSON"),
        ("{[1]: a}", "invalid key: found a list"),
        ("&a {b: *a}", "contains itself"),
        ("{a: !!binary /w==}", "is not text"),
        ("{<<: 1}", "`<<` requires a mapping"),
        ('"\\ud800"', "expected a mapping"),
        ('{a: "\\ud800"}', "unpaired surrogate escape"),
    ],
    "engine": [("fast", "invalid engine 'fast': use auto, warm or exec")],
    "ready": [("always", "invalid value 'always': use run or dependents")],
    "prune": [("always", "invalid value 'always': use off, report or delete")],
    "prune.then": [("remove", "invalid value 'remove': use off, report or delete")],
    "prune.kinds": [("[ConfigMap]", "invalid kind 'ConfigMap': use CustomResourceDefinition, Namespace, ")],
    "finalizer": [
        ("{name: example.com/f}", "nothing to run"),
        ("{name: example.com/f, vars: {}}", "nothing to run"),
        ("example.com/f", "found text ('example.com/f'), expected a mapping with name, role, playbook, vars"),
    ],
    "selector": [("app=cache", "found text")],
    "selector.matchLabels": [
        ("[a]", "found a list"),
        ("{a: [b]}", "expected a mapping of text to text"),
        ("{a b: c}", "invalid name 'a b'"),
        ("{a: -c}", "invalid label value '-c'"),
    ],
    "selector.matchExpressions": [("{a: b}", "found a mapping")],
    "fieldSelector": [
        ("", "empty: set a value"),
        ("main", "invalid field selector 'main': use path=value"),
        ("{metadata.name: a}", "found a mapping, expected text"),
    ],
    "name": [
        ("a/b", "invalid object name 'a/b': use the value"),
        ("${TENANT}", "(not set in the environment: TENANT)"),
        ("a,b", "invalid object name 'a,b'"),
        ("[a, b]", "found a list, expected text"),
        ("''", "empty: set a value, or remove the field to watch all objects"),
    ],
    "snakeCaseExcept": [
        ("spec.labels", "found text ('spec.labels'), expected a list"),
        ("[labels]", "invalid path 'labels': use a path in the spec such as spec.config.env"),
        ("['']", "invalid path ''"),
    ],
}


@pytest.mark.parametrize(
    ("field", "text", "message"), [(field, *case) for field, cases in INVALID.items() for case in cases]
)
def test_an_invalid_value_is_one_error_with_its_line_and_its_field(
    errors: Errors, field: str, text: str, message: str
) -> None:
    name, _, part = field.partition(".")
    (line,) = errors(f"{HEAD}  {name}: " + (f"{{{part}: {text}}}\n" if part else f"{text}\n"), EMPTY="")
    assert line.startswith(f"watches.yaml:5: {MEMCACHED}: {field}: ")
    assert message in line


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("finalizer: {role: cleanup}", "finalizer.name: missing or empty"),
        ("finalizer: {name: '', role: cleanup}", "finalizer.name: missing or empty"),
        ("finalizer: {name: a b, role: cleanup}", "finalizer.name: invalid name 'a b'"),
        ("finalizer: {name: example.com/f, role: nowhere}", "finalizer.role: 'nowhere' not found; searched"),
        ("finalizer: {name: example.com/f, playbook: no.yml}", "finalizer.playbook: 'no.yml' not found; searched"),
        ("finalizer: {name: example.com/f, vars: [1]}", "finalizer.vars: found a list"),
        ("snakeCaseExcept: [[spec.a]]", "snakeCaseExcept[0]: found a list, expected text"),
        ("fieldSelector: metadata.name=a\n  name: a", "name: fieldSelector also contains metadata.name"),
    ],
)
def test_a_value_that_cannot_be_used_with_others_is_one_error(errors: Errors, rest: str, message: str) -> None:
    (line,) = errors(f"{HEAD}  {rest}\n")
    assert f"{MEMCACHED}: {message}" in line


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("a", ": found text"),
        ("{operator: Exists}", ".key: missing or empty"),
        ("{key: a, operator: in, values: [b]}", ".operator: invalid operator 'in'"),
        ("{key: a, operator: In}", ".values: missing or empty"),
        ("{key: a, operator: Exists, values: [b]}", ".values: Exists"),
        ("{key: a, operator: In, values: [b c]}", ".values: invalid label value 'b c'"),
    ],
)
def test_an_expression_that_the_api_server_would_refuse_is_an_error(errors: Errors, item: str, message: str) -> None:
    (line,) = errors(f"{HEAD}  selector: {{matchExpressions: [{item}]}}\n")
    assert line.startswith(f"watches.yaml:5: {MEMCACHED}: selector.matchExpressions[0]{message}")


@pytest.mark.parametrize("group", ["", "apps", "rbac.authorization.k8s.io"])
def test_a_finalizer_that_the_api_server_refuses_for_its_own_kinds_is_an_error(errors: Errors, group: str) -> None:
    finalizer = {"name": "finalizer.tenants.example.com", "role": "cleanup"}
    entry = {"group": group, "version": "v1", "kind": "Thing", "role": "memcached", "finalizer": finalizer}
    (line,) = errors(yaml.safe_dump([entry]))
    assert "finalizer.name: the API server refuses 'finalizer.tenants.example.com' without a domain" in line


@pytest.mark.parametrize("group", ["example.com", "gateway.networking.k8s.io"])
def test_a_finalizer_of_a_custom_resource_needs_no_domain(load: Load, group: str) -> None:
    finalizer = {"name": "finalizer.tenants.example.com", "role": "cleanup"}
    entry = {"group": group, "version": "v1", "kind": "Thing", "role": "memcached", "finalizer": finalizer}
    assert load(yaml.safe_dump([entry])).warnings == ()


def test_a_kind_is_watched_in_one_version(errors: Errors) -> None:
    (line,) = errors(f"{HEAD}  role: memcached\n{HEAD.replace('v1alpha1', 'v1')}  role: memcached\n")
    assert line.startswith("watches.yaml:")
    assert "version: the kind is watched in version v1alpha1 (line 1), and each object has all versions" in line
