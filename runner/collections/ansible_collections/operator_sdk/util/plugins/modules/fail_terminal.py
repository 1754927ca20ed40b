"""Module `fail_terminal`: fails a run that is of no use to try again."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fail_terminal
short_description: Fails, and asks the operator not to try again until the object changes
version_added: "1.1.0"
author: "Contributors to ansible-operator-runner"
description:
  - Fails like M(ansible.builtin.fail). The operator, which otherwise tries again and again, leaves the object alone
    until somebody changes it.
  - Meant for what only the object's author can mend, such as a spec that contradicts itself.
  - Rescued, ignored, or in a finalizer, it is a failure like any other. Outside of an operator it is one too.
  - If the task fails before the module runs (because of a wrong C(when), say), or C(no_log) hides its result, the
    operator retries.
options:
  msg:
    description: What is wrong, and what to do about it. It stands in the object's Failure condition.
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
