"""Makes the shipped collection importable, as Ansible does in a module's process."""

from __future__ import annotations

import sys

from runner import collections

sys.path.append(str(collections.PATH))
