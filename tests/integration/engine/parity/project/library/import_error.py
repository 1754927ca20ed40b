#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
import no_such_library_at_all
AnsibleModule(argument_spec={}).exit_json()
