"""Folder of the Ansible collections that this package ships.

Owns: `PATH`. Ansible finds `operator_sdk.util` if this folder is in `ANSIBLE_COLLECTIONS_PATH` or in Python's path. It
comes after the folders where users install collections, so that an installed copy has precedence
(`docs/decisions/0011-shipped-collection-comes-last.md`).

The code below `ansible_collections` runs in Ansible's processes. It does not import this package, nor the reverse.
"""

from __future__ import annotations

from pathlib import Path

PATH = Path(__file__).parent
"""Folder that contains `ansible_collections`."""
