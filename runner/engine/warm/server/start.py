"""Starts the fork server: `python .../start.py SOCKET SCRATCH PADDING`.

A file of its own, run by its path: what a run's processes inherit must be what `ansible-playbook`, a script too, has.
"""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # our folder, which is no place to look for modules

from runner.engine.warm.server import server

if __name__ == "__main__":
    server.main()
