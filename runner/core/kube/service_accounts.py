"""Service accounts of watches: their names in the cluster, and whether they exist.

The image contains `watches.yaml` with the name of an account. The deployment adds a prefix to that name: kustomize's
`namePrefix`, or the name of a Helm release. It adds the same prefix to the operator's own account, whose name ends with
`MANAGER` in the manifests of `init`, in charts and in bundles. So that account determines the prefix.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from runner.base import log
from runner.core.kube import rights
from runner.core.kube.client import Client
from runner.core.kube.rights import Right
from runner.core.watches.watch import Watch
from runner.values.errors import PASSING, ApiError, ConfigError, NotFoundError

MANAGER = "controller-manager"
_USER = "system:serviceaccount:"
_log = log.get(__name__)


def user(account: str) -> str:
    """Return the user name of a service account, `namespace/name`."""
    return _USER + account.replace("/", ":")


def candidates(written: str, namespace: str, own_user: str) -> tuple[str, ...]:
    """Return the accounts that `serviceAccount` of a watch can name, the preferred one first, as `namespace/name`.

    `own_user` is the operator's user name, and `namespace` is the namespace of names without one.
    """
    if "/" in written:
        return (written,)
    own = own_user.rpartition(":")[2] if own_user.startswith(_USER) else ""
    prefix = own.removesuffix(MANAGER) if own.endswith(MANAGER) else ""
    names = [prefix + written, written] if prefix else [written]
    if prefix and written.startswith(prefix):
        names.reverse()  # it is probably complete, but the project can have the name of the prefix
    return tuple(f"{namespace}/{name}" for name in names)


async def exists(client: Client, account: str) -> bool | None:
    """Return whether an account exists; None if the API server refuses to show it."""
    namespace, _, name = account.partition("/")
    try:
        await client.request("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}")
    except NotFoundError:
        return False
    except ApiError as error:
        if isinstance(error, PASSING):
            raise
        return None
    return True


async def resolve(client: Client, watches: Iterable[Watch]) -> tuple[Watch, ...]:
    """Return the watches with `namespace/name` as their service account.

    Raises:
        ConfigError: an account does not exist.
        ApiError, ApiUnavailableError: the API server does not respond to the question.
    """
    watches = tuple(watches)
    written = {watch.service_account for watch in watches if watch.service_account}
    own = await _own_user(client) if written else ""
    accounts = {}
    for account in sorted(written):
        accounts[account] = await _resolve(client, account, candidates(account, client.credentials.namespace, own))
    return tuple(replace(watch, service_account=accounts.get(watch.service_account, "")) for watch in watches)


async def _resolve(client: Client, written: str, names: tuple[str, ...]) -> str:
    unread = []
    for account in names:
        is_there = await exists(client, account)
        if is_there:
            return account
        if is_there is None:
            unread.append(account)
    # A Role of an earlier version permits only to impersonate.
    for account in unread:
        if await _may_impersonate(client, account):
            return account
    if len(unread) == len(names):
        # A warning about the missing rights follows.
        return next(account for account in names if account.endswith(f"/{written.rpartition('/')[2]}"))
    raise ConfigError(
        f"serviceAccount: {written}: no such service account: {' or '.join(names)}. Create it with its Role and "
        "RoleBinding, as for the account of the operator, or correct the name in watches.yaml"
    )


async def _may_impersonate(client: Client, account: str) -> bool:
    namespace, _, name = account.partition("/")
    try:
        return await rights.is_allowed(client, Right("", namespace, "", "serviceaccounts", "impersonate", name))
    except ApiError as error:
        if isinstance(error, PASSING):
            raise
        return False


async def _own_user(client: Client) -> str:
    try:
        return await rights.own_user(client)
    except ApiError as error:
        if isinstance(error, PASSING):
            raise
        _log.warning(
            "Cannot read the operator's own user name, so no prefix is added to names of service accounts",
            error=str(error),
        )
        return ""
