"""A ledger that receives what a test says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from runner.core.dependents.ledger import Ledger, LedgerResult
from runner.core.dependents.notification import Notification, RunWrite
from runner.core.kube.object_state import ObjectState
from runner.core.watches.policy import StatusTrigger
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef

OWNER = ObjectRef(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("ns", "mc"))
OTHER = ObjectRef(GVK("cache.example.com", "v1", "Memcached"), ObjectKey("ns", "other"))
KIND = GVK("apps", "v1", "Deployment")
KEY = ObjectKey("ns", "child")


class LedgerScenario:
    """A ledger that receives watch events, reads and writes of runs about one object; `owners` own it by default."""

    def __init__(
        self,
        *owners: ObjectRef,
        uses_generation: bool = True,
        trigger: Callable[[ObjectRef], StatusTrigger] = lambda _: "off",
    ) -> None:
        self.owners = owners or (OWNER,)
        self.ledger = Ledger(KIND, trigger, uses_generation=uses_generation)
        self.notifications: list[Notification] = []
        self.found = LedgerResult()
        """What followed from the last event."""
        self.reads: list[ObjectKey] = []
        """Requested reads that have not begun."""

    def seen(self, obj: Object, *targets: ObjectRef) -> Self:
        self._take(self.ledger.applied("", KEY, ObjectState.of(obj, targets or self.owners, whole=False)))
        return self

    def stray(self, obj: Object) -> Self:
        self._take(self.ledger.applied("", KEY, ObjectState.of(obj, (), whole=False)))
        return self

    def begins_reading(self) -> Self:
        assert self.reads
        self.reads.clear()
        self.ledger.reads(KEY)
        return self

    def ends_reading(self, obj: Object, *targets: ObjectRef) -> Self:
        state = ObjectState.of(obj, targets or self.owners, whole=True, suspect=self.ledger.suspects(KEY))
        self.notifications += self.ledger.read(KEY, state)
        return self

    def read(self, obj: Object, *targets: ObjectRef) -> Self:
        return self.begins_reading().ends_reading(obj, *targets)

    def sees(self, obj: Object) -> Self:
        """Receive an event, and read the object."""
        return self.seen(obj).read(obj)

    def absent(self) -> Self:
        assert self.reads
        self.reads.clear()
        self.notifications += self.ledger.absent(KEY)
        return self

    def wrote(self, obj: Object, by: ObjectRef = OWNER, *targets: ObjectRef, whole: bool = True) -> Self:
        state = ObjectState.of(obj, targets or self.owners, whole=True) if whole else None
        meta = obj["metadata"]
        self.notifications += self.ledger.wrote("", KEY, RunWrite(by, meta["uid"], meta["resourceVersion"], state))
        return self

    def gone(self, obj: Object, *targets: ObjectRef) -> Self:
        self.notifications += self.ledger.deleted(KEY, ObjectState.of(obj, targets or self.owners, whole=False))
        return self

    def begins(self) -> Self:
        self.ledger.requested("")
        self.ledger.restarted("")
        return self

    def ends(self) -> Self:
        self._take(self.ledger.synced(""))
        return self

    def _take(self, found: LedgerResult) -> None:
        self.found = found
        self.notifications += found.notifications
        self.reads += (*found.read, *found.read_status)

    @property
    def reported(self) -> list[str]:
        return [each.what for each in self.notifications]
