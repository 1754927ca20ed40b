from ansible.plugins.lookup import LookupBase
from ansible_collections.parity.kit.plugins.module_utils.helpers import help_out

DOCUMENTATION = """
name: look
author: [nobody]
short_description: look
description: [look]
options:
  colour:
    description: [colour]
    default: grey
    type: str
    env: [{name: PARITY_COLOUR}]
    vars: [{name: parity_colour}]
    ini: [{section: parity, key: colour}]
"""


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        self.set_options(var_options=variables, direct=kwargs)
        return [f"{help_out(term)} in {self.get_option('colour')}" for term in terms]
