#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.of_project import WHO
from ansible.module_utils.shared.thing import THING
from ansible.module_utils.splitter import SPLITTER

module = AnsibleModule(argument_spec={})
module.exit_json(who=WHO, thing=THING, splitter=SPLITTER)
