"""Identities with which the operator acts, and the requests that show whether the API server accepts them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from runner.base.monitoring.identity import IdentityCheck
from runner.core.kube.client import Client, Selection
from runner.core.kube.discovery import Discovery
from runner.core.watches.watch import Watch
from runner.values.errors import ForbiddenError, KindNotFoundError

_SELF_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def checks(
    client: Client, discovery: Discovery, watches: Sequence[Watch], namespaces: Sequence[str]
) -> dict[str, IdentityCheck]:
    """Return a check for the operator's own identity, and for each service account of watches, by name."""
    by_name = {"identity": IdentityCheck("", partial(_list_one, client, discovery, watches, namespaces))}
    for account in {watch.service_account for watch in watches if watch.service_account}:
        user = f"system:serviceaccount:{account.replace('/', ':')}"
        by_name[f"identity/{account}"] = IdentityCheck(user, partial(_review, client, user))
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


async def _review(client: Client, user: str) -> None:
    """Ask who the account is, which every authenticated user may do. The operator may not be allowed to impersonate."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    await client.request("POST", _SELF_REVIEWS, body=body, user=user)
