"""Storage of the kinds that each watch's runs have created, so that a restarted operator watches them at once.

It also contains the record of the objects in other namespaces that runs wrote (`written`).

In a cluster this is a ConfigMap in the operator's namespace with a key per watch. The leader election Role of every
scaffolded project allows it (decision 8). Elsewhere it is a file in the runner folder. A missing entry costs little,
because the first run of each object finds the kinds again. A refusal is logged once, with the rule to add. The caller
saves again later.

Promises: `load` and `save` do not raise errors of the storage. They wait while the API server is unavailable.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

from runner.base import log
from runner.core.dependents.ownership import RecordsByWatch, WriteRecord
from runner.core.kube.client import Client
from runner.core.kube.state import ClusterState, FileState, StateStore, until_available
from runner.values.errors import ApiError
from runner.values.objects import GVK

KindsByWatch: TypeAlias = Mapping[GVK, frozenset[GVK]]
"""Kinds that its runs have created, by watched kind."""

CONFIG_MAP = "ansible-operator-dependent-kinds"
ENTRY = "dependent-kinds"
"""Name of the entry in the storage."""
_WRITTEN = "written."
"""Prefix of the keys of records; kinds begin in upper case."""

_log = log.get(__name__)


def storage(client: Client, namespace: str | None, folder: Path) -> StateStore:
    """Return the storage of an operator. Operators of one namespace, or with one runner folder, share it.

    `namespace` is that of the operator's pod, None outside a cluster.
    """
    if not namespace:
        return FileState(folder)
    verbs = ("get", "create", "patch")
    return ClusterState(client, namespace, "the kinds of dependents", verbs, prefix=CONFIG_MAP.removesuffix(ENTRY))


class KindStore:
    """Storage of kinds across restarts. Each operator writes the keys of its own watches."""

    def __init__(self, state: StateStore) -> None:
        self._state = state
        self._saved: dict[str, str] = {}
        self._logged = log.Once()

    async def load(self) -> tuple[KindsByWatch, RecordsByWatch]:
        """Return the saved kinds and records; none if they cannot be read."""
        try:
            stored = await until_available(partial(self._state.read, ENTRY))
        except ApiError as error:
            self._warn(error)
            return {}, {}
        self._saved = dict(stored.data) if stored is not None else {}
        return _parse(self._saved), _parse_records(self._saved)

    async def save(self, kinds: KindsByWatch, records: RecordsByWatch) -> bool:
        """Save the kinds and records that have changed; return False if the storage refused one."""
        for key, text in (_spell(kinds) | _spell_records(records)).items():
            if self._saved.get(key) == text:
                continue
            try:
                await until_available(partial(self._state.put, ENTRY, key, text))
            except ApiError as error:
                self._warn(error)
                return False
            self._saved[key] = text
            self._logged.reset()
        return True

    def _warn(self, error: ApiError) -> None:
        if self._logged.is_new():
            _log.warning(
                "Cannot save the kinds of dependents: after a restart, dependents are watched from the first run of "
                "their owner. The operator tries again within ten minutes",
                error=str(error),
            )


def _spell(kinds: KindsByWatch) -> dict[str, str]:
    """Write each kind as kubectl does, `Deployment.v1.apps`, one per line."""
    return {watch.name: "\n".join(sorted(gvk.name for gvk in dependents)) for watch, dependents in kinds.items()}


def _parse(data: Mapping[str, str]) -> KindsByWatch:
    return {
        GVK.named(watch): frozenset(GVK.named(line) for line in text.split())
        for watch, text in data.items()
        if "." in watch and not watch.startswith(_WRITTEN)  # features have other keys
    }


def _spell_records(records: RecordsByWatch) -> dict[str, str]:
    return {_WRITTEN + watch.name: "\n".join((record.since, *record.marks)) for watch, record in records.items()}


def _parse_records(data: Mapping[str, str]) -> RecordsByWatch:
    written = (
        (GVK.named(key.removeprefix(_WRITTEN)), text.split()) for key, text in data.items() if key.startswith(_WRITTEN)
    )
    return {watch: WriteRecord(lines[0], tuple(lines[1:])) for watch, lines in written if lines}
