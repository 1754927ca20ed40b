"""What the answers to requests of the operator mean."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import runner
from runner.core.kube import answers
from runner.core.kube.meaning import FOLLOWS, Meaning, Request, meaning
from runner.values.errors import ApiError, ApiUnavailableError, KindNotFoundError

_MISMATCH = "the server rejected our request due to an error in our request"
SITES: dict[Request, set[str]] = {
    Request.START: {"app/process:connect"},
    Request.ACCOUNT: {f"core/kube/service_accounts:{name}" for name in ("exists", "_may_impersonate", "_own_user")},
    Request.AUTHORITY: {"core/kube/state:read", "core/kube/state:write"},
    Request.RIGHTS: {
        "features/rights/check:_lacks",
        "features/rights/check:_user",
        "app/identities:_list_one",
        "app/identities:_review",
    },
    Request.DISCOVERY: {"core/kube/discovery:_request"},
    Request.WATCH: {
        *("core/kube/watch:_page", "core/kube/watch_stream:read", "core/kube/deselected:_list"),
        "core/dependents/watching:_resume_if_served",
    },
    Request.RELATED: {
        *(
            "core/dependents/kind:_compare",
            "features/references/kind:_read_one",
            "core/kube/deselected:_read",
            "features/readcache/refetch:_read",
        ),
    },
    Request.OWNER: {"core/reconcile/owner_check:_read"},
    Request.READ: {
        *("features/plan/hooks:_fresh", "features/plan/hooks:_approve", "features/unchanged/hooks:_read"),
        *("engines/pod/records:_of_object", "core/kube/state:read"),
    },
    Request.FINALIZER_ADDED: {"core/reconcile/reconcile:_add_finalizer"},
    Request.FINALIZER_REMOVED: {"core/reconcile/own_hooks:_remove"},
    Request.RUNNING: {"core/status/writer:_attempt", "core/status/writer:_fresh"},
    Request.STATUS: {"core/status/writer:_attempt", "core/status/writer:_fresh"},
    Request.EVENT: {"base/events/recorder:_post", "base/events/recorder:_repeat"},
    Request.LENT: {"features/hosts/run_hosts:_lent"},
    Request.PLAN: {f"core/kube/state:{name}" for name in ("read", "write", "delete")},
    Request.AFTERWARDS: {
        *("features/unchanged/hooks:_write", "features/prune/records:read", "features/prune/records:_delete"),
        "features/prune/records:_remove_if_gone",
        *(f"core/kube/state:{name}" for name in ("read", "write", "delete", "all")),
    },
    Request.ROLLOUT: {"core/kube/state:read", "core/kube/state:write"},
    Request.KINDS: {"core/kube/state:read", "core/kube/state:put"},
    Request.LEASE: {"features/replicas/leases:read", "features/replicas/leases:write"},
    Request.METRICS: {"core/kube/reviews:_create"},
    Request.PROXY: {
        f"core/proxy/handlers/{name}" for name in ("served:_discover", "writes:_current", "writes:_written")
    },
    Request.POD_CREATED: {
        "engines/pod/records:_create",
        "engines/pod/records:create_job",
        "engines/pod/records:_of_object",
    },
    Request.POD_DELETED: {"engines/pod/records:_delete"},
    Request.POD_REST: {
        *("engines/pod/engine:_label_pod", "engines/pod/records:refusal", "engines/pod/plugin:_owners"),
        *("engines/pod/warm:_create_objects", "engines/pod/warm:_delete"),
    },
}
"""Functions that send the requests of each row."""
_ELSEWHERE = {"sdk", "cli", "collections"}
"""Packages for commands and roles, which the operator does not execute."""
_NO_REQUESTS = {"agent/relay:_copy", "features/rollout/commands:_members"}
"""Functions that send no requests, or those of a command."""
_SENDING = {"get", "patch", "create", "delete", "stream", "read"}
_POLICY = "things \"one\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (400, "bad", Meaning.REFUSED),
        (401, "who", Meaning.TEMPORARY),
        (403, "no right", Meaning.REFUSED),
        (404, "not found", Meaning.ABSENT),
        (409, "the object has been modified", Meaning.CONFLICT),
        (413, "too large", Meaning.REFUSED),
        (422, _POLICY, Meaning.REFUSED),
        (422, 'Thing "one" is invalid: spec: Required value', Meaning.REFUSED),
        (422, _MISMATCH, Meaning.CONFLICT),
        (429, "busy", Meaning.TEMPORARY),
        (500, "etcd", Meaning.TEMPORARY),
        (503, "starting", Meaning.TEMPORARY),
    ],
)
def test_the_status_and_message_of_an_answer_decide_what_it_means(code: int, message: str, expected: Meaning) -> None:
    error = answers.of_status("PATCH /apis/x", {"kind": "Status", "code": code, "message": message})
    assert isinstance(error, ApiError)
    assert error.status == code
    assert meaning(error) is expected


def test_only_a_connection_that_was_lost_after_the_request_leaves_its_outcome_unknown() -> None:
    assert meaning(ApiUnavailableError("reset", sent=True)) is Meaning.UNKNOWN
    assert meaning(ApiUnavailableError("refused", sent=False)) is Meaning.TEMPORARY
    assert meaning(KindNotFoundError("no such kind")) is Meaning.TEMPORARY


def test_the_table_decides_for_each_request_and_each_meaning() -> None:
    assert set(FOLLOWS) == set(Request)
    assert all(set(of_request) == set(Meaning) for of_request in FOLLOWS.values())


def test_each_request_that_the_source_code_sends_has_a_row_in_the_table() -> None:
    assert set(SITES) == set(Request)
    assert set().union(*SITES.values()) == set(_sending()) - _NO_REQUESTS


def _sending() -> Iterator[str]:
    """Yield each function with a call of the client, as `module:function`."""
    folder = Path(runner.__file__).parent
    for path in folder.rglob("*.py"):
        module = path.relative_to(folder).with_suffix("")
        if module.parts[0] in _ELSEWHERE or str(module) == "kube/client":
            continue
        functions = (each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.AsyncFunctionDef))
        for function in functions:
            if any(_sends(each) for each in ast.walk(function)):
                yield f"{module}:{function.name}"


def _sends(node: ast.AST) -> bool:
    if not isinstance(node, ast.Attribute):
        return False
    receiver = ast.unparse(node.value).rpartition(".")[2].lstrip("_")
    return node.attr == "list_page" or (receiver in {"client", "reader"} and node.attr in _SENDING | {"request"})
