"""A project folder with roles and a playbook, and readers of watches files in it."""

from __future__ import annotations

import re
from collections.abc import Callable

from runner.watches.watch import LoadedWatches

Load = Callable[..., LoadedWatches]

OTHER_SPELLINGS = re.compile(r'"Off"|(Changes|Status): (y|yes|off|N|AUTO)\n|prune: (Delete|false)\n|\$\{K\}: 1')
"""What the operator reads although it is not the documented spelling; editors mark it."""

HEAD = """\
- group: cache.example.com
  version: v1alpha1
  kind: Memcached
  role: memcached
"""
