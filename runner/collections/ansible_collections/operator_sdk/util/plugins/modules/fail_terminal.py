"""Module `fail_terminal`: fails a run that is of no use to try again."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fail_terminal
short_description: Fails without a retry until the object changes
version_added: "1.1.0"
author: "Contributors to ansible-operator-runner"
description:
  - Fails like M(ansible.builtin.fail). The operator does not retry until the object changes.
  - Use it for problems that only the author of the object can solve, such as contradicting fields of the spec.
  - In a finalizer, outside of an operator, and if it is rescued or ignored, it is an ordinary failure.
  - The operator retries if the task fails before the module runs, for example because of its C(when), or if C(no_log)
    hides its result.
options:
  msg:
    description: The problem and its solution. The condition C(Failure) of the object contains it.
    type: str
    required: true
attributes:
  check_mode:
    support: full
    description: It fails in check mode too.
  diff_mode:
    support: none
    description: There is nothing to compare.
"""

EXAMPLES = r"""
- name: Refuse what can never work
  operator_sdk.util.fail_terminal:
    msg: "spec.backup needs spec.storage; set both or neither"
  when: backup is defined and storage is not defined
"""

RETURN = r"""
terminal:
  description: Whether the operator does not retry.
  returned: always
  type: bool
  sample: true
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Fail with the message."""
    module = AnsibleModule(argument_spec={"msg": {"type": "str", "required": True}}, supports_check_mode=True)
    module.fail_json(msg=module.params["msg"], terminal=True)


if __name__ == "__main__":
    main()
