"""What a request asks for, as the API server would say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.proxy.request import parse


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        ("GET", "/api/v1/namespaces/ns/pods", "list pods ns"),
        ("GET", "/api/v1/namespaces/ns/pods/web", "get pods ns/web"),
        ("HEAD", "/api/v1/namespaces/ns/pods/web", "get pods ns/web"),
        ("GET", "/api/v1/namespaces/ns/pods?watch=true", "watch pods ns"),
        ("GET", "/api/v1/namespaces/ns/pods?watch=1&timeoutSeconds=5", "watch pods ns"),
        ("GET", "/api/v1/namespaces/ns/pods?watch", "watch pods ns"),
        ("GET", "/api/v1/namespaces/ns/pods?watch=false", "list pods ns"),
        ("GET", "/api/v1/namespaces/ns/pods?watch=0", "list pods ns"),
        ("GET", "/api/v1/watch/namespaces/ns/pods", "watch pods ns"),
        ("GET", "/api/v1/watch/namespaces/ns/pods/web", "watch pods ns/web"),
        ("POST", "/api/v1/namespaces/ns/pods", "create pods ns"),
        ("PUT", "/api/v1/namespaces/ns/pods/web", "update pods ns/web"),
        ("PATCH", "/api/v1/namespaces/ns/pods/web", "patch pods ns/web"),
        ("DELETE", "/api/v1/namespaces/ns/pods/web", "delete pods ns/web"),
        ("DELETE", "/api/v1/namespaces/ns/pods", "deletecollection pods ns"),
        ("GET", "/api/v1/pods", "list pods"),
        ("GET", "/api/v1/nodes/one", "get nodes /one"),
        ("GET", "/api/v1/namespaces", "list namespaces"),
        ("GET", "/api/v1/namespaces/ns", "get namespaces ns/ns"),
        ("PUT", "/api/v1/namespaces/ns/finalize", "update namespaces/finalize ns/ns"),
        ("PATCH", "/api/v1/namespaces/ns/status", "patch namespaces/status ns/ns"),
        ("POST", "/api/v1/namespaces/ns/pods/web/exec?command=sh", "create pods/exec ns/web"),
        ("POST", "/api/v1/namespaces/ns/pods/web/binding", "create pods/binding ns/web"),
        ("GET", "/api/v1/namespaces/ns/services/web/proxy/some/path", "get services/proxy ns/web"),
        ("GET", "/apis/apps/v1/namespaces/ns/deployments/web/scale", "get deployments.apps/scale ns/web"),
        ("GET", "/apis/apps/v1/deployments", "list deployments.apps"),
        ("GET", "/api/v1/namespaces/ns/pods?fieldSelector=metadata.name%3Dweb", "list pods ns/web"),
        ("GET", "/api/v1/pods?fieldSelector=spec.nodeName=a,metadata.name==web&watch=1", "watch pods /web"),
        ("GET", "/api/v1/pods?fieldSelector=metadata.name!=web", "list pods"),
        ("GET", "/api/v1/namespaces/ns/secrets/a%2Fb", "get secrets/b ns/a"),
        ("GET", "//api/v1/pods/", "list pods"),
        ("GET", "/apis/apps/v1", "get /apis/apps/v1"),
        ("GET", "/api/v1", "get /api/v1"),
        ("GET", "/", "get /"),
        ("GET", "/version?timeout=5s", "get /version"),
        ("POST", "/openapi/v3", "post /openapi/v3"),
    ],
)
def test_a_request_is_read_as_the_api_server_reads_it(method: str, target: str, expected: str) -> None:
    info = parse(method, target)
    if info.is_resource:
        name = f"{info.namespace}/{info.name}" if info.name else info.namespace
        assert f"{info.verb} {info.qualified} {name}".strip() == expected
    else:
        assert f"{info.verb} {info.qualified}" == expected


@pytest.mark.parametrize(
    ("target", "endless"),
    [
        ("/api/v1/pods?watch=1", True),
        ("/api/v1/pods", False),
        ("/api/v1/namespaces/a/pods/b/log?follow=true", True),
        ("/api/v1/namespaces/a/pods/b/log?follow=false", False),
        ("/api/v1/namespaces/a/pods/b/log", False),
        ("/api/v1/namespaces/a/pods/b/exec?command=a", True),
        ("/api/v1/namespaces/a/pods/b/portforward", True),
    ],
)
def test_endless_requests_are_recognized(target: str, *, endless: bool) -> None:
    assert parse("GET", target).is_endless is endless


def test_a_dry_run_is_recognized() -> None:
    assert parse("POST", "/api/v1/namespaces/ns/pods?dryRun=All").is_dry_run
    assert not parse("POST", "/api/v1/namespaces/ns/pods").is_dry_run


@given(st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]), st.text(max_size=60))
def test_no_target_breaks_the_reader(method: str, rest: str) -> None:
    for root in ("/", "/api/v1/", "/apis/apps/v1/", "/api/v1/namespaces/", "/api/v1/watch/", "/api/v1/proxy/"):
        info = parse(method, f"{root}{rest}")
        assert info.verb
        assert not info.name or info.is_resource
