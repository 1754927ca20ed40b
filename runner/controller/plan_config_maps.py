"""ConfigMaps with all values of the plans of one watch's objects. The object owns its ConfigMap.

Best effort: if the API server refuses the ConfigMap, the plan is in the status only, and one warning has the reason.
"""

from __future__ import annotations

from runner import log
from runner.controller.attempt import Attempt
from runner.errors import ApiError, ConflictError, NotFoundError
from runner.kube.client import Client, PatchType
from runner.kube.discovery import ApiResource
from runner.kube.meaning import Follow, Meaning, Request, follow, meaning
from runner.objects import GVK, PLAN_OF, Object, ObjectKey, ObjectRef, annotations_of, uid_of
from runner.ownership import Owner
from runner.plan import published
from runner.plan.results import ResourcePlan

_CONFIG_MAPS = ApiResource(GVK("", "v1", "ConfigMap"), "configmaps", True, frozenset(), frozenset())  # noqa: FBT003 - namespaced


class PlanConfigMaps:
    """Writes the ConfigMaps."""

    def __init__(self, gvk: GVK, client: Client) -> None:
        self._gvk = gvk
        self._client = client
        self._logged = log.Once()
        self._log = log.get(__name__, gvk=str(gvk))

    async def write(self, attempt: Attempt, plan: ResourcePlan) -> str:
        """Write the ConfigMap of a plan if it differs; return its name, or nothing if there is none."""
        key = self._key(attempt.obj)
        owner = Owner(ObjectRef.of(self._gvk, attempt.obj), namespaced=attempt.resource.namespaced)
        wanted = published.config_map(attempt.obj, owner.reference(), key.name, key.namespace, plan)
        attempt.guard.check()
        try:
            found = await self._own(attempt.obj)
            if found is None:
                await self._client.create(_CONFIG_MAPS, key.namespace, wanted)
            elif found.get("data") != wanted["data"]:
                body = {
                    "metadata": {"uid": uid_of(found)},
                    "data": {**dict.fromkeys(found.get("data") or {}), **wanted["data"]},
                }
                await self._client.patch(_CONFIG_MAPS, key, body, content_type=PatchType.MERGE)
        except ApiError as error:
            self._note(error)
            return ""
        return key.name

    async def remove(self, attempt: Attempt) -> None:
        """Remove the ConfigMap of an object."""
        attempt.guard.check()
        try:
            found = await self._own(attempt.obj)
            if found is not None:
                await self._client.delete(_CONFIG_MAPS, self._key(attempt.obj), uid=uid_of(found))
        except ApiError as error:
            if meaning(error) not in {Meaning.CONFLICT, Meaning.ABSENT}:  # another one has the name, or it is gone
                self._note(error)

    async def _own(self, obj: Object) -> Object | None:
        """Return the ConfigMap. Raises ConflictError if another one has its name."""
        key = self._key(obj)
        try:
            found = await self._client.get(_CONFIG_MAPS, key)
        except NotFoundError:
            return None
        if annotations_of(found).get(PLAN_OF) != uid_of(obj):
            raise ConflictError(f"ConfigMap {key} exists, and is not that of a plan", status=409)
        return found

    def _key(self, obj: Object) -> ObjectKey:
        namespace = ObjectRef.of(self._gvk, obj).key.namespace or self._client.credentials.namespace
        return ObjectKey(namespace, published.config_map_name(self._gvk, obj))

    def _note(self, error: ApiError) -> None:
        """Log each distinct reason once; raise an error that ends by itself."""
        if follow(Request.PLAN, error) is not Follow.OMIT:
            raise error
        if self._logged.is_new(str(error)):
            self._log.warning(
                "Cannot write the ConfigMap of a plan, so that the status contains only a part of it",
                error=str(error),
                needs="verbs create, delete, get and patch on configmaps",
            )
