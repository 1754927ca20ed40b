"""What changes a process for good is looked at in one that ends afterwards."""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ROUTING: dict[object, Any] = {}
"""What Ansible has parsed of its own `ansible_builtin_runtime.yml`, which takes longer than most tests."""


def in_a_fork(act: Callable[[], object]) -> str:
    """Return what this returns, or raises, as its `repr`."""
    _parse_routing()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            with os.fdopen(writer, "w", encoding="utf-8") as stream:
                try:
                    stream.write(repr(act()))
                except BaseException as error:  # noqa: BLE001 - it is what is shown
                    stream.write(repr(error))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as stream:
        said = stream.read()
    os.waitpid(pid, 0)
    return said


def seen(act: Callable[[], object]) -> Any:
    """Return what this returns in a process of its own, by way of JSON."""
    said = in_a_fork(lambda: json.dumps(act()))
    assert said.startswith(("'", '"')), said
    return json.loads(ast.literal_eval(said))


def load_plugins(*collections: str) -> None:
    """Have Ansible load plugins, with collections of these folders, wherever it looked before. Only for a fork."""
    from ansible.plugins.loader import init_plugin_loader  # noqa: PLC0415 - only where it is wanted
    from ansible.utils.collection_loader import _collection_finder  # noqa: PLC0415 - as above

    _collection_finder._AnsibleCollectionFinder._remove()
    parse = _collection_finder._meta_yml_to_dict
    _collection_finder._meta_yml_to_dict = lambda text, content: _ROUTING.get(text) or parse(text, content)
    # Modules that another test has imported refer to its folders.
    for name in [each for each in sys.modules if each.partition(".")[0] == "ansible_collections"]:
        del sys.modules[name]
    init_plugin_loader(list(collections))


def _parse_routing() -> None:
    """Parse that file in this process, once for all forks."""
    ansible = sys.modules.get("ansible")
    if _ROUTING or ansible is None or "ansible.utils.collection_loader" not in sys.modules:
        return
    from ansible.utils.collection_loader import _collection_finder  # noqa: PLC0415 - only where it is wanted

    text = Path(str(ansible.__file__)).with_name("config").joinpath("ansible_builtin_runtime.yml").read_bytes()
    _ROUTING[text] = _collection_finder._meta_yml_to_dict(text, ("ansible.builtin", "runtime.yml"))
