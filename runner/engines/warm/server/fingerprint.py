"""Files and folders that a fork server depends on. Import this module only where `model` has loaded Ansible."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from ansible import constants
from ansible.plugins import loader as loaders
from ansible.utils.collection_loader import AnsibleCollectionConfig

_OWN_CONFIG = ("~/.ansible.cfg", "/etc/ansible/ansible.cfg")
_COLLECTIONS = "ansible_collections"


def watched() -> tuple[str, ...]:
    """Return the paths. If one changes, the fork server is out of date."""
    return tuple(sorted({*_config(), *_packages(), *_collections(), *_plugin_folders()}))


def _config() -> Iterator[str]:
    for path in (*_OWN_CONFIG, os.environ.get("ANSIBLE_CONFIG", ""), constants.CONFIG_FILE or ""):
        if path:
            yield os.path.expanduser(path)  # noqa: PTH111 - a string is required


def _packages() -> Iterator[str]:
    """Yield each loaded file outside the standard library, and the folders of packages.

    A file that is overwritten in place does not change its folder. A check of about 1100 paths takes 4 ms; a server is
    checked at most once a second, and only if a run starts.
    """
    standard = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str):
            continue
        is_of_collection = name.partition(".")[0] == _COLLECTIONS
        if is_of_collection or "site-packages" in file or not file.startswith(standard):
            yield file
            if not is_of_collection:
                yield str(Path(file).parent)
    for folder in sys.path:
        if folder and not (folder.startswith(standard) and "site-packages" not in folder):
            yield folder


def _collections() -> Iterator[str]:
    """Yield the folders of installed collections, which change when a collection is installed or removed."""
    config = AnsibleCollectionConfig
    for root in config.collection_paths if config.collection_finder else ():  # no playbook has added any
        folder = Path(root) / _COLLECTIONS
        yield str(folder)
        if folder.is_dir():
            for namespace in folder.iterdir():
                if namespace.is_dir():
                    yield str(namespace)
                    yield from (str(collection) for collection in namespace.iterdir() if collection.is_dir())


def _plugin_folders() -> Iterator[str]:
    for name, loader in vars(loaders).items():
        if name.endswith("_loader") and isinstance(loader, loaders.PluginLoader):
            for folder in loader.config or ():
                yield str(folder)
                yield from (str(path) for path in Path(folder).glob("*.py"))
