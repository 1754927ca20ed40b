"""The ways to a control plane: a client, a kubeconfig that differs from the administrator's, and kubectl."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from runner.base.credentials import auth
from runner.base.credentials.auth import HostEnvironment
from runner.core.kube.client import Client
from runner.sdk.devcluster import DevCluster
from tests.kit.processes import captured
from tests.kit.wait import patience


def kubeconfig_of(cluster: Mapping[str, Any], user: Mapping[str, Any], **context: str) -> str:
    """Return a kubeconfig with one context, whose fields can be given, such as `namespace`."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": dict(cluster)}],
        "users": [{"name": "u", "user": dict(user)}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", **context}}],
    }
    return yaml.safe_dump(document, sort_keys=False)


async def connect(path: Path) -> Client:
    """Make a client of a kubeconfig's cluster."""
    return Client(await auth.load(str(path), None, HostEnvironment({}, path.parent)))


def altered(kubeconfig: Path, to: Path, *, server: str = "", user: dict[str, Any] | None = None) -> Path:
    """Write a copy of a kubeconfig with another server, or with more in its user."""
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"].update(user or {})
    if server:
        document["clusters"][0]["cluster"]["server"] = server
    path = to / f"{uuid.uuid4().hex}.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


class Kubectl:
    """kubectl with a kubeconfig and options; its namespace can be one of them."""

    def __init__(
        self, program: Path, kubeconfig: Path, *options: str, environ: Mapping[str, str] | None = None
    ) -> None:
        self.kubeconfig = kubeconfig
        self._command = [str(program), *options]
        self._environ = {**(os.environ if environ is None else environ), "KUBECONFIG": str(kubeconfig)}

    def __call__(self, *arguments: str, stdin: str | None = None, **environ: Any) -> str:
        """Return the output; a command that fails fails the test."""
        return self.run(*arguments, stdin=stdin, **environ).stdout

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, which may fail if it is not to be checked."""
        done = captured(
            *self._command,
            *arguments,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            timeout=patience(),
            env={**self._environ, **environ},
        )
        assert not check or done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done

    @contextmanager
    def start(self, *arguments: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
        """Run a command until the block ends; its output can be read."""
        command, own = [*self._command, *arguments], {**self._environ, **environ}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=own) as process:
            try:
                yield process
            finally:
                process.terminate()

    @contextmanager
    def proxy(self) -> Iterator[int]:
        """Serve the API server on a port of the loopback interface, without TLS and as this user."""
        with self.start("proxy", "--port=0", "--address=127.0.0.1") as process:
            assert process.stdout
            yield int(process.stdout.readline().rpartition(":")[2])

    def get(self, *arguments: str) -> dict[str, Any]:
        """Read one object; empty when it is not there."""
        found = self("get", *arguments, "--ignore-not-found", "--output=json")
        return dict(json.loads(found)) if found.strip() else {}

    def owners(self, *arguments: str) -> list[str]:
        """Name the owners of an object."""
        return [each["name"] for each in self.get(*arguments)["metadata"].get("ownerReferences", [])]

    def names(self, *arguments: str) -> list[str]:
        """Name the objects that there are."""
        return [line.partition("/")[2] for line in self("get", *arguments, "--output=name").split()]

    def wait(self, *what: str) -> None:
        """Wait with `kubectl wait`."""
        self("wait", *what, f"--timeout={patience():.0f}s")

    def apply(self, *objects: dict[str, Any]) -> None:
        self("apply", "--filename=-", stdin=yaml.safe_dump_all(objects))

    def run_pod(self, container: str = "web") -> str:
        """Return the name of a running pod with this container."""
        containers = {"spec": {"containers": [{"name": container, "image": "nginx"}]}}
        self("run", "web", "--image=nginx", "--overrides", json.dumps(containers))
        self.wait("pod/web", "--for=condition=Ready")
        return "web"


def kubectl_of(cluster: DevCluster, *options: str) -> Kubectl:
    """Return the administrator's kubectl."""
    return Kubectl(cluster.kubectl, Path(cluster.kubeconfig), *options)
