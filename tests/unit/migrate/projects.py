"""Projects of the Go operator, one construct at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from runner.compatibility.finding import Report

Analyse: TypeAlias = Callable[..., Report]
Write: TypeAlias = Callable[[str, str], Path]

WATCHES = "- {group: shop.example.com, version: v1, kind: Shop, role: shop}\n"
DOCKERFILE = """\
FROM quay.io/operator-framework/ansible-operator:v1.42.3
COPY requirements.yml ${HOME}/requirements.yml
RUN ansible-galaxy collection install -r ${HOME}/requirements.yml \\
 && chmod -R ug+rwx ${HOME}/.ansible
COPY watches.yaml ${HOME}/watches.yaml
COPY roles/ ${HOME}/roles/
"""
REQUIREMENTS = "---\ncollections:\n  - name: kubernetes.core\n    version: 6.0.0\n"
