#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(argument_spec={"text": {}})
module.exit_json(text=module.params["text"])
