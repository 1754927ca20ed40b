"""Roles' own tools before the proxy: ansible-playbook with kubernetes.core, and helm with a small chart."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from runner.sdk.devcluster import DevCluster
from tests.integration.proxy.clients.tools import Helm, Play, Played
from tests.kit.go_programs import get_helm
from tests.kit.processes import captured
from tests.kit.wait import patience

_PLAY = """
- hosts: localhost
  gather_facts: false
  collections: [kubernetes.core]
  vars: {ansible_python_interpreter: "{{ ansible_playbook_python }}"}
  tasks:
"""
_LAST_TASK = """
    - ansible.builtin.copy: {dest: "{{ folder }}/result.json", content: "{{ result | to_json }}"}
"""
_CHART = {
    "Chart.yaml": "{apiVersion: v2, name: shop, version: 1.0.0}",
    "values.yaml": "{colour: red, replicas: 1}",
    "templates/config.yaml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}, labels: {chart: shop}}
data: {colour: {{ .Values.colour }}}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-before
  annotations: {helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-delete-policy: before-hook-creation}
""",
    "templates/web.yaml": """
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec: {containers: [{name: web, image: example.com/web}]}
""",
    "templates/role.yaml": """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: {{ .Release.Namespace }}-{{ .Release.Name }}}
rules: []
""",
}


@pytest.fixture
def play(environ: dict[str, str], devcluster: DevCluster, namespace: str, tmp_path: Path) -> Play:
    """Run tasks as a role has them. They set `result`; `ns` is the test's namespace, `folder` a folder of its own."""

    def run(tasks: str) -> Played:
        (tmp_path / "play.yml").write_text(_PLAY + tasks + _LAST_TASK)
        extra = json.dumps({"ns": namespace, "folder": str(tmp_path), "exec_container": devcluster.exec_container})
        command = [
            str(Path(sys.executable).with_name("ansible-playbook")),
            "play.yml",
            "-i",
            "localhost,",
            "-c",
            "local",
        ]
        played = captured(*command, "-e", extra, cwd=tmp_path, env=environ, timeout=patience())
        assert played.returncode == 0, played.stdout + played.stderr
        return Played(json.loads((tmp_path / "result.json").read_text()), played.stdout)

    return run


@pytest.fixture(scope="session")
def helm_binary() -> Path:
    """The helm in PATH, or one that is made the first time."""
    return get_helm(os.environ, sys.stderr)


@pytest.fixture
def helm(helm_binary: Path, environ: dict[str, str], namespace: str) -> Helm:
    """Run helm in the test's namespace, as a role's `command` task does; return what it prints."""
    environ["PATH"] = f"{helm_binary.parent}{os.pathsep}{environ['PATH']}"

    def run(*arguments: str | Path) -> str:
        done = captured(helm_binary, *arguments, f"--namespace={namespace}", env=environ, timeout=patience())
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """A chart with a hook, a Deployment and an object of no namespace."""
    folder = tmp_path / "chart"
    for name, text in _CHART.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder
