"""What a page looks at, in tests: kinds with real queues and caches, filled with whatever a test wants to see."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from runner.base.page import PageSections
from runner.core.dependents.kind import Owned
from runner.core.engine.job import Event
from runner.core.kube.cache import Cache
from runner.core.kube.health import Health, HealthState
from runner.core.kube.watch_events import Applied, Deleted
from runner.core.queue.line import ConcurrencyLimit
from runner.core.queue.queue import Dispatcher, WorkQueue
from runner.core.watches.watch import Watch
from runner.features.ui.journal import Journal
from runner.features.ui.views import OperatorInfo, Views
from runner.values.objects import GVK, Object, ObjectKey
from tests.kit.watch_values import watch_value

if TYPE_CHECKING:
    from runner.core.reconcile.controller import Controller

_HEALTH = Health(HealthState.IN_PROGRESS, "0 of 2 ready: ImagePullBackOff")


class Objects:
    """A cache, as an informer shows it."""

    def __init__(self) -> None:
        self.revision = 0
        self.trouble: str | None = None
        self.is_missing = False
        self.parsed = 0
        """Objects that were requested whole."""
        self._cache = Cache()

    def problem(self) -> str | None:
        return self.trouble

    def waits(self) -> bool:
        return self.is_missing

    def all_keys(self) -> list[ObjectKey]:
        return list(self._cache.keys())

    def summary(self, key: ObjectKey) -> Any:
        return self._cache.summary(key)

    def get(self, key: ObjectKey) -> Object | None:
        self.parsed += 1
        return self._cache.get(key)

    def put(self, name: str, *conditions: Mapping[str, Any], namespace: str = "shop", **more: Any) -> ObjectKey:
        """Have an object with these conditions; `more` stands beside these, and in its status."""
        self.revision += 1
        self._cache.apply("", Applied(an_object(name, conditions, namespace, self.revision, more)))
        return ObjectKey(namespace, name)

    def drop(self, name: str, namespace: str = "shop") -> None:
        self.revision += 1
        self._cache.apply("", Deleted(an_object(name, (), namespace, self.revision, {})))


def an_object(name: str, conditions: Any, namespace: str, version: int, more: Mapping[str, Any]) -> Object:
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{namespace}-{name}",
        "resourceVersion": str(version),
        "generation": 1,
        "creationTimestamp": "2026-11-21T10:00:00Z",
        **more.get("metadata", {}),
    }
    return {
        "apiVersion": "cache.example.com/v1alpha1",
        "kind": "Memcached",
        **more,
        "metadata": metadata,
        "status": {**more.get("status", {}), "conditions": list(conditions)},
    }


def condition(
    kind: str, status: str = "True", message: str = "", since: str = "2026-11-21T11:00:00Z"
) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": "Told", "message": message, "lastTransitionTime": since}


class AKind:
    """A kind that is watched."""

    def __init__(self, watch: Watch | None = None, workers: int = 4) -> None:
        self.watch = watch or watch_value()
        self.informer = Objects()
        self.queue = WorkQueue(ConcurrencyLimit.of(workers), Dispatcher(ConcurrencyLimit.of(workers)))

    @property
    def gvk(self) -> GVK:
        return self.watch.gvk


def views_of(
    kind: AKind, journal: Journal | None = None, runner_dir: Path = Path("/nonexistent"), *sections: PageSections
) -> Views:
    return Views(
        OperatorInfo("shop-operator", "https://cluster.example.com:6443", (), runner_dir, time.time()),
        [cast("Controller", kind)],
        journal or Journal(time.time),
        sections,
        lambda owner: [Owned(GVK("apps", "v1", "Deployment"), owner.key, "u", _HEALTH)],
    )


def at(second: float) -> str:
    return datetime.fromtimestamp(1_800_000_000 + second, UTC).isoformat()


def start(task: str, second: float = 0, path: str = "/r/main.yml:1", kind: str = "playbook_on_task_start") -> Event:
    data = {"task": task, "task_path": path, "task_action": "debug", "task_args": "hunter2"}
    return {"event": kind, "created": at(second), "event_data": data}


def ended(kind: str, second: float = 1, **data: Any) -> Event:
    return {"event": f"runner_{kind}", "created": at(second), "event_data": {"host": "localhost", **data}}
