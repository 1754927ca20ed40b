"""Module `k8s_status`: writes fields and conditions into a resource's status."""

from __future__ import annotations

DOCUMENTATION = r"""
module: k8s_status
short_description: Writes fields and conditions into the status of a Kubernetes resource
version_added: "1.0.0"
author: "Contributors to ansible-operator-runner"
description:
  - Merges the given fields into the resource's status, through the status subresource. Other fields remain. Writes
    nothing if the status already contains them.
  - Conditions are merged by their type. The C(lastTransitionTime) of a condition changes only with its status.
  - The module writes only the fields that differ, so concurrent writes of other clients are not lost. If another client
    changes the conditions at the same time, the module computes and sends the write again.
  - The operator writes the conditions C(Running), C(Successful) and C(Failure). Conditions of other types remain until
    the role changes or removes them.
extends_documentation_fragment:
  - operator_sdk.util.osdk_auth_options
options:
  api_version:
    description: Group and version of the object, C(group/version), or C(v1) for the core group.
    type: str
    default: v1
    aliases: [api, version]
  kind:
    description: The object's kind. Its plural, singular or short name is accepted too.
    type: str
    required: true
  name:
    description: The object's name.
    type: str
    required: true
  namespace:
    description: The object's namespace. Omit it for a cluster-scoped object.
    type: str
  status:
    description:
      - Fields to set. Maps are merged; a field with the value V(null) is removed.
      - Conditions are either here, in the field C(conditions), or in O(conditions).
    type: dict
  conditions:
    description: Conditions to set.
    type: list
    elements: dict
    suboptions:
      type:
        description: Type of the condition, which identifies it.
        type: str
        required: true
      status:
        description: Value of the condition. Quote it; a boolean is accepted too.
        type: str
        choices: ["True", "False", "Unknown"]
        required: true
      reason:
        description: Reason in one CamelCase word.
        type: str
      message:
        description: Reason in a sentence.
        type: str
      observedGeneration:
        description: The C(metadata.generation) of the resource to which this condition applies.
        type: int
      lastHeartbeatTime:
        description: Time of the last check of the condition, in RFC 3339.
        type: str
      lastTransitionTime:
        description:
          - Time of the last change of the condition's status, in RFC 3339.
          - Used only if the status changes; the default is then the current time.
        type: str
  replace:
    description:
      - If V(true), O(status) and O(conditions) replace the whole status, including the conditions of the operator.
    type: bool
    default: false
    aliases: [force]
  replace_lists:
    description:
      - If V(true), a list in O(status) always replaces the existing one. Lists that can shrink need this.
      - If V(false), a list that already contains all given items is not changed, whatever their order.
      - Has no effect on conditions.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: The API server computes the result and stores nothing.
  diff_mode:
    support: full
    description: Shows the status before and after.
"""

EXAMPLES = r"""
- name: Say which pods there are
  operator_sdk.util.k8s_status:
    api_version: cache.example.com/v1alpha1
    kind: Memcached
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    replace_lists: true
    status:
      nodes: "{{ pods.resources | map(attribute='metadata.name') | sort }}"

- name: Say that the service does not answer
  operator_sdk.util.k8s_status:
    api_version: cache.example.com/v1alpha1
    kind: Memcached
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    conditions:
      - type: Available
        status: "False"
        reason: PingFailed
        message: The service did not answer within five seconds

- name: Remove a field that an older version of this role wrote
  operator_sdk.util.k8s_status:
    api_version: cache.example.com/v1alpha1
    kind: Memcached
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    status:
      members: null
"""

RETURN = r"""
result:
  description: The resource as it is after the write, or as it was found when nothing had to be written.
  returned: success
  type: dict
  contains:
    apiVersion:
      description: Group and version.
      returned: success
      type: str
    kind:
      description: The kind.
      returned: success
      type: str
    metadata:
      description: Name, namespace, labels, annotations and the like.
      returned: success
      type: dict
    spec:
      description: What is wanted, as the kind defines it.
      returned: success
      type: dict
    status:
      description: Observed state.
      returned: success
      type: dict
error:
  description: What was wrong, as the published collection says it.
  returned: failure
  type: raw
  sample: {"status": 404, "reason": "Not Found", "body": ""}
details:
  description: What was wrong and where, in a sentence, if RV(ignore:msg) does not contain it.
  returned: failure
  type: str
  sample: "condition 'Ready': reason is 'The ping failed'; it must be one CamelCase word, such as PingFailed"
"""

import random
import time
from datetime import UTC, datetime
from typing import Any, NoReturn

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.operator_sdk.util.plugins.module_utils import auth, conditions, statuses
from ansible_collections.operator_sdk.util.plugins.module_utils.api import ApiFailure, ApiResource, KubernetesApi

_ATTEMPTS = 30
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0


def main() -> None:
    """Write the status."""
    module = AnsibleModule(argument_spec=_options(), supports_check_mode=True)
    wanted = _wanted(module)
    api = KubernetesApi(auth.connect(module))
    resource = _resource(module, api)
    for attempt in range(1, _ATTEMPTS + 1):
        current = _current(module, api, resource)
        try:
            _write(module, api, resource, current, wanted)
        except ApiFailure as failure:
            if not failure.outdated or attempt == _ATTEMPTS:
                _fail(module, "Failed to write the status", failure)
            # Jitter, so that writers which met once do not meet again.
            pause = min(_FIRST_PAUSE * 2 ** (attempt - 1), _LONGEST_PAUSE)
            time.sleep(random.uniform(0, pause))  # noqa: S311 - spreads load, keeps no secret


def _options() -> dict[str, Any]:
    condition = {
        "type": {"type": "str", "required": True},
        "status": {"type": "str", "required": True, "choices": ["True", "False", "Unknown"]},
        "reason": {"type": "str"},
        "message": {"type": "str"},
        "observedGeneration": {"type": "int"},
        "lastHeartbeatTime": {"type": "str"},
        "lastTransitionTime": {"type": "str"},
    }
    return {
        **auth.auth_options(),
        "api_version": {"type": "str", "default": "v1", "aliases": ["api", "version"]},
        "kind": {"type": "str", "required": True},
        "name": {"type": "str", "required": True},
        "namespace": {"type": "str"},
        "status": {"type": "dict"},
        "conditions": {"type": "list", "elements": "dict", "options": condition},
        "replace": {"type": "bool", "default": False, "aliases": ["force"]},
        "replace_lists": {"type": "bool", "default": False},
    }


def _wanted(module: AnsibleModule) -> dict[str, Any]:
    """Return status and conditions as one, validated."""
    status = dict(module.params["status"] or {})
    given = module.params["conditions"]
    if given and status.get("conditions"):
        module.fail_json(
            msg="You cannot specify conditions in both the 'status' and 'conditions' parameters",
            details="give them in one place, in 'conditions' or in 'status'",
        )
    if given:
        status["conditions"] = given
    if status.get("conditions") is None:
        return status
    try:
        status["conditions"] = conditions.validated(_list(status["conditions"]))
    except conditions.InvalidConditionError as error:
        module.fail_json(msg="The specified conditions failed to validate", error=error.error, details=str(error))
    return status


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise conditions.InvalidConditionError(f"conditions is {value!r}; it must be a list")
    return value


def _resource(module: AnsibleModule, api: KubernetesApi) -> ApiResource:
    api_version, kind = module.params["api_version"], module.params["kind"]
    try:
        resource = api.find(api_version, kind)
    except ApiFailure as failure:
        _fail(module, f"Failed to ask for the kinds of {api_version}", failure)
    if resource is None:
        module.fail_json(
            msg=f"Failed to find exact match for {api_version}.{kind} by [kind, name, singularName, shortNames]. "
            "Is its CRD installed, and is api_version right?"
        )
    if "status" not in resource.subresources:
        module.fail_json(
            msg=f"Resource {resource.api_version}.{resource.kind} does not support the status subresource. "
            "Add 'subresources: {status: {}}' to this version in its CRD."
        )
    return resource


def _current(module: AnsibleModule, api: KubernetesApi, resource: ApiResource) -> dict[str, Any]:
    namespace, name = module.params["namespace"], module.params["name"]
    if resource.namespaced and not namespace:
        module.fail_json(msg=f"{resource.kind} is a namespaced kind: give namespace")
    try:
        return api.get(resource.path(namespace, name))
    except ApiFailure as failure:
        module.fail_json(msg="Failed to retrieve requested object", error=failure.as_result(), details=str(failure))


def _write(
    module: AnsibleModule, api: KubernetesApi, resource: ApiResource, current: dict[str, Any], wanted: dict[str, Any]
) -> None:
    """Write what differs and end the module; raises ApiFailure."""
    read = current.get("status")
    before = read if isinstance(read, dict) else {}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if module.params["replace"]:
        after = statuses.replaced(before, wanted, now=now)
        patch = statuses.overwriting(before, after)
    else:
        after = statuses.applied(before, wanted, replace_lists=module.params["replace_lists"], now=now)
        patch = statuses.operations(read, after, current["metadata"].get("resourceVersion", ""))
    if not patch:
        module.exit_json(changed=False, result=_shown(current))
    # Not an object of the same name that was made anew meanwhile.
    same = {"op": "test", "path": "/metadata/uid", "value": current["metadata"]["uid"]}
    path = resource.path(module.params["namespace"], module.params["name"], "status")
    _done(module, api.json_patch(path, [same, *patch], dry_run=module.check_mode), before, after)


def _done(module: AnsibleModule, stored: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> NoReturn:
    status = stored.get("status") if isinstance(stored.get("status"), dict) else {}
    dropped = statuses.missing(after, status)
    if dropped:
        module.warn(
            f"{stored['kind']} does not keep {', '.join(dropped)}: its schema does not know them. "
            "Describe them in the CRD, or set x-kubernetes-preserve-unknown-fields on its status."
        )
    diff = {"before": {"status": before}, "after": {"status": status}}
    # A field that the schema drops was sent, and yet nothing changed.
    module.exit_json(changed=status != before, result=_shown(stored), diff=diff)


def _shown(resource: dict[str, Any]) -> dict[str, Any]:
    """Return the resource without managedFields: more than half of its bytes, and nothing that a role reads."""
    metadata = {key: value for key, value in resource["metadata"].items() if key != "managedFields"}
    return {**resource, "metadata": metadata}


def _fail(module: AnsibleModule, msg: str, failure: ApiFailure) -> NoReturn:
    module.fail_json(msg=f"{msg}: {failure}", error=failure.as_result())


if __name__ == "__main__":
    main()
