"""The installed command on a real control plane, under a service account with the rights of config/rbac.

`project` makes a folder as a user would (watches.yaml, roles), `project.start()` starts `ansible-operator run` in it
as a process of its own. Two kinds are there: Memcached from config/crd, and Thing, whose spec and status hold anything.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import textwrap
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3
import yaml

from tests.kit.cluster import kubeconfig_of
from tests.kit.objects import GROUP, Api
from tests.kit.places import BIN, ROOT
from tests.kit.processes import captured
from tests.kit.rights import granted
from tests.kit.wait import patience, wait_until

ACCOUNT = "operator"


PORTS = (
    *("--proxy-port=0", "--user-metrics-port=0"),
    *("--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0"),
)
"""Flags with which operators run beside each other on one machine."""
PROGRAM = (str(BIN / "ansible-operator"),)


def run_command(kubeconfig: Path, runs: Path, namespace: str, *flags: str) -> list[str]:
    """Return what follows the program: the operator of a namespace, whose log is read as JSON."""
    own = (f"--kubeconfig={kubeconfig}", f"--runner-dir={runs}", f"--namespace={namespace}", "--log-format=json")
    return ["run", *own, *PORTS, *flags]


def operators_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of an operator: of this process' own, none that changes an operator or a run."""
    others = ("KUBE", "K8S_", "ANSIBLE", "MAX_CONCURRENT_RECONCILES", "WATCH_NAMESPACE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    engine = {name: os.environ[name] for name in ("ANSIBLE_OPERATOR_ENGINE",) if name in os.environ}
    return {**kept, "ANSIBLE_GATHERING": "explicit", **engine, **(more or {})}


def log_lines(text: str) -> list[dict[str, Any]]:
    """Return the structured lines of a log."""
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"') and line.endswith("}")]


class Operator:
    """A running `ansible-operator run`, or what stands for its pod."""

    def __init__(self, process: subprocess.Popen[bytes], path: Path) -> None:
        self.process = process
        self.path = path
        self._read = 0
        self._lines: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        """Held while new lines are read: two threads at once would lose some."""

    @property
    def log(self) -> str:
        """Everything that it wrote so far."""
        return self.path.read_text(errors="replace")

    def lines(self, event: str = "", /, **fields: Any) -> list[dict[str, Any]]:
        """Its structured lines of this event that have these values."""
        with self._lock, self.path.open("rb") as file:
            file.seek(self._read)
            new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read += len(whole)
            self._lines += log_lines(whole.decode(errors="replace"))
        wanted = {"msg": event, **fields} if event else fields
        return [line for line in self._lines if all(line.get(name) == value for name, value in wanted.items())]

    def runs(self, name: str) -> list[dict[str, Any]]:
        """The line of each run of an object that has ended; a run that waits for its pod goes on later."""
        lines = self.lines(msg="Run ended", name=name)
        return [line for line in lines if not (line.get("error") or "").startswith("The run waits for its pod")]

    def await_line(self, event: str, **fields: Any) -> dict[str, Any]:
        return wait_until(
            lambda: self.lines(event, **fields), lambda: f"log line {event!r} {fields}; the log is:\n{self.log[-4000:]}"
        )[-1]

    def await_ready(self) -> None:
        """Wait until it watches."""
        wait_until(self.is_ready, lambda: f"the operator to be ready; its log is:\n{self.log[-4000:]}")

    def is_ready(self) -> bool:
        """Ask its readiness probe; fails the test when it has ended."""
        assert self.process.poll() is None, f"the operator ended with {self.process.returncode}:\n{self.log[-4000:]}"
        serving = [line["port"] for line in self.lines("Serving") if "/readyz" in line["paths"]]
        try:
            return bool(serving) and self.fetch(serving[0], "/readyz").status == 200
        except urllib3.exceptions.HTTPError:  # it is paused, or busy
            return False

    def fetch(self, port: int, path: str) -> urllib3.BaseHTTPResponse:
        """Send a request to one of its ports on loopback."""
        return urllib3.request("GET", f"http://127.0.0.1:{port}{path}", retries=False, timeout=patience())

    def port(self, path: str) -> int:
        """The port that serves a path."""
        (port,) = (line["port"] for line in self.lines("Serving") if path in line["paths"])
        return int(port)

    def get(self, path: str) -> str:
        """Return the answer to a request for a path that it serves."""
        return self.fetch(self.port(path), path).data.decode()

    def stop(self, timeout: float = 60) -> int:
        """Stop it as Kubernetes does; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(patience())


@dataclass
class Project:
    """A user's project folder."""

    folder: Path
    namespace: str
    kubeconfig: Path
    api: Api
    operators: list[Operator] = field(default_factory=list)
    watches: list[dict[str, Any]] = field(default_factory=list)

    def write(self, path: str, text: str) -> Path:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(textwrap.dedent(text))
        return target

    def role(self, name: str, tasks: str) -> None:
        self.write(f"roles/{name}/tasks/main.yml", tasks)

    def watch(self, role: str, **options: Any) -> None:
        self.watches.append({"group": GROUP, "version": "v1", "kind": "Thing", "role": role, **options})

    def grant(self, groups: list[str], resources: list[str]) -> None:
        """Let the operator's account do with these what it may do with its own kinds."""
        verbs = ["get", "list", "watch", "patch", "update"]
        self.permit({"apiGroups": groups, "resources": resources, "verbs": verbs})

    def grant_kind(self, plural: str) -> None:
        """Let the operator's account reconcile another kind of the group of Thing."""
        self.grant([GROUP], [plural, f"{plural}/status", f"{plural}/finalizers"])

    def permit(self, *rules: Mapping[str, Any]) -> None:
        """Give the operator's account more rights."""
        self.rules = [*self.rules, *rules]

    @property
    def rules(self) -> list[Any]:
        """The rights of the operator's account."""
        found: list[Any] = self.api.call("GET", self._cluster_role)["rules"]
        return found

    @rules.setter
    def rules(self, rules: Sequence[Mapping[str, Any]]) -> None:
        self.api.call("PUT", self._cluster_role, {**self.api.call("GET", self._cluster_role), "rules": rules})

    @property
    def _cluster_role(self) -> str:
        return f"/apis/rbac.authorization.k8s.io/v1/clusterroles/operator-{self.namespace}"

    def allow_lease(self, name: str) -> None:
        """Give the operator's account the rights of config/rbac for its Lease."""
        role = yaml.safe_load((ROOT / "config/rbac/leader_election_role.yaml").read_text(encoding="utf-8"))
        for rule in role["rules"]:
            if rule["resources"] == ["leases"] and rule.pop("resourceNames", None):
                rule["resourceNames"] = [name]
        self._allow(role["metadata"]["name"], role["rules"])

    def allow_rollouts(self) -> None:
        """Give the operator's account the rights for the state of rollouts, and for plans in the mode `approve`."""
        verbs = ["create", "get", "update", "patch", "delete"]
        self._allow("rollouts", [{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}])

    def _allow(self, name: str, rules: list[Any]) -> None:
        """Give the operator's account rights in its namespace."""
        account = self.namespace, ACCOUNT
        self.api.grant(*granted(name, rules, namespace=self.namespace, account=account))

    def bind_everywhere(self) -> None:
        """Give the operator's account its rights in every namespace."""
        name = f"operator-{self.namespace}"
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.namespace}/rolebindings/{name}"
        binding = self.api.call("GET", path)
        wide = {field: binding[field] for field in ("apiVersion", "roleRef", "subjects")}
        self.api.apply(
            f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}",
            {**wide, "kind": "ClusterRoleBinding", "metadata": {"name": name}},
        )

    def start(
        self,
        *flags: str,
        environment: Mapping[str, str] | None = None,
        ready: bool = True,
        within: Sequence[str] = (),
        program: Sequence[str] = (),
    ) -> Operator:
        """Start the installed command in the project's folder, and wait until it watches.

        `within`: a command that becomes the one that stands behind it. `program`: what is started instead.
        """
        self.write("watches.yaml", yaml.safe_dump(self.watches))
        log = self.folder / f"operator-{len(self.operators)}.log"
        run = run_command(self.kubeconfig, self.folder / "runs", self.namespace, *flags)
        command = [*within, *(program or PROGRAM), *run]
        own = operators_environment(environment)
        with log.open("wb") as output:
            process = subprocess.Popen(command, cwd=self.folder, env=own, stdout=output, stderr=subprocess.STDOUT)
        operator = Operator(process, log)
        self.operators.append(operator)
        if ready:
            operator.await_ready()
        return operator

    def close(self) -> None:
        """End what still runs."""
        for operator in self.operators:
            if operator.process.poll() is None:
                operator.kill()

    def plan(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run `ansible-operator plan` in the project's folder. Lines of progress, of a slow machine, are left out."""
        self.write("watches.yaml", yaml.safe_dump(self.watches))
        command = [*PROGRAM, "plan", *arguments]
        environ = operators_environment({"KUBECONFIG": str(self.kubeconfig), **environment})
        done = captured(*command, cwd=self.folder, env=environ, timeout=patience())
        done.stderr = re.sub(r"(?m)^\d+ s: plann.*\n", "", done.stderr)
        return done


def account_kubeconfig(api: Api, admin: Path, namespace: str, folder: Path) -> Path:
    """A service account that may do what config/rbac grants, with Things beside Memcacheds."""
    base = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.call("POST", base, {"metadata": {"name": ACCOUNT}})
    role = yaml.safe_load((ROOT / "config/rbac/role.yaml").read_text(encoding="utf-8"))
    rules = role["rules"]
    rules += [
        {
            **rule,
            "apiGroups": [GROUP],
            "resources": [each.replace("memcacheds", "things") for each in rule["resources"]],
        }
        for rule in rules
        if "cache.example.com" in rule["apiGroups"]
    ]
    role, binding = granted(f"operator-{namespace}", rules, account=(namespace, ACCOUNT))
    in_namespace = {"kind": "RoleBinding", "metadata": {"name": f"operator-{namespace}", "namespace": namespace}}
    api.grant(role, {**binding, **in_namespace})
    token = api.call("POST", f"{base}/{ACCOUNT}/token", {"spec": {"expirationSeconds": 7200}})["status"]["token"]
    cluster = yaml.safe_load(admin.read_text(encoding="utf-8"))["clusters"][0]["cluster"]
    if "certificate-authority" in cluster:
        content = Path(cluster.pop("certificate-authority")).read_bytes()
        cluster["certificate-authority-data"] = base64.b64encode(content).decode()
    path = folder / "kubeconfig"
    path.write_text(kubeconfig_of(cluster, {"token": token}, namespace=namespace), encoding="utf-8")
    path.chmod(0o600)
    return path
