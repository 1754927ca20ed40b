"""Masking as part of an operator: collects the secret values of a run, which the core masks in its output."""

from __future__ import annotations

from pathlib import Path

from runner.core.reconcile.feature import Feature, ProxyBase, ProxyParts


def _proxy(_base: ProxyBase) -> ProxyParts:
    from runner.features.masking import requests  # noqa: PLC0415 - see Feature

    return ProxyParts(observers=(requests.OBSERVER,), own_paths={requests.NO_LOG_PATH: requests.receive})


FEATURE = Feature(
    masks=True,
    callbacks=(Path(__file__).with_name("callbacks"),),  # reports the arguments of tasks with `no_log`
    proxy=_proxy,
)
