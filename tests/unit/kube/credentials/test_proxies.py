from __future__ import annotations

import pytest

from runner.base.credentials.auth import choose_proxy
from runner.values.errors import ConfigError

PROXY = {"HTTPS_PROXY": "http://proxy:3128", "HTTP_PROXY": "http://other:3128"}


@pytest.mark.parametrize(
    ("server", "no_proxy", "expected"),
    [
        ("https://api.example.com:6443", "", "http://proxy:3128"),
        ("http://api.example.com", "", "http://other:3128"),
        ("https://api.example.com", "example.com", None),
        ("https://api.example.com", ".example.com", None),
        ("https://api.example.com", "*.example.com", None),
        ("https://example.com", ".example.com", "http://proxy:3128"),
        ("https://badexample.com", "example.com", "http://proxy:3128"),
        ("https://api.example.com", "other.org, API.example.com", None),
        ("https://api.example.com:6443", "api.example.com:6443", None),
        ("https://api.example.com:6443", "api.example.com:443", "http://proxy:3128"),
        ("https://api.example.com", "*", None),
        ("https://10.96.0.1", "10.96.0.0/12", None),
        ("https://10.96.0.1", "10.0.0.0/16,nonsense/99", "http://proxy:3128"),
        ("https://10.96.0.1", "10.96.0.1", None),
        ("https://[fd00::1]:443", "fd00::/8", None),
        ("https://[fd00::1]:443", "[fd00::1]", None),
        ("https://127.0.0.1:6443", "", None),
        ("https://localhost:6443", "", None),
    ],
)
def test_no_proxy_means_what_it_means_to_kubectl(server: str, no_proxy: str, expected: str | None) -> None:
    assert choose_proxy({"server": server}, {**PROXY, "NO_PROXY": no_proxy}) == expected


def test_the_kubeconfigs_proxy_wins() -> None:
    cluster = {"server": "https://127.0.0.1", "proxy-url": "http://mine:1"}
    assert choose_proxy(cluster, {**PROXY, "no_proxy": "*"}) == "http://mine:1"


def test_small_letters_and_a_missing_scheme_do() -> None:
    assert choose_proxy({"server": "https://api.example.com"}, {"https_proxy": "proxy:3128"}) == "http://proxy:3128"


def test_a_proxy_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="socks5"):
        choose_proxy({"server": "https://api.example.com", "proxy-url": "socks5://p:1"}, {})
