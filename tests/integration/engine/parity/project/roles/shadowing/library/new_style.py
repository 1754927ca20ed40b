#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(argument_spec={"text": {}})
module.exit_json(who="the role's own new_style", text=module.params["text"])
