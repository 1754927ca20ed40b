"""What an error of the API server says to the operator's user."""

from __future__ import annotations

import pytest

from runner.core.kube import answers
from runner.values.errors import ApiError, ForbiddenError


def error(code: int, message: str) -> ApiError:
    return answers.of_status("PATCH /apis/g/v1/things/a/status", {"code": code, "message": message})


def test_a_refusal_names_the_rule_to_add() -> None:
    denied = (
        'things.g "a" is forbidden: User "op" cannot patch resource "things/status" in API group "g" in the namespace '
        '"x"'
    )
    found = error(403, denied)
    assert isinstance(found, ForbiddenError)
    rule = "{apiGroups: [g], resources: [things/status], verbs: [patch]}"
    assert str(found).endswith(f"{denied} (HTTP 403); add to the operator's Role: {rule}")


@pytest.mark.parametrize(
    ("code", "message"),
    [(403, 'pods "a" is forbidden: exceeded quota: few'), (409, "the object has been modified"), (403, "")],
)
def test_an_error_that_no_rule_prevents_has_no_advice(code: int, message: str) -> None:
    assert "add to" not in str(error(code, message))
