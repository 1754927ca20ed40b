"""Hosts of the objects of one watch: what their runs need to reach them, and `status.hosts`."""

from __future__ import annotations

import os
from dataclasses import replace
from urllib.parse import urlsplit

from runner.base import log
from runner.core.engine import params
from runner.core.engine.job import Job, RunResult
from runner.core.kube.client import Client
from runner.core.kube.meaning import Request
from runner.core.kube.state import SECRETS
from runner.core.queue import reasons
from runner.core.reconcile.attempt import Attempt, Interim
from runner.core.reconcile.hooks import FinishedRun, Hooks, RequestFailedError
from runner.core.status import report
from runner.core.status.report import StatusReport
from runner.core.status.writer import StatusWriter
from runner.core.watches.spec_paths import SpecPath
from runner.core.watches.watch import Watch
from runner.features.hosts import addresses, credentials, record, spec
from runner.features.hosts.addresses import AddressCheck, Resolver
from runner.features.hosts.feature import FIELD
from runner.features.hosts.fields import INVENTORY, InventoryPolicy
from runner.features.hosts.inventory import HOST_KEYS, UNRESOLVED, Credentials, Host, Hosts, fact_environment
from runner.values.errors import ApiError, ApiUnavailableError, NotFoundError, TerminalError
from runner.values.objects import Object, ObjectKey, key_of
from runner.values.slots import Slot

_TRIES_DEAD = frozenset({reasons.RESYNC, reasons.REQUESTED, reasons.DELETED})
"""Reasons of runs that try to reach removed hosts that the last run could not reach."""
_MOST_NAMED = 20


HOSTS: Slot[Hosts | None] = Slot("hosts", None)
"""Of an attempt: the hosts of its run; None: there are none."""


class RunHosts(Hooks):
    """Hosts and lent Secrets of the runs. The preview uses `before` too."""

    def __init__(self, watch: Watch, client: Client, writer: StatusWriter | None) -> None:
        """`writer` writes host keys that a trial accepted; None: they are not kept."""
        self._watch = watch
        self._client = client
        self._writer = writer
        self._resolver = Resolver()
        self._log = log.get(__name__, gvk=str(watch.gvk))

    def status(self, attempt: Attempt, run: FinishedRun) -> StatusReport:
        """Report the results of the hosts."""
        hosts = attempt.more.get(HOSTS)
        if hosts is None:
            return StatusReport(())
        entries = record.after_run(hosts, record.entries(attempt.obj), run.result)
        return StatusReport((), fields={FIELD: entries})

    async def before(self, attempt: Attempt) -> Attempt:
        """Add the hosts, with the credentials and checked addresses of this run.

        Raises:
            TerminalError: a host is invalid or not allowed, or a Secret cannot be used.
            RequestFailedError: a Secret cannot be read.
        """
        watch, policy = self._watch, self._watch.more.get(INVENTORY)
        if policy is None:
            return attempt
        large = params.is_large(attempt.obj)
        named = await params.convert(spec.read, attempt.obj.get("spec"), policy, watch, large=large)
        ssh_credentials = await self._credentials(policy, attempt)
        before = record.entries(attempt.obj)
        listed = record.all_hosts(named.hosts, before, tries_dead=attempt.request.reason in _TRIES_DEAD)
        if left_out := [host.name for host in listed if host.is_left_out]:
            self._log.warning(
                "This run omits removed hosts that the last one could not reach",
                hosts=left_out[:_MOST_NAMED],
                **attempt.key._asdict(),
            )
        checked = await self._checked(listed, policy)
        if named.hosts and ssh_credentials is None and not attempt.executes.finalizing:
            _check_keys(policy)
        hosts = Hosts(
            group=policy.group,
            hosts=checked,
            file=policy.file,
            credentials=ssh_credentials or Credentials(),
            first_use=policy.first_use,
            finalizing=attempt.executes.finalizing,
            keeps_facts=policy.fact_cache > 0,
            ignored_variables=named.ignored,
        )
        entries = Interim(record.at_start(hosts, before), [*before.values()])
        attempt = _with_hosts(attempt, hosts, entries)
        return replace(attempt, completes=(*attempt.completes, self._complete), learns=(*attempt.learns, self._learn))

    def _complete(self, attempt: Attempt, job: Job) -> Job:
        """Add the inventory, the names of removed hosts, the secret values, and the cache of facts."""
        hosts, policy = attempt.more.get(HOSTS), self._watch.more.get(INVENTORY)
        if hosts is None or policy is None:
            return job
        job.secrets.add_initial(hosts.credentials.secrets)
        meta = job.extra_vars[params.META]  # variables of the watch can replace it
        named = {params.META: {**meta, "removed_hosts": [*hosts.removed]}} if isinstance(meta, dict) else {}
        return replace(
            job,
            inventory=hosts,
            extra_vars={**job.extra_vars, **named},
            ignored_variables=(*job.ignored_variables, *hosts.ignored_variables),
            environment={**job.environment, **(fact_environment(policy.fact_cache) if hosts.keeps_facts else {})},
        )

    async def _learn(self, attempt: Attempt, result: RunResult) -> Attempt:
        """Keep the host keys that a trial accepted, so that no later run trusts another machine."""
        hosts, keys = attempt.more.get(HOSTS), result.more.get(HOST_KEYS)
        if self._writer is None or hosts is None:
            return attempt
        if not keys.keys() & {host.known_as for host in hosts.hosts if not host.key}:
            return attempt
        hosts = record.with_keys(hosts, keys)
        entries = record.at_start(hosts, record.entries(attempt.obj))
        change = StatusReport((), fields={FIELD: entries})
        await self._writer.write(attempt.resource, attempt.obj, report.observed(attempt.obj, change), attempt.guard)
        return _with_hosts(attempt, hosts, Interim(entries, entries))

    async def _credentials(self, policy: InventoryPolicy, attempt: Attempt) -> Credentials | None:
        path = policy.credentials
        secret = await self._lent(path, attempt) if path is not None else None
        if secret is None:
            return None
        ssh_credentials = credentials.of(secret)
        if ssh_credentials.private_key and not ssh_credentials.known_hosts and not policy.first_use:
            raise TerminalError(
                f"Secret {key_of(secret)} has no known_hosts, so no host can be trusted. Add that key with the checked "
                "output of `ssh-keyscan`, or let the administrator set inventory.hostKeys: first"
            )
        return ssh_credentials

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
            if attempt.executes.finalizing:
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
        addresses_of = await self._resolver.resolve(host.written for host in hosts)
        check = AddressCheck(
            policy.allow, await self._resolver.servers(own, direct=self._client.credentials.proxy is None)
        )
        checked = []
        for host in hosts:
            chosen = check.choose(host.written, addresses_of[host.written])
            if not isinstance(chosen, str):
                checked.append(replace(host, address=str(chosen)))
            elif not chosen:
                checked.append(replace(host, address=UNRESOLVED))
            elif not host.is_removed:
                self._log.info("Host refused", host=host.written, found=[*map(str, addresses_of[host.written])])
                raise addresses.refusal(host.name, host.written, chosen)
        return tuple(checked)


def _check_keys(policy: InventoryPolicy) -> None:
    """Raise TerminalError if no host key can be known. The project's inventory could select another connection."""
    if policy.credentials is None or policy.first_use or policy.file is not None:
        return
    raise TerminalError(
        f"{policy.credentials.text}: it names no Secret, so no host key is known and no host can be trusted. Name a "
        "Secret with known_hosts, or let the administrator set inventory.hostKeys: first. The object is not run until "
        "it changes"
    )


def _with_hosts(attempt: Attempt, hosts: Hosts, entries: Interim) -> Attempt:
    more = attempt.more.having(HOSTS, hosts)
    return replace(attempt, more=more, interim={**attempt.interim, FIELD: entries})


def _name(path: SpecPath, obj: Object) -> ObjectKey | None:
    """Return the key of the Secret that a spec names: a name in the namespace of the object, or with its namespace.

    Raises:
        TerminalError: the value is invalid, or names a Secret of another namespace.
    """
    own = key_of(obj).namespace
    values = [value for value in path.find(obj.get("spec")) if value is not None and value != ""]
    if not values:
        return None
    name = values[0].get("name") if isinstance(values[0], dict) else values[0]
    namespace = values[0].get("namespace", own) if isinstance(values[0], dict) else own
    if len(values) > 1 or not isinstance(name, str) or not name or "/" in name or not isinstance(namespace, str):
        raise TerminalError(f"{path.text}: not the name of one Secret; write its name")
    if not namespace:
        raise TerminalError(f"{path.text}: the object has no namespace; write {{name: …, namespace: …}} of the Secret")
    if own and namespace != own:
        raise TerminalError(f"{path.text}: Secret {namespace}/{name} is in another namespace; use one in {own}")
    return ObjectKey(namespace, name)
