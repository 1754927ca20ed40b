"""A run's own way to the API server: through the proxy, with a token that ends with the run.

Owns: what the proxy and the onlookers are told of a run, when it begins and ends for them, and what is known to be
secret before it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from runner.controller.write_observers import Onlookers
from runner.engine.run_secrets import RunSecrets
from runner.kube.discovery import ApiResource
from runner.masking.forms import is_telling
from runner.objects import GVK, Object, ObjectKey, key_of, uid_of
from runner.ownership import Owner
from runner.proxy.handlers.secrets import learn_object
from runner.proxy.identity import Identities, RunIdentity, RunStats
from runner.proxy.server import Proxy
from runner.replicas.lease_guard import Hold
from runner.unchanged.last_run import Footprint
from runner.watches.watch import Watch

LOOPBACK = "127.0.0.1"
"""Where the proxy listens."""
_SECRET = GVK("", "v1", "Secret")
_FOLDERS = {"PWD", "OLDPWD"}
"""Variables of shells whose names tell of passwords, and whose values are everybody's."""
_HTTP_PROXIES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


@dataclass(frozen=True, slots=True)
class Grant:
    """What one run is given."""

    kubeconfig: str
    stats: RunStats
    """What the run asked so far."""
    secrets: RunSecrets
    """What is known to be secret in it so far."""
    footprint: Footprint | None
    """What the run sees, where its watch skips what has not changed; complete when the run is over."""


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a run's environment needs, so that an HTTP proxy of the operator's own does not come before ours."""
    if not any(environ.get(name) for name in _HTTP_PROXIES):
        return {}
    # Programs read one spelling or the other: what only one of them held must not be hidden.
    upper, lower = environ.get("NO_PROXY", ""), environ.get("no_proxy", "")
    return {
        "NO_PROXY": ",".join(filter(None, (upper or lower, LOOPBACK))),
        "no_proxy": ",".join(filter(None, (lower or upper, LOOPBACK))),
    }


def secrets_in(environ: Mapping[str, str]) -> list[str]:
    """What in the operator's own environment, which runs inherit, is secret by its name: `DB_PASSWORD`, `API_TOKEN`."""
    return [value for name, value in environ.items() if is_telling(name) and name not in _FOLDERS]


def account(written: str, namespace: str) -> str:
    """The service account that a watch means, as `namespace/name`; empty for none."""
    return written if "/" in written or not written else f"{namespace}/{written}"


class Access:
    """Opens and closes runs' ways to the API server."""

    def __init__(
        self,
        proxy: Proxy,
        identities: Identities,
        onlookers: Onlookers,
        *,
        inject: bool,
        namespace: str,
        known: Callable[[], Iterable[str]],
    ) -> None:
        """`namespace` is the operator's own, where accounts are that a watch names without one; `known` says what is
        secret in every run.
        """  # noqa: D205 - one list
        self._proxy = proxy
        self._identities = identities
        self._onlookers = onlookers
        self._inject = inject
        self._namespace = namespace
        self._known = known

    def forget(self, watch: Watch, key: ObjectKey) -> None:
        """Keep nothing for an object that is gone."""
        self._onlookers.forget(watch.gvk, key)

    @contextmanager
    def open(
        self, watch: Watch, resource: ApiResource, obj: Object, ident: str, hold: Hold, *, finalizing: bool
    ) -> Iterator[Grant]:
        """Let the run `ident` of `obj` in while the block lasts. Enter it before the run, leave it after its end.

        When `hold` is lost, what it writes is refused, and what it has open is closed.
        """
        owner = Owner(watch.gvk, key_of(obj), uid_of(obj), namespaced=resource.namespaced)
        run = RunIdentity(
            ident=ident,
            owner=owner,
            inject=self._inject,
            watch_dependents=self._inject and (watch.watch_dependent_resources or bool(watch.references)),
            watch_cluster_scoped=watch.watch_cluster_scoped_resources,
            blacklist=watch.blacklist,
            in_finalizer=finalizing,
            service_account=account(watch.service_account, self._namespace),
            may_write=hold.is_valid,
            footprint=Footprint() if watch.skip_unchanged else None,
            secrets=RunSecrets(spared=(*owner.key, watch.gvk.kind, watch.gvk.group)),
        )
        token = self._identities.issue(run)
        run.secrets.know([token, *self._known()])
        if watch.gvk == _SECRET:
            learn_object(run.secrets, obj)
        hold.when_lost(lambda: self._identities.cut(token))
        self._onlookers.began(owner)
        try:
            yield Grant(self._proxy.kubeconfig_for(token), run.stats, run.secrets, run.footprint)
        finally:
            self._identities.revoke(token)
            undisturbed = self._onlookers.ended(owner)
            if run.footprint is not None and undisturbed:
                run.footprint.owned = self._onlookers.owned_now(owner.gvk, owner.key) or ""
