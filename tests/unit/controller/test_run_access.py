"""What a run needs to reach the proxy, and as whom it does."""

from __future__ import annotations

from runner.core.reconcile import run_access


def test_runs_do_not_use_the_operators_http_proxy_for_the_api_proxy() -> None:
    found = run_access.environment({"HTTPS_PROXY": "http://proxy.example.com:3128", "NO_PROXY": ".svc,10.0.0.0/8"})
    assert found == {"NO_PROXY": ".svc,10.0.0.0/8,127.0.0.1", "no_proxy": ".svc,10.0.0.0/8,127.0.0.1"}


def test_without_an_http_proxy_nothing_is_added() -> None:
    assert run_access.environment({"NO_PROXY": ".svc", "HTTP_PROXY": ""}) == {}


def test_secret_values_of_the_environment_are_found_by_their_names() -> None:
    environ = {"DB_PASSWORD": "a", "API_TOKEN": "b", "PASSWORD_FILE": "c", "TOKEN_URL": "d", "HOME": "e", "PWD": "f"}
    assert run_access.secrets_in(environ) == ["a", "b"]
