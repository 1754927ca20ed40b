#!/usr/bin/python
from ansible.module_utils.basic import *
from ansible.module_utils.urls import *


def main():
    module = AnsibleModule(argument_spec=dict(a=dict(required=True)))
    module.exit_json(a=module.params["a"], json=json.dumps({"x": 1}), urls=callable(open_url))


main()
