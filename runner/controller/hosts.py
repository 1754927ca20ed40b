"""Hosts of the objects of one watch: what their runs need to reach them, and `status.hosts`."""

from __future__ import annotations

import os
from dataclasses import replace
from urllib.parse import urlsplit

from runner.controller.attempt import Attempt
from runner.controller.features import Feature, FinishedRun, RequestFailedError, Skip
from runner.engine.hosts import Credentials, Host, Hosts
from runner.errors import ApiError, ApiUnavailableError, NotFoundError, TerminalError
from runner.hosts import addresses, credentials, record, spec
from runner.hosts.addresses import AddressCheck, Resolver
from runner.kube.client import Client
from runner.kube.meaning import Request
from runner.objects import Object, ObjectKey, key_of
from runner.pods.jobs import SECRETS
from runner.status.report import StatusReport
from runner.watches.inventory_fields import InventoryPolicy
from runner.watches.spec_paths import SpecPath
from runner.watches.watch import Watch


class RunHosts(Feature):
    """Hosts and lent Secrets of the runs. The preview uses `apply` too."""

    def __init__(self, watch: Watch, client: Client) -> None:
        self._watch = watch
        self._client = client
        self._resolver = Resolver()

    async def before(self, attempt: Attempt) -> Skip | Attempt:
        """Add the hosts, with the credentials and checked addresses of this run."""
        return await self.apply(attempt)

    def status(self, attempt: Attempt, run: FinishedRun) -> StatusReport:
        """Report the results of the hosts."""
        if attempt.hosts is None:
            return StatusReport(())
        before = record.entries(attempt.obj)
        return StatusReport((), hosts=record.after_run(attempt.hosts, before, run.result))

    async def apply(self, attempt: Attempt) -> Attempt:
        """Return the attempt with its hosts and their credentials.

        Raises:
            TerminalError: a host is invalid or not allowed, or a Secret cannot be used.
            RequestFailedError: a Secret cannot be read.
        """
        watch = self._watch
        if watch.inventory is None:
            return attempt
        named = spec.read(attempt.obj.get("spec"), watch.inventory, watch)
        given = await self._credentials(watch.inventory, attempt)
        before = record.entries(attempt.obj)
        hosts = Hosts(
            group=watch.inventory.group,
            hosts=await self._checked(record.all_hosts(named.hosts, before), watch.inventory),
            file=watch.inventory.file,
            credentials=given,
            first_use=watch.inventory.first_use,
            finalizing=attempt.plan.finalizing,
            keeps_facts=watch.inventory.fact_cache > 0,
        )
        entries = record.at_start(hosts, before)
        return replace(attempt, ignored_variables=named.ignored, hosts=hosts, host_entries=entries)

    async def _credentials(self, policy: InventoryPolicy, attempt: Attempt) -> Credentials:
        path = policy.credentials
        secret = await self._lent(path, attempt) if path is not None else None
        given = credentials.of(secret) if secret is not None else Credentials()
        if given.private_key and not given.known_hosts and not policy.first_use and secret is not None:
            raise TerminalError(
                f"Secret {key_of(secret)} has no known_hosts, so no host can be trusted. Add that key with the checked "
                "output of `ssh-keyscan`, or let the administrator set inventory.hostKeys: first"
            )
        return given

    async def _lent(self, path: SpecPath, attempt: Attempt) -> Object | None:
        """Return the Secret that the spec names at a path; None if it names none.

        A finalizer runs without a Secret that is gone, as it is if the namespace is being deleted.
        """
        key = _name(path, attempt.obj)
        if key is None:
            return None
        try:
            secret = await self._client.get(SECRETS, key)
        except NotFoundError:
            if attempt.plan.finalizing:
                return None
            raise credentials.missing(key, path.text) from None
        except (ApiError, ApiUnavailableError) as error:
            raise RequestFailedError(Request.LENT, error) from error
        credentials.check_lent(secret, self._watch.gvk)
        return secret

    async def _checked(self, hosts: tuple[Host, ...], policy: InventoryPolicy) -> tuple[Host, ...]:
        """Return the hosts with the addresses to connect to, without removed ones that are not allowed any more."""
        servers = {urlsplit(self._client.credentials.base_url).hostname, os.environ.get("KUBERNETES_SERVICE_HOST")}
        own = [name for name in servers if name]
        found = await self._resolver.resolve((*own, *(host.written for host in hosts)))
        check = AddressCheck(policy.allow, [address for name in own for address in found[name]])
        checked = []
        for host in hosts:
            if not found[host.written]:
                checked.append(replace(host, address=addresses.UNRESOLVED))
                continue
            chosen = check.choose(host.written, found[host.written])
            if not isinstance(chosen, str):
                checked.append(replace(host, address=str(chosen)))
            elif not host.is_removed:
                raise addresses.refusal(host.name, host.written, chosen)
        return tuple(checked)


def _name(path: SpecPath, obj: Object) -> ObjectKey | None:
    """Return the key of the Secret that a spec names: a name in the namespace of the object, or with its namespace.

    Raises:
        TerminalError: the value is invalid, or names a Secret of another namespace.
    """
    own = key_of(obj).namespace
    found = [value for value in path.find(obj.get("spec")) if value is not None and value != ""]
    if not found:
        return None
    name = found[0].get("name") if isinstance(found[0], dict) else found[0]
    namespace = found[0].get("namespace", own) if isinstance(found[0], dict) else own
    if len(found) > 1 or not isinstance(name, str) or not name or "/" in name or not isinstance(namespace, str):
        raise TerminalError(f"{path.text}: not the name of one Secret; write its name")
    if not namespace:
        raise TerminalError(f"{path.text}: the object has no namespace; write {{name: …, namespace: …}} of the Secret")
    if own and namespace != own:
        raise TerminalError(f"{path.text}: Secret {namespace}/{name} is in another namespace; use one in {own}")
    return ObjectKey(namespace, name)
