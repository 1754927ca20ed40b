#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
from ..module_utils.shared import SHARED

module = AnsibleModule(argument_spec={"text": {}})
module.exit_json(text=module.params["text"], far=SHARED)
