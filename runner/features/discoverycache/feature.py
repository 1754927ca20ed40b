"""The cache of API discovery as part of the proxy."""

from __future__ import annotations

from runner.core.reconcile.feature import Feature, ProxyBase, ProxyParts


def _proxy(base: ProxyBase) -> ProxyParts:
    from runner.features.discoverycache.handler import DiscoveryCache  # noqa: PLC0415 - see Feature

    cache = DiscoveryCache(base.clock, base.served.forget)
    return ProxyParts(documents=(cache,), prepare=(cache.read_ahead,))


FEATURE = Feature(proxy=_proxy)
