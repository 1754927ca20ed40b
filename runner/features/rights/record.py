"""File with the Roles that the operator and its runs used (`--record-rbac`).

Rights of earlier runs and processes stay in the file, and the same rights result in the same bytes. The file is
replaced atomically. A file that is not a record is not overwritten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlencode

import yaml

from runner.base import log
from runner.base.config import atomic_file
from runner.core.kube.client import NO_RESPONSE
from runner.core.kube.rights import Right
from runner.core.proxy import request
from runner.core.proxy.calls import Answer, Call
from runner.features.rights import roles
from runner.values.errors import ConfigError

_PAUSE = 1.0
"""Seconds between two writes of the file."""
_HEADER = (
    "# Permissions that the operator and its runs used, from --record-rbac. For kinds that runs write, the roles with\n"
    f"# the annotation {roles.INFERRED} have the other verbs.\n"
    "# `ansible-operator generate rbac FILE` adds them to config/rbac/role.yaml.\n"
)
_ACCOUNT = "system:serviceaccount:"
_log = log.get(__name__)


class RightsRecord:
    """Records rights, and writes them to the file."""

    def __init__(self, path: Path, *, everywhere: bool, own_namespace: str = "") -> None:
        """`everywhere`: the operator watches all namespaces, so that a right in one is required in all.

        `own_namespace` is the operator's, empty outside of a cluster.

        Raises:
            ConfigError: the file cannot be used.
        """
        self._path = path
        self._everywhere = everywhere
        self._own_namespace = own_namespace
        self._rights, self._inferred = read(path)
        self._written = 0
        """Number of rights in the file."""
        self._changed = asyncio.Event()
        self._logged = log.Once()

    def add(self, required: Iterable[Right]) -> None:
        """Record rights of the operator itself."""
        self._add(roles.spread_own(required, self._own_namespace) if self._everywhere else set(required))

    def _add(self, new: set[Right]) -> None:
        if not new <= self._rights:
            self._rights |= new
            self._changed.set()

    def noted(
        self, method: str, path: str, params: Mapping[str, str], content_type: str, status: int, user: str = ""
    ) -> None:
        """Record a call of the operator itself. `user`: the service account that it impersonates; empty: none."""
        if status == NO_RESPONSE:
            return
        info = request.parse(method, f"{path}?{urlencode(params)}")
        account = user.removeprefix(_ACCOUNT).replace(":", "/", 1)
        required = roles.of_call(info, status, content_type, account)
        if account:
            self._add(roles.spread(required) if self._everywhere else required)
            return
        if info.verb == "watch":
            # A server without streamed lists requires a plain list before the watch.
            required |= {Right("", right.namespace, right.group, right.resource, "list") for right in required}
        self.add(required)

    async def answered(self, call: Call, answer: Answer) -> None:
        """Record a run's call: an observer in the proxy."""
        required = roles.of_call(call.info, answer.status, call.media, call.run.run.service_account)
        required = roles.spread(required) if self._everywhere else required
        self._inferred |= roles.inferred(required)
        self._add(required)

    async def follow(self) -> None:
        """Write new rights until canceled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await asyncio.to_thread(self.write)
            await asyncio.sleep(_PAUSE)

    def write(self) -> None:
        """Write the file if there are new rights."""
        used, inferred = frozenset(self._rights), frozenset(self._inferred)
        if self._written == len(used) + len(inferred):  # rights are only added
            return
        documents = roles.documents(used, inferred)
        try:
            atomic_file.write(self._path, _HEADER + yaml.safe_dump_all(documents, sort_keys=False, explicit_start=True))
        except OSError as error:
            if self._logged.is_new():
                _log.warning("Cannot record the required rights", file=str(self._path), error=str(error))
            return
        self._written = len(used) + len(inferred)
        self._logged.reset()


def read(path: Path) -> tuple[set[Right], set[Right]]:
    """Return the rights in a record that were used, and those that are only inferred; none if there is no file.

    Raises:
        ConfigError: the file is not a record.
    """
    try:
        return roles.read([document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document])
    except FileNotFoundError:
        return set(), set()
    except (OSError, yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path}: not a record of --record-rbac ({error}); name another file, or remove this one"
        ) from error
