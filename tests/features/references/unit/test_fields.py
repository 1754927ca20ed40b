"""What a watch's objects refer to."""

from __future__ import annotations

import pytest

from runner.features.references.fields import REFERENCES
from runner.values.objects import GVK
from tests.unit.watches.sample import HEAD, Errors, One


def test_a_reference_is_a_kind_and_a_way_to_find_its_objects(one: One) -> None:
    rest = (
        "  references:\n  - {group: apps, version: v1, kind: Deployment, path: 'spec.apps[*].name', namespace: shop}\n"
    )
    (reference,) = one(rest).more.get(REFERENCES)
    assert (reference.gvk, reference.namespace) == (GVK("apps", "v1", "Deployment"), "shop")
    assert reference.path is not None
    assert reference.path.text == "spec.apps[*].name"
    assert reference.namespaces == frozenset()


def test_a_watch_lists_the_namespaces_that_a_spec_may_name(one: One) -> None:
    rest = "  references:\n  - {version: v1, kind: Secret, path: spec.a, namespaces: [vault, '*']}\n"
    (reference,) = one(rest).more.get(REFERENCES)
    assert reference.namespaces == {"vault", "*"}


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("{kind: Secret, path: spec.a}", "references[0].version: missing or empty: set the API version"),
        ("{version: v1, path: spec.a}", "references[0].kind: missing or empty: set a kind, such as Secret"),
        ("{version: v1, kind: Secret}", "references[0]: selects no objects: set one of path"),
        (
            "{version: v1, kind: Secret, path: spec.a, name: b}",
            "references[0]: path and name are mutually exclusive: set one of",
        ),
        ("{version: v1, kind: Secret, path: a}", "references[0].path: invalid path 'a'"),
        ("{version: v1, kind: Secret, path: }", "references[0].path: invalid path ''"),
        ("{version: v1, kind: Secret, name: a/b}", "references[0].name: invalid object name 'a/b'"),
        ("{version: v1, kind: Secret, selector: {}}", "references[0].selector: selects all objects of the kind"),
        (
            "{version: v1, kind: Secret, selector: a=b}",
            "references[0].selector: found text ('a=b'), expected a mapping",
        ),
        ("{version: v1, kind: Secret, name: a, namespace: b/c}", "references[0].namespace: invalid namespace 'b/c'"),
        (
            "{version: v1, kind: Secret, path: spec.a, namespaces: [b/c]}",
            "references[0].namespaces: invalid namespace 'b/c'",
        ),
        ("spec.secret", "references[0]: found text, expected a mapping with group, version, kind, path"),
    ],
)
def test_an_invalid_reference_is_one_error(errors: Errors, item: str, message: str) -> None:
    (line,) = errors(f"{HEAD}  references:\n  - {item}\n")
    assert message in line
    assert line.startswith("watches.yaml:6: ")
