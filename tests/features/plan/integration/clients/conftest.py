"""Roles' own tools before the proxy."""

from __future__ import annotations

from tests.integration.proxy.clients.fixtures import chart, helm, helm_binary, play

__all__ = ["chart", "helm", "helm_binary", "play"]
