"""A proxy before the real control plane, and what a run sees of it."""

from __future__ import annotations

from tests.integration.proxy.fixtures import all_kinds, dump, environ, exec_pod, kubectl, operating, pod, standing

__all__ = ["all_kinds", "dump", "environ", "exec_pod", "kubectl", "operating", "pod", "standing"]
