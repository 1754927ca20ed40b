#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.of_project import WHO
from ansible.module_utils.package.inner import deep
from ansible.module_utils import of_project

module = AnsibleModule(argument_spec={})
module.exit_json(who=WHO, deep=deep(), same=of_project.WHO is WHO, state=of_project.count())
