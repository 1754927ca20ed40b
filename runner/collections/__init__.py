"""Where the Ansible collections that ship with this package lie.

Owns: `PATH`. Ansible finds `operator_sdk.util` when this folder stands in `ANSIBLE_COLLECTIONS_PATH` or on the path of
Python. It goes behind the places where users install collections, so that a copy of theirs wins
(`docs/decisions/0011-shipped-collection-comes-last.md`).

What lies below `ansible_collections` is Ansible's: it runs in the module's own process, imports nothing of this
package, and nothing of this package imports it.
"""

from __future__ import annotations

from pathlib import Path

PATH = Path(__file__).parent
"""The folder that holds `ansible_collections`."""
