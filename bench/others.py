"""The same operator written for other frameworks, on one control plane. `python -m bench.others`.

For each `Load`, each operator makes a Deployment of the size of the spec and reports it in the status. Measured are the
time from the creation of a `Load` to that of its Deployment, alone and for 20 at once, CPU time for each, and the
memory at rest. `bench/compared` has the sources for Kopf and controller-runtime, whose packages are installed; the
latter needs Go. `BENCH_ANSIBLE_OPERATOR` and `BENCH_HELM_OPERATOR` name programs of the Operator SDK, and
`BENCH_ANSIBLE_PATH` the folder of the `ansible-runner` for the first; without them they are left out.
`BENCH_OTHERS` names the operators, with commas, and `BENCH_REPEATS` says how many single objects there are.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench import objects, process_stats
from bench.operator_process import DEADLINE, Project
from bench.results import Result, show, tell
from runner.base.credentials import auth
from runner.core.kube.client import Client
from runner.sdk import devcluster
from tests.kit.operator import PROGRAM, operators_environment, run_command
from tests.kit.wait import until

_HERE = Path(__file__).parent / "compared"
_CONTROLLER_RUNTIME = "v0.25.2"
_KOPF = "1.45.2"
_AT_ONCE = 20
_WARM_UP = 8
_SETTLES = 15.0
"""Seconds after the first objects: our fork server is replaced by one that has loaded what runs need."""
_DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: "{name}", namespace: "{namespace}"}}
spec:
  replicas: {size}
  selector: {{matchLabels: {{app: "{name}"}}}}
  template:
    metadata: {{labels: {{app: "{name}"}}}}
    spec: {{containers: [{{name: app, image: "example.com/app:1"}}]}}
"""


@dataclass(frozen=True, slots=True)
class Bed:
    """Where an operator is prepared: a folder of its own, the control plane, and the namespace that it watches."""

    folder: Path
    kubeconfig: Path
    namespace: str


def _role() -> list[dict[str, object]]:
    meta = {field: f"{{{{ ansible_operator_meta.{field} }}}}" for field in ("name", "namespace")}
    definition = yaml.safe_load(_DEPLOYMENT.format(size="SIZE", **meta))
    definition["spec"]["replicas"] = "{{ size }}"
    return [{"name": "Create the Deployment", "kubernetes.core.k8s": {"definition": definition}}]


def _ours(bed: Bed) -> list[str]:
    project = Project.make(bed.folder, bed.kubeconfig, _role())
    return [*PROGRAM, *run_command(bed.kubeconfig, project.runs, bed.namespace, "--engine=auto")]


def _ansible_operator(bed: Bed) -> list[str]:
    project = Project.make(bed.folder, bed.kubeconfig, _role())
    (bed.folder / "path").symlink_to(os.environ["BENCH_ANSIBLE_PATH"])
    return [os.environ["BENCH_ANSIBLE_OPERATOR"], "run", f"--watches-file={project.folder / 'watches.yaml'}"]


def _helm_operator(bed: Bed) -> list[str]:
    templates = bed.folder / "chart" / "templates"
    templates.mkdir(parents=True)
    (templates.parent / "Chart.yaml").write_text("apiVersion: v2\nname: load\nversion: 0.1.0\n", encoding="utf-8")
    text = _DEPLOYMENT.format(
        name="{{ .Release.Name }}", namespace="{{ .Release.Namespace }}", size="{{ .Values.size }}"
    )
    (templates / "deployment.yaml").write_text(text, encoding="utf-8")
    watch = {"group": objects.GROUP, "version": objects.VERSION, "kind": objects.KIND, "chart": "chart"}
    (bed.folder / "watches.yaml").write_text(json.dumps([watch]), encoding="utf-8")
    return [os.environ["BENCH_HELM_OPERATOR"], "run", "--watches-file=watches.yaml"]


def _kopf(bed: Bed) -> list[str]:
    _call(sys.executable, "-m", "venv", str(bed.folder / "venv"))
    python = bed.folder / "venv" / "bin"
    _call(str(python / "pip"), "install", "--quiet", f"kopf=={_KOPF}", "kubernetes")
    return [str(python / "kopf"), "run", f"--namespace={bed.namespace}", str(_HERE / "handlers.py")]


def _controller_runtime(bed: Bed) -> list[str]:
    shutil.copy(_HERE / "main.go", bed.folder)
    _call("go", "mod", "init", "example.com/load", cwd=bed.folder)
    _call("go", "mod", "edit", f"-require=sigs.k8s.io/controller-runtime@{_CONTROLLER_RUNTIME}", cwd=bed.folder)
    _call("go", "mod", "tidy", cwd=bed.folder)
    _call("go", "build", "-o", "operator", cwd=bed.folder)
    return [str(bed.folder / "operator")]


def _call(*command: str, cwd: Path | None = None) -> None:
    subprocess.run(command, cwd=cwd, check=True, stdout=sys.stderr)


_OPERATORS: dict[str, Callable[[Bed], list[str]]] = {
    "this operator": _ours,
    "Go operator": _ansible_operator,
    "Helm operator": _helm_operator,
    "Kopf": _kopf,
    "controller-runtime": _controller_runtime,
}
_NEEDS = {"Go operator": "BENCH_ANSIBLE_OPERATOR", "Helm operator": "BENCH_HELM_OPERATOR"}


def main() -> None:
    """Measure each operator on a control plane that goes afterwards."""
    named = os.environ.get("BENCH_OTHERS", ",".join(_OPERATORS)).split(",")
    with devcluster.start(name="bench", progress=sys.stderr) as cluster:
        for name in named:
            if _NEEDS.get(name, "PATH") not in os.environ:
                tell(f"{name} is left out: set {_NEEDS[name]}")
                continue
            with tempfile.TemporaryDirectory(prefix="ansible-operator-bench-") as folder:
                bed = Bed(Path(folder), cluster.kubeconfig, "others-" + name.lower().replace(" ", "-"))
                asyncio.run(_measure(name, bed, _OPERATORS[name](bed)))


async def _measure(name: str, bed: Bed, command: list[str]) -> None:
    tell(name)
    repeats = int(os.environ.get("BENCH_REPEATS", "7"))
    path = f"{bed.folder / 'path'}{os.pathsep}{os.environ['PATH']}"
    own = {"KUBECONFIG": str(bed.kubeconfig), "WATCH_NAMESPACE": bed.namespace, "PATH": path}
    own |= {
        "ANSIBLE_COLLECTIONS_PATH": sysconfig.get_path("purelib"),
        "ANSIBLE_ROLES_PATH": str(bed.folder / "roles"),
    }
    async with Client(await auth.load(str(bed.kubeconfig), None, auth.HostEnvironment.of_process())) as client:
        await objects.install(client, (bed.namespace,))
        with ExitStack() as stack:
            log = stack.enter_context((bed.folder / "log").open("wb"))
            process = subprocess.Popen(  # noqa: ASYNC220 - nothing else is to happen before it is started
                command, cwd=bed.folder, env=operators_environment(own), stdout=log, stderr=log
            )
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
            try:
                await _until_made(client, bed.namespace, [f"first-{number}" for number in range(_WARM_UP)])
                await asyncio.sleep(_SETTLES)
                waits = [await _until_made(client, bed.namespace, [f"alone-{each}"]) for each in range(repeats)]
                cpu = process_stats.cpu_seconds_of_tree(process.pid)
                many = await _until_made(client, bed.namespace, [f"many-{each}" for each in range(_AT_ONCE)])
                await asyncio.sleep(_SETTLES)
            except BaseException:
                tell((bed.folder / "log").read_text(errors="replace")[-4000:])
                raise
            cpu = process_stats.cpu_seconds_of_tree(process.pid) - cpu
            memory = process_stats.proportional_of_tree(process.pid)
    show(Result("others", f"{name}: creation to Deployment, median", statistics.median(waits), "s"))
    show(Result("others", f"{name}: {_AT_ONCE} at once, Deployments a second", _AT_ONCE / many, "1/s", None, "higher"))
    show(Result("others", f"{name}: CPU for one of {_AT_ONCE}", cpu / _AT_ONCE, "s"))
    show(Result("others", f"{name}: memory at rest, PSS", memory, "MiB"))


async def _until_made(client: Client, namespace: str, names: list[str]) -> float:
    """Create objects at once; return the seconds until each has a Deployment."""
    began = time.perf_counter()
    await objects.concurrently(
        range(len(names)),
        lambda number: client.request("POST", objects.path(namespace), body=objects.body(names[number])),
    )

    async def is_done() -> bool:
        found = await client.request("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments")
        return set(names) <= {item["metadata"]["name"] for item in found["items"]}

    await until(is_done, f"Deployments of {len(names)} objects", DEADLINE)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
