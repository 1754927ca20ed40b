"""Module `k8s_event`: records an Event about a resource."""

from __future__ import annotations

DOCUMENTATION = r"""
module: k8s_event
short_description: Records a Kubernetes Event about a resource
version_added: "1.0.0"
author: "Contributors to ansible-operator-runner"
description:
  - Records an Event about a resource, which C(kubectl describe) and C(kubectl events) show.
  - If an Event with the same name and reason exists, its count is increased.
  - The API server keeps Events for a short time, an hour by default. Write lasting information to the status.
  - The Event is of the core group, or of C(events.k8s.io) if only that is permitted.
extends_documentation_fragment:
  - operator_sdk.util.osdk_auth_options
options:
  state:
    description: Record or delete the Event.
    type: str
    choices: [present, absent]
    default: present
  name:
    description:
      - The Event's name.
      - The default is derived from O(involvedObject), O(type) and O(reason). Each combination has its own count.
    type: str
  namespace:
    description:
      - The Event's namespace, which must be that of the involved object; V(default) for a cluster-scoped one.
      - The default is O(involvedObject.namespace).
    type: str
  type:
    description: V(Warning) for a problem.
    type: str
    choices: [Normal, Warning]
    default: Normal
  reason:
    description: Reason in one CamelCase word.
    type: str
    required: true
  message:
    description: Description in a sentence.
    type: str
    required: true
  involvedObject:
    description: The object that the Event is about.
    type: dict
    suboptions:
      apiVersion:
        description: Its group and version.
        type: str
        required: true
      kind:
        description: Its kind.
        type: str
        required: true
      name:
        description: Its name.
        type: str
        required: true
      namespace:
        description: Its namespace; omit it for a cluster-scoped object.
        type: str
      uid:
        description: Its uid. The default is read from the API server.
        type: str
  source:
    description: Source of the Event.
    type: dict
    suboptions:
      component:
        description: The component's name.
        type: str
        required: true
  reportingComponent:
    description: Name of the controller that reports the Event. The default is O(source.component).
    type: str
  appendTimestamp:
    description: Add the time to the name, so each call creates a new Event.
    type: bool
    default: false
  merge_type:
    description: Has no effect; for compatibility.
    type: list
    elements: str
    choices: [json, merge, strategic-merge]
attributes:
  check_mode:
    support: full
    description: The API server computes the result and stores nothing.
  diff_mode:
    support: none
    description: An Event has no history to compare with.
"""

EXAMPLES = r"""
- name: Tell people that the memory is too small
  operator_sdk.util.k8s_event:
    type: Warning
    reason: MemoryTooSmall
    message: "{{ size }} nodes of 64 MiB cannot hold the working set"
    source:
      component: memcached-operator
    involvedObject:
      apiVersion: cache.example.com/v1alpha1
      kind: Memcached
      name: "{{ ansible_operator_meta.name }}"
      namespace: "{{ ansible_operator_meta.namespace }}"

- name: Record each backup by itself
  operator_sdk.util.k8s_event:
    name: "{{ ansible_operator_meta.name }}-backup"
    namespace: "{{ ansible_operator_meta.namespace }}"
    appendTimestamp: true
    reason: BackedUp
    message: The backup was written
    involvedObject:
      apiVersion: cache.example.com/v1alpha1
      kind: Memcached
      name: "{{ ansible_operator_meta.name }}"
      namespace: "{{ ansible_operator_meta.namespace }}"
"""

RETURN = r"""
result:
  description:
    - The Event as it is stored, in the shape of the group that it was written to.
    - Empty when it was deleted, or was not there.
  returned: success
  type: dict
  contains:
    count:
      description: How often it happened. In C(events.k8s.io) this is C(series.count), from the second time on.
      returned: success
      type: int
    firstTimestamp:
      description: When it happened first.
      returned: success
      type: str
    lastTimestamp:
      description: When it happened last.
      returned: success
      type: str
error:
  description: What the API server answered.
  returned: failure
  type: dict
  sample: {"status": 403, "reason": "Forbidden", "body": ""}
"""

import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NoReturn

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.operator_sdk.util.plugins.module_utils import auth, events
from ansible_collections.operator_sdk.util.plugins.module_utils.api import ApiFailure, ApiResource, KubernetesApi
from ansible_collections.operator_sdk.util.plugins.module_utils.events import Occurrence

_FORBIDDEN = 403
_NOT_FOUND = 404
_CONFLICT = 409
_ATTEMPTS = 5
_RULE = "Grant the operator: apiGroups [''] resources [events] verbs [get, create, patch]."


def main() -> None:
    """Record the Event, or delete it."""
    module = AnsibleModule(
        argument_spec=_options(),
        required_one_of=[("name", "involvedObject")],
        supports_check_mode=True,
    )
    api = KubernetesApi(auth.connect(module))
    occurrence = _occurrence(module, api)
    act = _delete if module.params["state"] == "absent" else _record
    try:
        changed, result = act(api, occurrence, dry_run=module.check_mode)
    except ApiFailure as failure:
        _fail(module, failure)
    module.exit_json(changed=changed, result=result)


def _options() -> dict[str, Any]:
    involved = {key: {"type": "str", "required": True} for key in ("apiVersion", "kind", "name")}
    return {
        **auth.auth_options(),
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "name": {"type": "str"},
        "namespace": {"type": "str"},
        "type": {"type": "str", "choices": ["Normal", "Warning"], "default": "Normal"},
        "reason": {"type": "str", "required": True},
        "message": {"type": "str", "required": True},
        "involvedObject": {
            "type": "dict",
            "options": {**involved, "namespace": {"type": "str"}, "uid": {"type": "str"}},
        },
        "source": {"type": "dict", "options": {"component": {"type": "str", "required": True}}},
        "reportingComponent": {"type": "str"},
        "appendTimestamp": {"type": "bool", "default": False},
        "merge_type": {"type": "list", "elements": "str", "choices": ["json", "merge", "strategic-merge"]},
    }


def _occurrence(module: AnsibleModule, api: KubernetesApi) -> Occurrence:
    params = module.params
    now = datetime.now(UTC)
    given = {key: value for key, value in (params["involvedObject"] or {}).items() if value is not None}
    involved = _identified(api, given)
    namespace = params["namespace"] or involved.get("namespace") or "default"
    name = params["name"] or events.derived_name(involved, params["type"], params["reason"])
    component = (params["source"] or {}).get("component") or params["reportingComponent"] or events.DEFAULT_COMPONENT
    return Occurrence(
        name=events.timestamped_name(name, now) if params["appendTimestamp"] else name,
        namespace=namespace,
        type=params["type"],
        reason=params["reason"],
        message=params["message"],
        component=component,
        reporting_component=params["reportingComponent"] or component,
        involved=involved or {"namespace": namespace},
        time=now,
    )


def _identified(api: KubernetesApi, involved: dict[str, Any]) -> dict[str, Any]:
    """Add the uid, by which `kubectl describe` finds the Events of an object. Without it they are still Events."""
    if not involved or involved.get("uid"):
        return involved
    try:
        resource = api.find(involved["apiVersion"], involved["kind"])
        found = api.get(resource.path(involved.get("namespace"), involved["name"])) if resource else None
    except ApiFailure as failure:
        if failure.status not in {_FORBIDDEN, _NOT_FOUND}:
            raise
        return involved
    return {**involved, "uid": found["metadata"]["uid"]} if found else involved


def _record(api: KubernetesApi, occurrence: Occurrence, *, dry_run: bool) -> tuple[bool, dict[str, Any]]:
    try:
        return True, _attempted(_record_core, api, occurrence, dry_run=dry_run)
    except ApiFailure as failure:
        if failure.status != _FORBIDDEN:
            raise
        return _otherwise(failure, lambda: (True, _attempted(_record_grouped, api, occurrence, dry_run=dry_run)))


def _delete(api: KubernetesApi, occurrence: Occurrence, *, dry_run: bool) -> tuple[bool, dict[str, Any]]:
    def deleted(api_version: str) -> tuple[bool, dict[str, Any]]:
        try:
            api.delete(_path(api_version, occurrence, occurrence.name), dry_run=dry_run)
        except ApiFailure as failure:
            if failure.status == _NOT_FOUND:
                return False, {}
            raise
        return True, {}

    try:
        return deleted(events.CORE)
    except ApiFailure as failure:
        if failure.status != _FORBIDDEN:
            raise
        return _otherwise(failure, lambda: deleted(events.GROUPED))


def _otherwise(refusal: ApiFailure, attempt: Callable[[], tuple[bool, dict[str, Any]]]) -> tuple[bool, dict[str, Any]]:
    """Try the other group; when that is forbidden too, the first refusal is the one that a user can act on."""
    try:
        return attempt()
    except ApiFailure as failure:
        if failure.status == _FORBIDDEN:
            raise refusal from failure
        raise


def _attempted(
    record: Callable[..., dict[str, Any]], api: KubernetesApi, occurrence: Occurrence, *, dry_run: bool
) -> dict[str, Any]:
    """Record an occurrence. Retry a few times if another client creates or deletes the Event meanwhile."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return record(api, occurrence, dry_run=dry_run)
        except ApiFailure as failure:
            if failure.status not in {_CONFLICT, _NOT_FOUND}:
                raise
    return record(api, occurrence, dry_run=dry_run)


def _version(previous: dict[str, Any]) -> dict[str, Any]:
    """Return the version of an Event; one that a plan would create has none."""
    return {name: value for name, value in previous["metadata"].items() if name == "resourceVersion"}


def _record_core(api: KubernetesApi, occurrence: Occurrence, *, dry_run: bool) -> dict[str, Any]:
    previous = _found(api, events.CORE, occurrence)
    event = events.core_event(occurrence, previous)
    if previous is None:
        return api.create(_path(events.CORE, occurrence), event, dry_run=dry_run)
    event["metadata"].update(_version(previous))
    return api.merge_patch(_path(events.CORE, occurrence, occurrence.name), event, dry_run=dry_run)


def _record_grouped(api: KubernetesApi, occurrence: Occurrence, *, dry_run: bool) -> dict[str, Any]:
    previous = _found(api, events.GROUPED, occurrence)
    if previous is not None and events.same_grouped(occurrence, previous):
        patch = events.grouped_again(occurrence, previous)
        patch["metadata"] = _version(previous)
        return api.merge_patch(_path(events.GROUPED, occurrence, occurrence.name), patch, dry_run=dry_run)
    if previous is not None:
        # What is recorded there cannot be changed: it stays, and this becomes an Event of its own.
        occurrence = replace(occurrence, name=events.timestamped_name(occurrence.name, occurrence.time))
    event = events.grouped_event(occurrence, instance=f"{occurrence.reporting_component}-{socket.gethostname()}"[:128])
    return api.create(_path(events.GROUPED, occurrence), event, dry_run=dry_run)


def _found(api: KubernetesApi, api_version: str, occurrence: Occurrence) -> dict[str, Any] | None:
    try:
        return api.get(_path(api_version, occurrence, occurrence.name))
    except ApiFailure as failure:
        if failure.status == _NOT_FOUND:
            return None
        raise


def _path(api_version: str, occurrence: Occurrence, name: str = "") -> str:
    kind = ApiResource(api_version, "Event", "events", namespaced=True, subresources=frozenset())
    return kind.path(occurrence.namespace, name)


def _fail(module: AnsibleModule, failure: ApiFailure) -> NoReturn:
    verb = "delete" if module.params["state"] == "absent" else "record"
    rule = f" {_RULE}" if failure.status == _FORBIDDEN else ""
    module.fail_json(msg=f"Unable to {verb} the event: {failure}.{rule}", error=failure.as_result())


if __name__ == "__main__":
    main()
