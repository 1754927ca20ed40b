"""Module `requeue_after`: requests the next run after a given time."""

from __future__ import annotations

DOCUMENTATION = r"""
module: requeue_after
short_description: Requests another run after a given time
version_added: "1.0.0"
author: "Contributors to ansible-operator-runner"
description:
  - The operator runs the object again after the given time, regardless of its reconcile period.
  - The run continues to its end, from which the time counts. If several tasks of a run use this module, the last one
    counts.
  - The operator does not report C(Successful) for this run, because the object is in progress. If it is not, set
    O(done).
  - The module changes nothing and sends no request. Outside of an operator it has no effect.
options:
  time:
    description:
      - A duration in the format of Go, a sequence of numbers with units, such as V(30s), V(1h30m) or V(1.5h).
      - The units are C(h), C(m), C(s), C(ms), C(us) and C(ns).
    type: str
    required: true
  done:
    description:
      - V(true) if the object is in its desired state. The next run then only repeats the work, such as a renewal.
      - The module of the Go operator's collection has no such option.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: The result is the same in check mode.
  diff_mode:
    support: none
    description: There is nothing to compare.
"""

EXAMPLES = r"""
- name: Look again in half a minute while pods are missing
  operator_sdk.util.requeue_after:
    time: 30s
  when: pods.resources | length < size

- name: Renew the certificate before it expires
  operator_sdk.util.requeue_after:
    time: 720h
    done: true
"""

RETURN = r"""
period:
  description: The time that was asked for, as it was given. The operator reads this field.
  returned: success
  type: str
  sample: 30s
done:
  description: Whether the object is in its desired state. The operator reads this field.
  returned: success
  type: bool
  sample: false
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.operator_sdk.util.plugins.module_utils import durations


def main() -> None:
    """Check the duration and hand it to the operator."""
    spec = {"time": {"type": "str", "required": True}, "done": {"type": "bool", "default": False}}
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    try:
        durations.seconds(module.params["time"])
    except ValueError as error:
        module.fail_json(msg=f"time: {error}")
    module.exit_json(changed=False, period=module.params["time"], done=module.params["done"])


if __name__ == "__main__":
    main()
