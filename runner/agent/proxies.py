"""Variables that keep the HTTP proxies of the environment out of a run's way to the API on loopback."""

from __future__ import annotations

from collections.abc import Mapping

_LOOPBACK = "127.0.0.1"
_HTTP_PROXIES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a run needs beside those of `environ`; none if that has no HTTP proxy."""
    if not any(environ.get(name) for name in _HTTP_PROXIES):
        return {}
    # Programs read one spelling or the other: keep the value if only one of them is set.
    upper, lower = environ.get("NO_PROXY", ""), environ.get("no_proxy", "")
    return {
        "NO_PROXY": ",".join(filter(None, (upper or lower, _LOOPBACK))),
        "no_proxy": ",".join(filter(None, (lower or upper, _LOOPBACK))),
    }
