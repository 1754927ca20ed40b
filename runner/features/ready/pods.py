"""Why the pods of a workload are not ready: read on demand, in one bounded list."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from runner.base import log
from runner.core.kube.client import Client, Selection
from runner.core.kube.discovery import ApiResource
from runner.core.reconcile.attempt import WatchScope
from runner.core.watches.selectors import LabelRequirement, render_labels
from runner.values.errors import ApiError, ApiUnavailableError, ForbiddenError, NotFoundError, shortened
from runner.values.objects import GVK, Object, ObjectKey, mapping, maps, metadata

_PODS = ApiResource(
    GVK("", "v1", "Pod"), "pods", namespaced=True, verbs=frozenset({"list"}), subresources=frozenset({"status"})
)
_MOST = 50
"""Pods that are read of one workload."""
_LONGEST = 200
"""Characters of a reason."""
_REFUSED = 600.0
"""Seconds until pods of a namespace are read again that the API server refused to list."""
_STARTING = {"ContainerCreating", "PodInitializing"}
_HARMLESS = {"CreateContainerConfigError"}
"""Reasons whose message is shown. Others contain the command, which can contain secret values."""
_NO_IMAGE = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ErrImageInspect"}


def reason_of(pods: Iterable[Object]) -> str:
    """Return why pods are not ready; empty if they only start.

    The kubelet alternates between several reasons of one failure. The result is the same for all of them.
    """
    newest = sorted(pods, key=lambda pod: str(metadata(pod).get("creationTimestamp")), reverse=True)
    return shortened(next((reason for pod in newest for reason in _reasons(pod)), ""), _LONGEST)


def _reasons(pod: Object) -> Iterator[str]:
    spec, status = mapping(pod.get("spec")), mapping(pod.get("status"))
    images = {item.get("name"): item.get("image") for item in _both(spec, "initContainers", "containers")}
    for container in _both(status, "initContainerStatuses", "containerStatuses"):
        name, state = container.get("name"), mapping(container.get("state"))
        waiting, ended = mapping(state.get("waiting")), mapping(state.get("terminated"))
        reason = str(waiting.get("reason") or "")
        ended = ended or mapping(mapping(container.get("lastState")).get("terminated"))
        if reason in _NO_IMAGE:
            yield f"{'ImagePullBackOff' if reason == 'ErrImagePull' else reason} {images.get(name, '')}"
        elif not container.get("ready") and ended.get("exitCode"):
            loop = "CrashLoopBackOff: " if container.get("restartCount") else ""
            why = "" if ended.get("reason") in {None, "Error"} else f" ({ended['reason']})"
            yield f"{loop}container {name} ended with exit code {ended['exitCode']}{why}"
        elif reason and reason not in _STARTING:
            yield _sentence(waiting) if reason in _HARMLESS else reason
    scheduled = next((item for item in maps(status.get("conditions")) if item.get("type") == "PodScheduled"), {})
    if scheduled.get("status") == "False":
        yield _sentence(scheduled)
    if status.get("reason"):
        yield _sentence(status)


def _both(part: Mapping[str, Any], *names: str) -> list[dict[str, Any]]:
    return [item for name in names for item in maps(part.get(name))]


def _sentence(part: Mapping[str, Any]) -> str:
    return ": ".join(str(part[name]) for name in ("reason", "message") if part.get(name))


def selector_of(workload: Object) -> str:
    """Return the selector of a workload's pods; empty if it has none."""
    selector = mapping(mapping(workload.get("spec")).get("selector"))
    labels: Mapping[str, Any] = mapping(selector.get("matchLabels"))
    required = [LabelRequirement(str(name), "In", (str(value),)) for name, value in labels.items()]
    for item in maps(selector.get("matchExpressions")):
        values = tuple(map(str, item.get("values") or ()))
        required.append(LabelRequirement(str(item.get("key")), str(item.get("operator")), values))
    return render_labels(required)


class PodReasons:
    """Reads the pods of the workloads of one watch."""

    def __init__(self, scope: WatchScope, client: Client) -> None:
        self._client = client
        self._refused: dict[str, float] = {}
        """Time of the next read by namespace, if the API server refused the last one."""
        self._logged = log.Once()
        self._log = log.get(__name__, gvk=str(scope.watch.gvk))
        text = "Reads of pods that the API server refused; messages of Ready lack the pods' reasons"
        counter = scope.metrics.counter("ansible_operator_ready_pods_refused", text, ["GVK"])
        self._refusals = counter.labels(str(scope.watch.gvk))

    async def read(self, resource: ApiResource, key: ObjectKey) -> str | None:
        """Return why the pods of a workload are not ready; empty if no reason is known, None if it cannot be read."""
        now = asyncio.get_running_loop().time()
        if now < self._refused.get(key.namespace, now):
            return ""
        try:
            selector = selector_of(await self._client.get(resource, key))
            if not selector:
                return ""
            page = await self._client.list_page(_PODS, key.namespace, Selection(selector), _MOST, "")
        except NotFoundError:
            return ""
        except ForbiddenError as error:
            self._refusals.inc()
            self._refused[key.namespace] = now + _REFUSED
            if self._logged.is_new(key.namespace):
                self._log.warning(
                    "Cannot read why pods are not ready: messages of Ready do not contain it. Add this right to "
                    "config/rbac/role.yaml",
                    error=str(error),
                    needs="verb list on pods",
                    namespace=key.namespace,
                )
            return ""
        except (ApiError, ApiUnavailableError) as error:
            self._log.debug("Cannot read why pods are not ready; retrying", error=str(error), **key._asdict())
            return None
        self._refused.pop(key.namespace, None)
        return reason_of(page.items)
