from ansible.plugins.connection.local import Connection as Local

DOCUMENTATION = """
name: own_local
short_description: local, and says so
description: [own]
author: nobody
options: {}
"""


class Connection(Local):
    transport = "own_local"

    def exec_command(self, cmd, in_data=None, sudoable=True):
        rc, out, err = super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        return rc, out, err + b"by own_local\n"
