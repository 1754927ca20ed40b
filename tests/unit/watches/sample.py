"""The beginning of a watches file, and what its readers return."""

from __future__ import annotations

import re
from collections.abc import Callable

from runner.core.watches.watch import LoadedWatches, Watch

Load = Callable[..., LoadedWatches]
One = Callable[..., Watch]
Errors = Callable[..., list[str]]

OTHER_SPELLINGS = re.compile(r'"Off"|(Changes|Status): (y|yes|off|N|AUTO)\n|prune: (Delete|false)\n|\$\{K\}: 1')
"""What the operator reads although it is not the documented spelling; editors mark it."""

KIND = """\
- group: cache.example.com
  version: v1alpha1
  kind: Memcached
"""
HEAD = f"{KIND}  role: memcached\n"
MEMCACHED = "cache.example.com/v1alpha1, Kind=Memcached"
