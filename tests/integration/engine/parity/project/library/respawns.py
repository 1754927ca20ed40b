#!/usr/bin/python
import os
import sys

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.respawn import has_respawned, respawn_module

module = AnsibleModule(argument_spec={"python": {"type": "str"}, "text": {"type": "str"}})
if not has_respawned():
    respawn_module(module.params["python"])
module.exit_json(changed=True, text=module.params["text"], same=os.path.realpath(sys.executable) == os.path.realpath(module.params["python"]))
