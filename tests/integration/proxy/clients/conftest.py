"""Roles' own tools before the proxy: ansible-playbook with kubernetes.core, and helm with a small chart."""

from __future__ import annotations

from tests.integration.proxy.clients.fixtures import chart, helm, helm_binary, play

__all__ = ["chart", "helm", "helm_binary", "play"]
