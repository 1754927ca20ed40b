"""Identities with which the operator acts, and the requests that show whether the API server accepts them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from runner.core.kube import rights, service_accounts
from runner.core.kube.client import Client, Selection
from runner.core.kube.discovery import Discovery
from runner.core.watches.watch import Watch
from runner.values.errors import ApiError, ApiUnavailableError, ForbiddenError, KindNotFoundError, UnauthorizedError

_PERIOD = 10.0
"""Seconds."""
_REFUSED = frozenset({401, 403})
_REVIEWS = ("authentication.k8s.io", "authorization.k8s.io")


class IdentityCheck:
    """Check that the API server accepts an identity: the operator's own, or the service account of watches.

    An open watch outlives the token and the rights with which it was opened, so that it shows neither. If no request of
    an identity was accepted for a while, the check sends one. Rule: it fails only if everything is refused. A refusal
    of one kind or namespace is none of the identity.
    """

    def __init__(self, user: str, probe: Callable[[], Awaitable[object]]) -> None:
        """`user`: name of an impersonated account, empty for the operator's own identity. `probe` sends a request."""
        self.problem: str | None = None
        """The refusal while everything is refused."""
        self._user = user
        self._probe = probe
        self._is_accepted = True

    def noted(self, path: str, status: int, user: str) -> None:
        """Note the response to a request of the operator; `status` is 0 without one."""
        if user == self._user and status and status not in _REFUSED and _is_about_objects(path):
            self._is_accepted, self.problem = True, None

    async def follow(self) -> None:
        """Check until canceled."""
        while True:
            self._is_accepted = False
            await asyncio.sleep(_PERIOD)
            if self._is_accepted:
                continue
            try:
                await self._probe()
            except (UnauthorizedError, ForbiddenError) as error:
                self.problem = f"the API server refuses all requests: {error}"
            except (ApiError, ApiUnavailableError):
                continue  # the checks of the watches report it
            else:
                self.problem = None


def _is_about_objects(path: str) -> bool:
    """Return False for discovery and reviews, which need no right."""
    parts = path.strip("/").split("/")
    return len(parts) > (2 if parts[0] == "api" else 3) and parts[1] not in _REVIEWS


def checks(
    client: Client, discovery: Discovery, watches: Sequence[Watch], namespaces: Sequence[str]
) -> dict[str, IdentityCheck]:
    """Return a check for the operator's own identity, and for each service account of watches, by name."""
    by_name = {"identity": IdentityCheck("", partial(_list_one, client, discovery, watches, namespaces))}
    for account in {watch.service_account for watch in watches if watch.service_account}:
        user = service_accounts.user(account)
        # Every authenticated user may ask who it is. The operator may not be allowed to impersonate.
        by_name[f"identity/{account}"] = IdentityCheck(user, partial(rights.own_user, client, user))
    return by_name


async def _list_one(client: Client, discovery: Discovery, watches: Sequence[Watch], namespaces: Sequence[str]) -> None:
    """List a watched kind in a namespace. Raises ForbiddenError if each list is refused."""
    refused: ForbiddenError | None = None
    for gvk, namespace in [(watch.gvk, namespace) for watch in watches for namespace in namespaces or ("",)]:
        try:
            await client.list_page(await discovery.find(gvk), namespace, Selection(metadata_only=True), 1, "")
        except ForbiddenError as error:
            refused = error
        except KindNotFoundError:
            continue
        else:
            return
    if refused is not None:
        raise refused
