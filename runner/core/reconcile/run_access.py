"""A run's access to the API server: through the proxy, with a token that ends with the run.

Owns the start and end of a run for the proxy, and for the watches of dependents and references. Masks values that are
secret from the start of a run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from runner.core.engine.run_secrets import RunSecrets
from runner.core.masking import public
from runner.core.masking.forms import is_sensitive
from runner.core.proxy.handlers.writes import WriteObserver
from runner.core.proxy.identity import ActiveRun, Identities, ObjectView, RunIdentity, RunStats
from runner.core.proxy.server import Proxy
from runner.core.reconcile.attempt import Attempt
from runner.core.watches.watch import Watch
from runner.values.objects import GVK, ObjectRef, Owner, OwnerState
from runner.values.slots import Slot

LOOPBACK = "127.0.0.1"
"""Where the proxy listens."""
_SECRET = GVK("", "v1", "Secret")
_FOLDERS = {"PWD", "OLDPWD"}
"""Shell variables whose names look like passwords, but whose values are not secret."""


OWNED_AT_END: Slot[Callable[[str], None] | None] = Slot("owned at the end", None)
"""Receives the digest of what the object owns at the end of the run. It is empty if some of it is not known, or if
another client changed some of it during the run.
"""


@dataclass(frozen=True, slots=True)
class Grant:
    """Access and secrets of one run."""

    kubeconfig: str
    token: str = field(repr=False)
    stats: RunStats
    """Calls of the run so far."""
    secrets: RunSecrets
    """Values that are masked so far."""


def secrets_in(environ: Mapping[str, str]) -> list[str]:
    """Return the values in the operator's environment that are secret by name: `DB_PASSWORD`, `API_TOKEN`."""
    return [value for name, value in environ.items() if is_sensitive(name) and name not in _FOLDERS]


class AccessObserver(WriteObserver, Protocol):
    """Observer of runs, and of the objects that they write and read."""

    def observes(self, gvk: GVK) -> bool:
        """Return whether this observer needs what runs of a watch write and read."""
        ...

    def began(self, owner: Owner) -> None:
        """Handle the start of a run of `owner`."""
        ...

    def ended(self, owner: Owner) -> bool:
        """Handle the end of a run. Return whether no other client changed what the object owns meanwhile."""
        ...

    def owned_now(self, owner: Owner) -> str:  # noqa: ARG002 - for observers
        """Return the digest of what the object owns; empty if some of it is not known, or if it is not observed."""
        return ""


@dataclass(frozen=True, slots=True)
class RunAccess:
    """Opens and closes the access of runs to the API server."""

    proxy: Proxy
    identities: Identities
    observers: Sequence[AccessObserver]
    inject: bool
    """True if the proxy adds an owner to objects that runs create."""
    account_exists: Callable[[str], Awaitable[bool | None]]
    """Returns whether a service account exists, or None."""
    known: Callable[[], Iterable[str]]
    """Returns the values that are secret in every run."""
    prepare: Sequence[Callable[[ActiveRun], Coroutine[Any, Any, None]]]
    """Make requests ahead of those of a new run. The end of the run cancels them."""

    @asynccontextmanager
    async def open(
        self,
        watch: Watch,
        attempt: Attempt,
        on_terminating: Callable[[], None],
        owner_state: Callable[[], Awaitable[OwnerState]],
        view: ObjectView | None,
    ) -> AsyncIterator[Grant]:
        """Grant the attempt's run access until the block is left. Enter it before the run, leave it after its end.

        If the lease is lost, the proxy refuses the run's writes and closes its connections. `on_terminating` is called
        whenever the run cannot create an object because the namespace is being deleted. `owner_state` returns the state
        of the attempt's object. With `view`, the run is a trial: it writes nothing, and sees these objects.
        """
        resource = attempt.resource
        ref, is_deleting = ObjectRef.of(watch.gvk, attempt.obj), attempt.executes.finalizing
        owner = Owner(ref, namespaced=resource.namespaced, is_deleting=is_deleting)
        run = RunIdentity(
            ident=attempt.ident,
            owner=owner,
            inject=self.inject,
            watch_dependents=self.inject and any(observer.observes(watch.gvk) for observer in self.observers),
            service_account=watch.service_account,
            account_exists=partial(self.account_exists, watch.service_account),
            own_namespace_only=watch.own_namespace_only,
            owner_annotations=watch.owner_annotations,
            may_write=attempt.guard.is_valid,
            owner_state=owner_state,
            stats=RunStats(on_terminating=on_terminating),
            secrets=_secrets(watch, attempt),
            view=view,
            is_bound=attempt.bounds is not None,
            more=attempt.more,
        )
        if watch.gvk == _SECRET:
            await asyncio.to_thread(run.secrets.learn_object, attempt.obj)
        token = self.identities.issue(run, attempt.resumed.token if attempt.resumed is not None else "")
        run.secrets.add_initial([token, *self.known()])
        attempt.guard.when_lost(lambda: self.identities.cut(token))
        for observer in self.observers:
            observer.began(owner)
        active = self.identities.issued(token)
        ahead = [asyncio.create_task(prepare(active)) for prepare in self.prepare]
        try:
            yield Grant(self.proxy.kubeconfig_for(token), token, run.stats, run.secrets)
        finally:
            for task in ahead:
                task.cancel()
            self.identities.revoke(token)
            disturbed = [observer for observer in self.observers if not observer.ended(owner)]
            if (note := attempt.more.get(OWNED_AT_END)) is not None:
                note("" if disturbed else "".join(observer.owned_now(owner) for observer in self.observers))


def _secrets(watch: Watch, attempt: Attempt) -> RunSecrets:
    names = (*attempt.key, watch.gvk.kind, watch.gvk.group)
    content = (str(part) for part in attempt.executes.content.path.parts)
    spec = () if watch.gvk == _SECRET else public.of_spec(attempt.obj.get("spec"))
    return RunSecrets(names, (*public.words((*names, *content)), *spec))
