#!/usr/bin/python
import importlib.util

from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(argument_spec={"look": {"type": "path"}})
spec = importlib.util.spec_from_file_location("parity_look", module.params["look"])
look = importlib.util.module_from_spec(spec)
spec.loader.exec_module(look)
module.exit_json(seen=look.look())
