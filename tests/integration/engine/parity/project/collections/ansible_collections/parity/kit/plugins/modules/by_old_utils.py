#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.parity.kit.plugins.module_utils.old_utils import help_out

module = AnsibleModule(argument_spec={})
module.exit_json(text=help_out("redirected"))
