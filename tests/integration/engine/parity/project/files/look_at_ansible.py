"""Everything that a plugin can see of Ansible's own state."""

import os
import sys

from ansible import constants as C
from ansible import context
from ansible.plugins import loader
from ansible.utils.collection_loader import AnsibleCollectionConfig
from ansible.utils.display import Display

_LOADERS = [name for name in dir(loader) if name.endswith("_loader")]


def _settings():
    found = {}
    for name in sorted(C.config.get_configuration_definitions()):
        value, origin = C.config.get_config_value_and_origin(name)
        found[name] = [str(value), str(origin), str(getattr(C, name, None))]
    return found


def _loaders():
    found = {}
    for name in _LOADERS:
        one = getattr(loader, name)
        if isinstance(one, loader.PluginLoader):
            found[name] = [list(one._extra_dirs), one._get_paths(), one.package]
    return found


def look():
    """Return it as plain values."""
    display = Display()
    return {
        "settings": _settings(),
        "loaders": _loaders(),
        "arguments": {name: str(value) for name, value in sorted(dict(context.CLIARGS).items())},
        "collections": [
            list(AnsibleCollectionConfig.collection_paths),
            list(AnsibleCollectionConfig.playbook_paths),
            AnsibleCollectionConfig.default_collection,
            AnsibleCollectionConfig.collection_finder is not None,
        ],
        "display": [display.verbosity, display.columns, display.log_verbosity, sorted(map(str, display._errors))],
        "config": [str(C.CONFIG_FILE), C.DEFAULT_LOCAL_TMP.split("ansible-local-")[0], len(C.config.WARNINGS), list(map(str, C.config.DEPRECATED))],
        "temporary": [os.path.isdir(C.DEFAULT_LOCAL_TMP), os.path.basename(sys.argv[0])],
    }
