#!/usr/bin/python
import os
import random
import secrets
import tempfile
import uuid

from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(argument_spec={})
module.exit_json(
    of_random=random.random(),
    of_secrets=secrets.token_hex(8),
    of_uuid=str(uuid.uuid4()).replace("-", ""),
    of_time=str(uuid.uuid1()).replace("-", ""),
    of_tempfile=os.path.basename(tempfile.mktemp()),
    of_ssl=os.urandom(8).hex(),
)
