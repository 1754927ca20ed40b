"""Operators of `examples/`, deployed as their README says, on the real control plane.

`install("mysql")` copies the example and does `make deploy`. `start()` runs the operator as its pod would, with the
pod's flags, variables and token, so exactly with the rights of `config/rbac`. `remove()` does `make undeploy` and holds
that nothing is left. Objects are read and written by the administrator, straight at the API server.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from runner.sdk import devcluster as clusters
from tests.integration.scaffold import installed
from tests.integration.scaffold.developer import copy_sample
from tests.integration.scaffold.installed import Json
from tests.kit.objects import Api, Objects, Things
from tests.kit.operator import Operator
from tests.kit.places import ROOT
from tests.kit.shell import Sh
from tests.kit.wait import wait_until

EXAMPLES = ROOT / "examples"


class Resources(Things):
    """The custom resources of one kind in one namespace; of the cluster if it is empty."""

    def holds(self, line: Json) -> bool:
        """Whether a line of the operator's log is about an object of this namespace."""
        return (line["namespace"] or "") == self.namespace

    def change(self, name: str, **spec: Any) -> None:
        """Change fields of its spec."""
        self.merge(name, {"spec": spec})

    def condition(self, name: str, of: str) -> Json:
        return self.conditions(name).get(of, {})

    def result(self, name: str) -> Json:
        """Wait until a run of the present generation has succeeded; return its `ansibleResult`."""
        found: Json = self.await_success(name)["ansibleResult"]
        return found


@dataclass
class Example:
    """A deployed example."""

    folder: Path
    sh: Sh
    devcluster: clusters.DevCluster
    api: Api
    scratch: Path
    operator: Operator | None = None
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _starts: int = 0
    _variables: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> str:
        """The namespace of the operator."""
        found: str = yaml.safe_load((self.folder / "config/default/kustomization.yaml").read_text())["namespace"]
        return found

    def resources(self, kind: str, namespace: str = "", version: str = "") -> Resources:
        """Return the access to one of the example's own kinds, as its CRD describes it."""
        for path in self._definitions():
            spec = yaml.safe_load(path.read_text())["spec"]
            if spec["names"]["kind"] == kind:
                stored = next(each["name"] for each in spec["versions"] if each["storage"])
                group = f"{spec['group']}/{version or stored}"
                return Resources(self.api, namespace, spec["names"]["plural"], kind, group)
        raise LookupError(kind)

    def objects(self, group_version: str, plural: str, namespace: str = "") -> Objects:
        """Return the access to a kind, as `apps/v1`, `deployments`."""
        where = f"namespaces/{namespace}/" if namespace else ""
        root = "api" if "/" not in group_version else "apis"
        return Objects(self.api, f"/{root}/{group_version}/{where}{plural}")

    def start(self) -> Operator:
        """Run what the pod of the Deployment would, and wait until it is ready; before, a signal would just end it."""
        self._starts += 1
        folder = self.scratch / f"operator-{self._starts}"
        running = installed.operator(self.sh, self.devcluster, self.folder, self.home, folder)
        self.operator = operator = self._stack.enter_context(running)
        wait_until(operator.is_ready, "the operator to be ready")
        return operator

    @property
    def _deployment(self) -> str:
        return f"deployment/{self.home.removesuffix('-system')}-controller-manager"

    def tell(self, **variables: str) -> None:
        """Give the operator variables, now and in what is deployed later."""
        self._variables |= variables
        given = [f"{name}={value}" for name, value in self._variables.items()]
        self.sh("kubectl", "set", "env", self._deployment, f"--namespace={self.home}", *given)
        self._await_rollout()

    def upgrade(self, *variables: str) -> None:
        """Do `make deploy` again, and wait until the pods of before are on their way out; the next start is the new."""
        self.upgrade_by("make", "deploy", *variables)

    def upgrade_by(self, *command: str) -> None:
        """Do so by another command."""
        self.sh(*command)
        if self._variables:
            self.tell()
        else:
            self._await_rollout()

    def _await_rollout(self) -> None:
        self.sh.await_rollout(self._deployment, f"--namespace={self.home}")

    def upgrades(self, *objects: tuple[Resources, str]) -> None:
        """Hold that the operator's next version, which runs each object, changes nothing of these."""
        for resources, name in objects:
            resources.await_success(name)
        self.stop()
        self.upgrade(f"IMG=example.com/{self.home.removesuffix('-system')}:v0.0.2")
        self.start()
        for resources, name in objects:
            self._changes_nothing(resources, name)

    def stop(self) -> None:
        assert self.operator is not None
        assert self.operator.stop() == 0, self.operator.log[-3000:]

    def settles(self, resources: Resources, name: str) -> None:
        """Hold that one more run changes nothing: an operator that starts runs each object.

        That it took place the log tells: nothing is written of a run whose result is that of the one before.
        """
        resources.await_success(name)
        self.stop()
        self.start()
        self._changes_nothing(resources, name)

    def _changes_nothing(self, resources: Resources, name: str) -> None:
        operator = self.operator
        assert operator is not None

        def ended() -> list[Json]:
            lines = operator.lines(msg="Run ended", name=name)
            return [each for each in lines if each["gvk"].endswith(f"={resources.kind}") and resources.holds(each)]

        run = wait_until(ended, f"one more run of {name}")[0]
        assert (run["changed"], run["outcome"]) == (0, "succeeded"), self.output(name)
        wait_until(lambda: resources.result(name)["changed"] == 0, f"{name} to say so")

    def output(self, name: str) -> str:
        """What the operator's log holds of an object, for messages."""
        assert self.operator is not None
        return f"{name}:\n{self.operator.log[-6000:]}"

    def forbidden(self) -> list[Json]:
        """Lines of the log that tell of a missing right; a namespace that is on its way out refuses everybody."""
        assert self.operator is not None
        told = [(line, json.dumps(line)) for line in self.operator.lines()]
        return [line for line, text in told if "orbidden" in text and "it is being terminated" not in text]

    def await_collector(self, resources: Resources) -> None:
        """Wait until Kubernetes' garbage collector knows the kind, which it looks for each half a minute.

        What an object owns would stay for good where the kind were gone before that. It is told by something whose
        owner has never been.
        """
        maps = self.objects("v1", "configmaps", "default")
        name = f"of-no-{resources.kind.lower()}"
        owner = {"apiVersion": resources.version, "kind": resources.kind, "name": "nobody", "uid": str(uuid.uuid4())}
        maps.post({"metadata": {"name": name, "ownerReferences": [owner]}})
        maps.await_gone(name)

    def remove(self) -> None:
        """Do `make undeploy`, while the operator runs, and hold that neither kinds nor rights nor a namespace stay."""
        assert self.operator is not None
        assert self.forbidden() == []
        self.sh("make", "undeploy", "TIMEOUT=120s")
        self.operator.stop()
        self.nothing_is_left()

    def nothing_is_left(self) -> None:
        """Hold that there are no kinds, rights or namespace of the example."""
        groups = {yaml.safe_load(path.read_text())["spec"]["group"] for path in self._definitions()}
        left = self.sh("kubectl", "get", "crd,clusterrole,clusterrolebinding,namespace", "--output=name").split()
        own = [each for each in left if each.endswith(tuple(groups)) or self.home.removesuffix("-system") in each]
        assert own == []

    def _definitions(self) -> Iterator[Path]:
        return (self.folder / "config/crd/bases").glob("*.yaml")

    def close(self) -> None:
        """End what still runs."""
        self._stack.close()


Install = Callable[[str], Example]


def copy(name: str, into: Path) -> Path:
    """Copy an example into a folder of its project's name."""
    if name != "memcached":
        project: str = yaml.safe_load((EXAMPLES / name / "PROJECT").read_text())["projectName"]
        return Path(shutil.copytree(EXAMPLES / name, into / project))
    folder = copy_sample(into)
    # The repository's own Makefile has more to do; this is the part of it that is the sample's.
    (folder / "Makefile").write_text("IMG ?= example.com/memcached-operator:v0.0.1\ninclude config/deploy.mk\n")
    return folder
