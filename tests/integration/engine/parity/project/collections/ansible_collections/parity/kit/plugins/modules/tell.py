#!/usr/bin/python
DOCUMENTATION = """
module: tell
short_description: tell
description: [tell]
extends_documentation_fragment: [parity.kit.text]
author: [nobody]
"""
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.parity.kit.plugins.module_utils.helpers import help_out
from ansible_collections.parity.kit.plugins.module_utils import helpers
from ..module_utils.sub.deep import DEEP
from ansible_collections.parity.other.plugins.module_utils.shared import SHARED


def main():
    module = AnsibleModule(argument_spec={"text": {}, "more": {}}, supports_check_mode=True)
    module.exit_json(text=help_out(module.params["text"]), more=module.params["more"], deep=DEEP, shared=SHARED, name=module._name, package=helpers.__name__)


if __name__ == "__main__":
    main()
