"""The operator's pod as kwok plays it, with the operator itself as a process that has what a kubelet would give it."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml

from runner.sdk import devcluster as clusters
from runner.sdk.devcluster import kubeconfig
from tests.kit.operator import PORTS, Operator, operators_environment
from tests.kit.places import BIN
from tests.kit.shell import Sh
from tests.kit.wait import patience, wait_until

T = TypeVar("T")
Json = dict[str, Any]

PATIENCE = 120.0
# A file system of its own for /var/run, so that the mounted token is this process's alone.
MOUNT = """
mount -t tmpfs tmpfs /var/run
mkdir -p /var/run/secrets/kubernetes.io/serviceaccount
mount --bind "$1" /var/run/secrets/kubernetes.io/serviceaccount
shift
exec "$@"
"""
OWN_PORTS = (*PORTS, "--pods-bind-address=127.0.0.1:0", "--log-format=json")
"""After the manifest's own flags: what other operators on this machine do not have yet."""


def pod_of(sh: Sh, namespace: str) -> Json:
    """The pod that the Deployment's controllers made in this namespace, once kwok says that it is ready."""

    def ready() -> Json | None:
        for pod in sh.get("pods", f"--namespace={namespace}", "--selector=control-plane=controller-manager")["items"]:
            conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions") or ()}
            if conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]:
                found: Json = pod
                return found
        return None

    found = wait_until(ready, f"a pod in {namespace}")
    assert found is not None
    return found


def _environment(pod: Json) -> Mapping[str, str]:
    """The variables of the container, with fields of the pod looked up as a kubelet does."""
    fields = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        **{f"metadata.annotations['{k}']": v for k, v in (pod["metadata"].get("annotations") or {}).items()},
    }
    made = {}
    for each in pod["spec"]["containers"][0].get("env") or ():
        source = each.get("valueFrom")
        made[each["name"]] = fields.get(source["fieldRef"]["fieldPath"], "") if source else each.get("value", "")
    return made


def _mounted(sh: Sh, pod: Json, admin: Path, folder: Path) -> Path:
    """What a kubelet mounts: a token of the pod's service account that is bound to the pod, authority and namespace."""
    folder.mkdir(parents=True)
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={name}")
    account = pod["spec"]["serviceAccountName"]
    token = sh("kubectl", "create", "token", account, f"--namespace={namespace}", *bound)
    (folder / "token").write_text(token.strip())
    (cluster,) = yaml.safe_load(admin.read_text())["clusters"]
    (folder / "ca.crt").write_bytes(base64.b64decode(cluster["cluster"]["certificate-authority-data"]))
    (folder / "namespace").write_text(namespace)
    return folder


def _works(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def _kubeconfig(admin: Path, mounted: Path) -> Path:
    """The same account by a kubeconfig, for machines where mounting is not permitted."""
    document = yaml.safe_load(admin.read_text())
    document["users"][0]["user"] = {"tokenFile": str(mounted / "token")}
    path = mounted / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    return path


@contextmanager
def operator(
    sh: Sh, devcluster: clusters.DevCluster, project: Path, namespace: str, folder: Path
) -> Iterator[Operator]:
    """Run what the pod in this namespace would: its flags and variables, its account, its way to the API server."""
    pod = pod_of(sh, namespace)
    admin = Path(devcluster.kubeconfig)
    host, _, port = kubeconfig.current(admin)[1].removeprefix("https://").rpartition(":")
    service = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    environment = operators_environment({**_environment(pod), **service})
    mounted = _mounted(sh, pod, admin, folder / "serviceaccount")
    within, way = ["sh", "-ec", MOUNT, "pod", str(mounted)], []
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    if _works([*unshare, *within, "true"]):
        within = [*unshare, *within]
    else:
        within, way = [], [f"--kubeconfig={_kubeconfig(admin, mounted)}", f"--leader-election-namespace={namespace}"]
    command = [
        *(*within, BIN / "ansible-operator", "run", "--watches-file=./watches.yaml", f"--runner-dir={folder}/runs"),
        *(*pod["spec"]["containers"][0]["args"], *OWN_PORTS, *way),
    ]
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=project, env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield Operator(process, log)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(patience())
