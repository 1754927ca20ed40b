"""Gets the programs that tests need beside the control plane's: `python -m tests.programs`.

Done before the tests, since a machine that has to build one takes longer than a test may.
"""

from __future__ import annotations

import os
import sys

from runner.devcluster.cluster import get_actionlint, get_helm, get_promcheck

if __name__ == "__main__":
    for get in (get_helm, get_promcheck, get_actionlint):
        get(os.environ, sys.stderr)
