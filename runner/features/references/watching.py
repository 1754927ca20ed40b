"""Triggers for objects whose references change: Secrets, ConfigMaps, or objects of any kind, not owned by them.

Flow: the controllers report their objects. The references of each object are watched, by name (`kind`) or by label
(`by_label`). A change of content triggers every object with the reference. Before a run, `ready` waits a moment until
all references are known, so that no change is lost between the role's read and the watch. References that are unknown
by then count as changed at their first event.

Guarantees: writes by an object's own runs do not trigger it if the proxy reported them. A reference that triggers its
object repeatedly is slowed down. Only digests and versions are kept. Must not import: proxy, reconcile, controller.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from runner.base import log
from runner.base.monitoring.background import Background
from runner.core.dependents.notification import Deferred, Notification, Trigger
from runner.core.kube.client import Client
from runner.core.kube.discovery import ApiResource, Discovery
from runner.core.reconcile.run_access import AccessObserver
from runner.core.watches.watch import Watch
from runner.features.references.by_label import LabelledReferences, LabelSelection
from runner.features.references.feature import REFERENCE
from runner.features.references.fields import REFERENCES, WatchReference
from runner.features.references.kind import ReferenceKind
from runner.features.references.state import (
    GONE,
    ReferenceChange,
    ReferencedState,
    ReferenceIndex,
    SpecReferences,
    references_of,
)
from runner.values.objects import GVK, Object, ObjectKey, ObjectRef, Owner, key_of, mapping, uid_of, version_of

_PATIENCE = 5.0
"""Maximum seconds that a run waits for its references."""
_LOOK = 0.05
_MOST_WRITES = 4096
_UNPROVEN = "existed before the watch started"

_log = log.get(__name__)


class DeferredReferences(Deferred):
    """Notifications of references, without those that the object's own runs have caused."""

    def __init__(self) -> None:
        super().__init__()
        self._written: OrderedDict[tuple[ObjectRef, str, str], None] = OrderedDict()

    def wrote(self, target: ObjectRef, uid: str, version: str) -> None:
        """Note which version of an object a run wrote; an empty version if the run deleted the object."""
        self._written[target, uid, version] = None
        if len(self._written) > _MOST_WRITES:
            self._written.popitem(last=False)

    def defer(self, item: Notification) -> bool:
        """Return False if a notification is due now: its object does not run and did not cause it."""
        return super().defer(item) or self._is_own(item)

    def ended(self, owner: ObjectRef) -> list[Notification]:
        """Note the end of a run; return the notifications that are due."""
        return [notification for notification in super().ended(owner) if not self._is_own(notification)]

    def _is_own(self, item: Notification) -> bool:
        return not item.is_status and (item.target, item.source.uid, item.version) in self._written


class References(AccessObserver):
    """References of all watches. The watches know the references that runs read, so it observes writes only."""

    def __init__(
        self,
        client: Client,
        discovery: Discovery,
        namespaces: Sequence[str],
        watches: Iterable[Watch],
        trigger: Trigger,
        leads: Callable[[], bool],
    ) -> None:
        """`namespaces` are those of the operator, empty for all.

        `trigger` gets the notifications while this replica `leads`.
        """
        self._watches = {watch.gvk: watch for watch in watches if watch.more.get(REFERENCES)}
        self._wake = trigger
        self._leads = leads
        self._index = ReferenceIndex()
        self._deferred = DeferredReferences()
        self._unproven: dict[ObjectRef | LabelSelection, set[ObjectRef]] = {}
        """References that were unknown at the start of a run: their first event counts as a change."""
        self._logged = log.Once()
        every = [reference for watch in self._watches.values() for reference in watch.more.get(REFERENCES)]
        self._kinds = {
            gvk: ReferenceKind(
                client,
                discovery,
                gvk,
                namespaces,
                self._on_change,
                self._on_first_state,
                reads_status=self._reads_status(gvk),
            )
            for gvk in {reference.gvk for reference in every if not reference.selector}
        }
        self._labelled = {
            selected: LabelledReferences(
                client, discovery, namespaces, selected, self._on_labelled_change, self._settled
            )
            for selected in {_selected(reference) for reference in every if reference.selector}
        }

    async def follow(self, background: Background) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for gvk, kind in self._kinds.items():
                group.create_task(background.keep(f"references/{gvk.kind}", kind.follow))
            for selected, labelled in self._labelled.items():
                group.create_task(background.keep(f"references/{selected.gvk.kind}", labelled.follow))
            await asyncio.Event().wait()

    # Called by the hooks of watches with references.

    def update(self, gvk: GVK, obj: Object) -> None:
        """Process the state of a watched object."""
        references = self._watches[gvk].more.get(REFERENCES)
        target, named = ObjectRef(gvk, key_of(obj)), references_of(references, obj)
        for problem in named.invalid:
            self._report(target, "Cannot watch a referenced object", problem)
        if named.foreign or named.excess:
            self._warn_ignored(target, named)
        fresh, left = self._index.update(target, named.watched)
        self._leave(left)
        for referenced in fresh:
            self._kinds[referenced.gvk].add(referenced.key)

    def forget(self, gvk: GVK, key: ObjectKey) -> None:
        """Drop the state of a deleted object."""
        self._leave(self._index.forget(ObjectRef(gvk, key)))

    async def ready(self, gvk: GVK, key: ObjectKey) -> None:
        """Wait until all references of an object are known or have an error."""
        target, time = ObjectRef(gvk, key), asyncio.get_running_loop().time
        until = time() + _PATIENCE
        while True:
            troubles = dict(self._unknown(target))
            if all(troubles.values()) or time() >= until:
                break
            await asyncio.sleep(_LOOK)
        for name, trouble in troubles.items():
            self._report(target, "Cannot watch a referenced object", f"{name}: {trouble or 'no response yet'}")

    def fingerprint(self, gvk: GVK, key: ObjectKey) -> str | None:
        """Return an identifier of the state of all references of an object, which survives restarts.

        It is None if a state is unknown, and empty without references. It reveals no content. For an object without a
        generation, changes of metadata change it too.
        """
        target, trigger = ObjectRef(gvk, key), self._watches[gvk].watch_dependent_status
        states: set[tuple[ObjectRef, str]] = set()
        for referenced in self._index.references(target):
            if not self._kinds[referenced.gvk].is_known(referenced.key):
                return None
            seen = self._kinds[referenced.gvk].state(referenced.key)
            state = seen.lasting(trigger) if seen is not None else ""
            if state is None:
                return None
            states.add((referenced, state))
        for labelled in self._labelled_of(target):
            if not labelled.is_known(key.namespace):
                return None
            states |= {(referenced, seen.lasting("off") or "") for referenced, seen in labelled.states(key.namespace)}
        text = "\n".join(f"{referenced.gvk} {referenced.key} {state}" for referenced, state in sorted(states))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest() if text else ""

    # What runs do.

    def observes(self, gvk: GVK) -> bool:
        """Return whether the objects of a watch have references."""
        return gvk in self._watches

    def began(self, owner: Owner) -> None:
        """Note the start of a run of `owner`."""
        target = owner.ref
        if owner.ref.gvk not in self._watches:
            return
        self._deferred.began(target)
        for referenced in self._index.references(target):
            if not self._kinds[referenced.gvk].is_known(referenced.key):
                self._unproven.setdefault(referenced, set()).add(target)
        for labelled in self._labelled_of(target):
            if not labelled.is_seen(owner.ref.key.namespace):
                self._unproven.setdefault(labelled.selected, set()).add(target)

    def ended(self, owner: Owner) -> bool:
        """Note the end of a run whose writes were all reported. Return True: references are not owned."""
        if owner.ref.gvk in self._watches:
            for notification in self._deferred.ended(owner.ref):
                self._trigger(notification)
        return True

    def wrote(self, owner: Owner, resource: ApiResource, obj: Object) -> None:
        """Process the response to a run's write."""
        if owner.ref.gvk in self._watches and self._is_referenced_kind(resource):
            version = version_of(obj)
            self._deferred.wrote(owner.ref, uid_of(obj), version)

    def deleted(self, owner: Owner, resource: ApiResource, answer: Object) -> None:
        """Process the response to a run's delete: the object as it was, or a `Status`."""
        if owner.ref.gvk in self._watches and self._is_referenced_kind(resource):
            uid = uid_of(answer) or str(mapping(answer.get("details")).get("uid", ""))
            self._deferred.wrote(owner.ref, uid, "")

    # Called by the watches.

    def _on_change(self, referenced: ObjectRef, change: ReferenceChange) -> None:
        for target in sorted(self._index.targets(referenced)):
            self._notify_of(target, referenced, change)

    def _on_first_state(self, referenced: ObjectRef, seen: ReferencedState | None) -> None:
        unproven = self._unproven.pop(referenced, set()) & self._index.targets(referenced)
        if seen is not None:
            for target in sorted(unproven):
                self._notify(target, referenced, _UNPROVEN, seen)

    def _on_labelled_change(self, selected: LabelSelection, referenced: ObjectRef, change: ReferenceChange) -> None:
        labelled = self._labelled[selected]
        for watch in self._watches.values():
            if any(_selected(reference) == selected for reference in watch.more.get(REFERENCES)):
                for target in self._index.objects(watch.gvk, "" if selected.namespace else referenced.key.namespace):
                    if labelled.concerns(referenced.key, target.key.namespace):
                        self._notify_of(target, referenced, change)

    def _settled(self, labelled: LabelledReferences) -> None:
        """Process the first list of a selection, in one namespace or in all."""
        waiting = self._unproven.get(labelled.selected, set())
        for target in sorted(waiting):
            if labelled.is_seen(target.key.namespace):
                waiting.discard(target)
                for referenced, seen in list(labelled.states(target.key.namespace))[:1]:
                    self._notify(target, referenced, _UNPROVEN, seen)

    def _notify_of(self, target: ObjectRef, referenced: ObjectRef, change: ReferenceChange) -> None:
        """Notify an object of a change of content, or of a status if it counts."""
        trigger, last = self._watches[target.gvk].watch_dependent_status, change.last
        if change.what:
            self._notify(target, referenced, change.what, last)
        elif change.has_status(trigger):
            self._notify(target, referenced, "changed: status", last, is_progress=change.is_progress(trigger))

    def _notify(
        self,
        target: ObjectRef,
        referenced: ObjectRef,
        what: str,
        last: ReferencedState,
        *,
        is_progress: bool | None = None,
    ) -> None:
        """Notify an object of a change. `is_progress` is None if more than the status changed."""
        notification = Notification(
            target,
            replace(self._shown(referenced), uid=last.uid),
            what,
            None,
            () if is_progress is None else ("status",),
            is_status=is_progress is not None,
            is_progress=bool(is_progress),
            reason=REFERENCE,
            version="" if what == GONE else last.version,
        )
        if not self._deferred.defer(notification):
            self._trigger(notification)

    def _trigger(self, notification: Notification) -> None:
        if self._leads():
            self._wake(notification)

    # Within.

    def _unknown(self, target: ObjectRef) -> Iterator[tuple[str, str]]:
        """Yield the unknown references of an object, each with its error; empty if there is none yet."""
        for referenced in self._index.references(target):
            if not self._kinds[referenced.gvk].is_known(referenced.key):
                yield str(self._shown(referenced)), self._kinds[referenced.gvk].trouble(referenced.key)
        for labelled in self._labelled_of(target):
            if not labelled.is_known(target.key.namespace):
                selected = labelled.selected
                yield f"{selected.gvk.kind} with {selected.labels}", labelled.trouble(target.key.namespace)

    def _labelled_of(self, target: ObjectRef) -> Iterator[LabelledReferences]:
        for reference in self._watches[target.gvk].more.get(REFERENCES):
            if reference.selector:
                yield self._labelled[_selected(reference)]

    def _shown(self, referenced: ObjectRef) -> ObjectRef:
        """Return the reference with the object's own key, for users."""
        kind = self._kinds.get(referenced.gvk)
        return referenced if kind is None else ObjectRef(referenced.gvk, kind.shown(referenced.key))

    def _reads_status(self, gvk: GVK) -> bool:
        """Return True if the status of a kind counts for a watch that refers to it."""
        return any(
            watch.watch_dependent_status != "off"
            and any(reference.gvk == gvk for reference in watch.more.get(REFERENCES))
            for watch in self._watches.values()
        )

    def _is_referenced_kind(self, resource: ApiResource) -> bool:
        kinds = {(gvk.group, gvk.kind) for gvk in self._kinds}
        kinds |= {(selected.gvk.group, selected.gvk.kind) for selected in self._labelled}
        return (resource.gvk.group, resource.gvk.kind) in kinds

    def _leave(self, left: Iterable[ObjectRef]) -> None:
        for referenced in left:
            self._kinds[referenced.gvk].drop(referenced.key)
            self._unproven.pop(referenced, None)

    def _warn_ignored(self, target: ObjectRef, named: SpecReferences) -> None:
        """Warn once per object about references that are not watched; its condition names all."""
        if self._logged.is_new((target.gvk, target.key)):
            _log.warning(
                "Ignoring references of an object: they are in namespaces that the watch does not allow, or too many. "
                "Allow namespaces with references[].namespaces in watches.yaml",
                other_namespaces=len(named.foreign),
                too_many=len(named.excess),
                first=str((*named.foreign, *named.excess)[0]),
                gvk=str(target.gvk),
                **target.key._asdict(),
            )

    def _report(self, target: ObjectRef, message: str, problem: str) -> None:
        """Log a problem once."""
        if self._logged.is_new((target.gvk, problem)):
            _log.warning(message, problem=problem, gvk=str(target.gvk), **target.key._asdict())


def _selected(reference: WatchReference) -> LabelSelection:
    return LabelSelection(reference.gvk, reference.selector, reference.namespace)
