"""Makes the job of a run: an object, its watch and the operator's settings folded into one value.

Owns what is said once about an object's spec: keys that fall together, and strings that look like templates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner import log
from runner.config import paths
from runner.controller.annotations import Wishes
from runner.controller.finalizers import Plan
from runner.controller.run_access import Grant
from runner.engine import params, retention
from runner.engine.job import Job
from runner.objects import GVK, Object, ObjectKey, key_of, uid_of
from runner.watches.watch import Watch
from runner.workqueue.queue import Request


@dataclass(frozen=True, slots=True)
class RunDefaults:
    """What every run of the operator has in common."""

    runner_dir: Path
    ansible_args: str
    environment: Mapping[str, str]
    """Added to the operator's own environment."""
    timeout: float
    """Seconds that a run may take where neither watch nor object say; 0: as long as it likes."""
    verbosity: Callable[[GVK], int]
    forget: Callable[[Path], Awaitable[None]]
    """Removes the run folder of an object that is gone."""


class JobFactory:
    """Makes jobs for one watch."""

    def __init__(self, watch: Watch, defaults: RunDefaults) -> None:
        self._watch = watch
        self._defaults = defaults
        self._log = log.get(__name__, gvk=str(watch.gvk))
        self._told: dict[ObjectKey, str] = {}

    def make(self, obj: Object, plan: Plan, wishes: Wishes, request: Request, ident: str, grant: Grant) -> Job:
        """Describe the run that `plan` asks for. A spec that cannot become variables is a TerminalError."""
        watch, defaults = self._watch, self._defaults
        parameters = params.build(obj, watch, cause=_cause(request), finalizing=plan.finalizing)
        self._tell(obj, parameters, wishes)
        key = key_of(obj)
        return Job(
            ident=ident,
            gvk=watch.gvk,
            key=key,
            content=plan.content,
            run_dir=paths.run_dir(defaults.runner_dir, watch.gvk, key),
            extra_vars=parameters.extra_vars,
            unsafe_keys=parameters.unsafe_keys,
            verbosity=defaults.verbosity(watch.gvk) if wishes.verbosity is None else wishes.verbosity,
            ansible_args=defaults.ansible_args,
            max_artifacts=(
                watch.max_runner_artifacts if wishes.max_runner_artifacts is None else wishes.max_runner_artifacts
            ),
            environment=defaults.environment,
            kubeconfig=grant.kubeconfig,
            secrets=grant.secrets,
            engine=watch.engine,
            deadline=self._timeout(wishes) or None,
        )

    def _timeout(self, wishes: Wishes) -> float:
        of_watch = self._watch.policy.timeout
        if wishes.run_timeout is not None:
            return wishes.run_timeout
        return self._defaults.timeout if of_watch is None else of_watch

    async def forget(self, key: ObjectKey) -> None:
        """Remove what is kept of an object that is gone: its run folder, and what was said of it."""
        self._told.pop(key, None)
        run_dir = paths.run_dir(self._defaults.runner_dir, self._watch.gvk, key)
        await self._defaults.forget(run_dir)

    async def sweep(self, namespaces: Sequence[str], exists: Callable[[ObjectKey], bool]) -> None:
        """Remove what an earlier operator kept of objects that are gone. `namespaces` are the watched ones, none: all.

        Call it once all objects are known; of kinds that are not watched any more nothing is removed.
        """
        base = paths.run_dir(self._defaults.runner_dir, self._watch.gvk, ObjectKey("", ""))
        for run_dir in await asyncio.to_thread(lambda: list(retention.run_folders(base))):
            *namespace, name = run_dir.relative_to(base).parts
            key = ObjectKey("".join(namespace[:1]), name)
            is_ours = not (namespaces and key.namespace) or key.namespace in namespaces
            if is_ours and not exists(key):
                await self._defaults.forget(run_dir)

    def _tell(self, obj: Object, parameters: params.Parameters, wishes: Wishes) -> None:
        """Say once per object what its owner should know about the spec."""
        if self._told.get(key_of(obj)) == uid_of(obj):
            return
        self._told[key_of(obj)] = uid_of(obj)
        bound = self._log.bind(**key_of(obj)._asdict())
        for collision in parameters.collisions:
            bound.warning("Two keys of the spec become one variable", collision=str(collision))
        for warning in wishes.warnings:
            bound.warning("An annotation is not used", problem=warning)
        template = params.has_template(obj.get("spec")) if self._watch.mark_unsafe else None
        if template is not None:
            bound.info(
                "A string of the spec looks like a template and is passed on as it stands; "
                "`markUnsafe: false` in watches.yaml lets it be evaluated",
                path=template,
            )


def _cause(request: Request) -> dict[str, object]:
    """Why the run takes place, as its role sees it."""
    return {"reason": request.reason.value, "details": list(request.details), "failures": request.failed_runs}
