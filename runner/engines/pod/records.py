"""Secrets and Jobs of runs in pods: creation, search and deletion.

The Secret of a run is its record until the outcome is in the status. Both objects are in the namespace of the resource;
for a cluster-scoped one, in that of the operator. Nothing can be created in a namespace that is being deleted, or whose
quota is used. Those of a finalizer are then in the namespace of the operator. The garbage collector does not find their
owner there. The
operator deletes the Secret with the result, or when the resource is gone. Kubernetes deletes the ended Job.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from runner.base import log
from runner.core.engine.job import Job
from runner.core.kube.client import Client
from runner.core.kube.discovery import ApiResource
from runner.core.kube.state import until_available
from runner.engines.pod import jobs
from runner.engines.pod.fields import PodPolicy
from runner.engines.pod.jobs import EVENTS, JOBS, PODS, SECRETS, Address, RecordedRun, RunRecord
from runner.values.errors import (
    PASSING,
    ApiError,
    ApiUnavailableError,
    ConflictError,
    EngineError,
    ForbiddenError,
    NamespaceTerminatingError,
    NotFoundError,
)
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef, labels_of, metadata

APPLY = "apply"
"""Purpose of ordinary runs: those of finalizers and plans can need another namespace."""
PLAN = "plan"
"""Purpose of plans. No other operator continues one: its changes are in the memory of the operator that began it."""
_REFUSED = re.compile(r'^Error creating: (?:pods "[^"]*" is forbidden: )?')
"""Begin of the job controller's message, with a name that differs each time."""
_QUOTA = "exceeded quota"
"""Part of the API server's message."""
_MOST_EVENTS = "10"
"""Events of a Job that are read: each refused pod has one."""
_MOST_OF_OBJECT = "20"
"""Objects of one resource's runs that are read. There are a few, but a tenant can label large Secrets of its own."""
_COUNTS = ("active", "failed", "succeeded", "uncountedTerminatedPods")
"""Fields in the status of a Job that has created a pod."""
_log = log.get(__name__)


class Records:
    """Secrets and Jobs of all runs in pods."""

    def __init__(
        self, client: Client, address: Callable[[], Address], namespace: str, policies: Mapping[GVK, PodPolicy]
    ) -> None:
        """`address` is that for new runs. `namespace` is that of the operator, empty if it is unknown."""
        self._client = client
        self.address = address
        self.policies = policies
        self.namespace = namespace
        self._logged = log.Once()

    def place_of(self, run: RecordedRun) -> ObjectKey:
        """Return namespace and name of a run's Job."""
        warm = run.record.warm
        return ObjectKey(self.namespace, warm) if warm else ObjectKey(run.namespace, run.name)

    # Search.

    async def of_owner(self, owner: ObjectRef, purpose: str) -> list[RecordedRun]:
        """Return the runs of an object whose outcome is not recorded, newest first."""
        own = owner.key.namespace
        spaces = [own] if own else []
        if self.namespace and self.namespace != own and (not own or purpose != APPLY):
            spaces.append(self.namespace)
        runs = [run for space in spaces for run in await self._recorded(space, owner)]
        return sorted(runs, key=lambda run: jobs.run_number(run.name), reverse=True)

    async def _recorded(self, space: str, owner: ObjectRef) -> list[RecordedRun]:
        try:
            secrets = await self._of_object(SECRETS, space, owner.uid)
        except ForbiddenError as error:
            if owner.key.namespace in {"", space}:
                raise
            if self._logged.is_new():  # it cannot have created one there either
                _log.warning("Cannot look for runs of finalizers in the operator's namespace", error=str(error))
            return []
        runs = [jobs.recorded(secret, owner.uid, self.address().key) for secret in secrets]
        return [run for run in runs if run is not None]

    async def _of_object(self, resource: ApiResource, namespace: str, uid: str = "") -> list[Object]:
        """Return the Secrets, Jobs or pods of an object's runs, or of the runs of all objects."""
        params = {"labelSelector": f"{jobs.RUN_OF}={uid}" if uid else jobs.RUN_OF}
        params |= {"limit": _MOST_OF_OBJECT} if uid else {}
        answer = await self._client.request("GET", resource.path(namespace), params=params)
        items: list[Object] = answer.get("items") or []
        return items

    async def had_pod(self, run: RecordedRun, uid: str) -> bool:
        """Return True if Kubernetes has created the pod of a run. A deleted pod counts in the status of its Job."""
        if run.record.warm:
            return True
        for pod in await self._of_object(PODS, run.namespace, uid):
            if labels_of(pod).get(jobs.RUN) == run.name:
                return True
        of_run = [job for job in await self._of_object(JOBS, run.namespace, uid) if metadata(job)["name"] == run.name]
        return any(job.get("status", {}).get(count) for job in of_run for count in _COUNTS)

    async def refusal(self, job: ObjectKey) -> str:
        """Return why Kubernetes creates no pod for a Job, such as a quota; empty if it reports nothing."""
        fields = f"involvedObject.kind=Job,involvedObject.name={job.name},reason=FailedCreate"
        try:
            answer = await self._client.request(
                "GET", EVENTS.path(job.namespace), params={"fieldSelector": fields, "limit": _MOST_EVENTS}
            )
        except (ApiError, ApiUnavailableError) as error:
            if self._logged.is_new("events"):
                _log.warning("Cannot read why a Job has no pod", job=str(job), error=str(error))
            return ""
        reasons = (_REFUSED.sub("", str(event.get("message") or "")) for event in answer.get("items") or [])
        # Kubernetes creates the account soon after the namespace, and repeats the pod: another reason may follow.
        return next((why for why in reasons if 'serviceaccount "default" not found' not in why), "")

    async def sweep(self, gvk: GVK, is_gone: Callable[[ObjectKey, str], bool]) -> None:
        """Delete Secrets and Jobs of objects that are gone, which Kubernetes does not delete with them."""
        if not self.namespace:
            return
        try:
            for secret in await until_available(partial(self._of_object, SECRETS, self.namespace)):
                key, uid = jobs.elsewhere(secret, gvk), str(metadata(secret)["labels"][jobs.RUN_OF])
                run = jobs.recorded(secret, uid, self.address().key)
                if key is not None and run is not None and is_gone(key, uid):
                    _log.info("Ending the run of an object that is gone", run=run.name, **key._asdict())
                    await until_available(partial(self.remove, run.name, run.namespace, self.place_of(run)))
        except ApiError as error:
            _log.warning("Cannot end the runs of objects that are gone", error=str(error))

    # Creation.

    async def create(self, job: Job, warm: str = "", *, elsewhere: bool = False) -> tuple[str, str]:
        """Create the Secret of a new run, and its Job unless it has a warm pod; return the run's name and namespace.

        `elsewhere`: the pod of this finalizer was refused in the namespace of the resource.

        Raises:
            EngineError: the API server refuses them.
        """
        home = job.key.namespace or self.namespace
        if not home:
            raise EngineError("a cluster-scoped resource needs --leader-election-namespace, where its pods run")
        if elsewhere:
            return await self._create_elsewhere(job, home, warm, "refuses the pod")
        try:
            return await self._create(job, home, warm), home
        except NamespaceTerminatingError as error:
            if job.purpose == APPLY or self.namespace in {"", home}:
                advice = "" if self.namespace else "; set --leader-election-namespace, where finalizers can run then"
                raise EngineError(f"the pod of the run cannot be created: {error}{advice}") from error
        except ApiError as error:
            if isinstance(error, (ConflictError, *PASSING)):
                raise
            is_away = job.purpose not in {APPLY, PLAN} and self.namespace not in {"", home}
            if not (is_away and isinstance(error, ForbiddenError) and _QUOTA in str(error)):
                raise EngineError(f"the pod of the run cannot be prepared in namespace {home}: {error}") from error
            return await self._create_elsewhere(job, home, warm, "has no quota for it")
        return await self._create_elsewhere(job, home, warm, "is being deleted")

    async def _create_elsewhere(self, job: Job, home: str, warm: str, why: str) -> tuple[str, str]:
        """Create the same in the namespace of the operator."""
        _log.info("The finalizer runs in the operator's namespace", why=f"the namespace {why}", **job.key._asdict())
        try:
            return await self._create(job, self.namespace, warm), self.namespace
        except (ConflictError, *PASSING):
            raise
        except ApiError as error:
            raise EngineError(
                f"the pod of the run cannot be prepared in namespace {self.namespace} of the operator, "
                f"where it has to run because namespace {home} {why}: {error}"
            ) from error

    async def _create(self, job: Job, space: str, warm: str) -> str:
        # A pod can outlive its Job, for minutes on a lost node. Another run with its name would get its state.
        uid, spaces = job.uid, dict.fromkeys((space, job.key.namespace or space))
        names: list[str] = []
        for namespace in spaces:
            existing, pods = await asyncio.gather(*(self._of_object(kind, namespace, uid) for kind in (JOBS, PODS)))
            own = jobs.run_name(uid, 0)[:-1]  # a tenant can give the label of a run to any Job
            of_jobs = [name for one in existing if (name := str(metadata(one).get("name", ""))).startswith(own)]
            if namespace == space:
                for old in jobs.superfluous(sorted(of_jobs, key=jobs.run_number)):
                    await self.remove_job(ObjectKey(space, old))
            names += of_jobs + [str(labels_of(one).get(jobs.RUN, "")) for one in pods]
        name = jobs.run_name(uid, jobs.next_number(names))
        record = RunRecord(job.ident, job.generation, job.purpose, time.time(), warm)
        await self._client.create(SECRETS, space, jobs.secret(job, record, name, space, self.address()))
        if not warm:
            try:
                await self.create_job(job, name, space)
            except ApiError:
                await self.remove(name, space, None)
                raise
        return name

    async def create_job(self, job: Job, name: str, space: str) -> None:
        """Create the Job of a run unless it exists."""
        try:
            await self._client.create(JOBS, space, jobs.job(job, self.policies[job.gvk], name, space))
        except ConflictError as error:
            if error.reason != "AlreadyExists":  # such as a conflict about a quota
                raise

    async def create_warm(
        self, name: str, kind: str, policy: PodPolicy, files: Mapping[str, str], owners: Sequence[Object]
    ) -> None:
        """Create the Job of a warm pod, and the Secret for which the pod waits. The Job owns it."""
        body = jobs.warm_job(kind, policy, name, self.namespace, owners)
        job = await self._client.create(JOBS, self.namespace, body)
        await self._client.create(SECRETS, self.namespace, jobs.warm_secret(job, self.address(), files))

    def warm_token(self, name: str) -> str:
        """Return the token with which the agent of a warm pod obtains its run."""
        return jobs.warm_token(self.address(), name)

    # Deletion.

    async def remove(self, name: str, namespace: str, job: ObjectKey | None) -> None:
        """Delete the Secret of a run; before it, if given, its Job with its pod."""
        if job is not None:
            await self.remove_job(job)
        await self._delete(SECRETS, ObjectKey(namespace, name))

    async def remove_job(self, job: ObjectKey) -> None:
        """Delete a Job with its pod."""
        await self._delete(JOBS, job)

    async def _delete(self, resource: ApiResource, key: ObjectKey) -> None:
        try:
            await self._client.delete(resource, key)
        except NotFoundError:
            return
