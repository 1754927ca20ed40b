"""Starts the fork server: `python .../start.py SOCKET SCRATCH PADDING`.

This file is run by its path, so that a run's processes inherit the same state as from the script `ansible-playbook`.
"""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the folder of this file; modules must not be imported from it

from runner.engines.warm.server import server

if __name__ == "__main__":
    server.main()
