"""The playbook's process: the loaded Ansible made fresh, then `ansible-playbook`'s own main function.

Owns everything that an interpreter which just started would have anew: standard streams, `sys.argv`, what Ansible
read from this run's environment, random numbers, and the way out.
"""

from __future__ import annotations

import atexit
import importlib.util
import multiprocessing.process
import os
import secrets
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.engine.warm import model
from runner.engine.warm.model import Model

PER_RUN = frozenset(
    {
        "ANSIBLE_OPERATOR_RUN_ID",
        "KUBECONFIG",
        "K8S_AUTH_KUBECONFIG",
        "ANSIBLE_LOCAL_TEMP",
        "AWX_ISOLATED_DATA_DIR",
        "ANSIBLE_CACHE_PLUGIN_CONNECTION",
    }
)
"""Variables that differ between two runs of one environment."""


@dataclass(frozen=True, slots=True)
class Refresh:
    """What has to be made anew."""

    model: Model
    settings: tuple[str, ...]
    """Ansible's settings that a run's own variables decide."""

    @classmethod
    def of(cls, loaded: Model) -> Refresh:
        """Work it out, once."""
        _forget_temporary_folders(loaded)
        return cls(loaded, tuple(_settings_of(PER_RUN)))

    def covers(self, environment: Mapping[str, str]) -> bool:
        """Whether the model stands for a process with this environment."""
        ours = self.model.environment
        names = {name for name in environment.keys() | ours.keys() if environment.get(name) != ours.get(name)}
        return names <= PER_RUN


def _settings_of(variables: frozenset[str]) -> list[str]:
    """Return the settings that these variables decide, also by way of another setting, in the order of the whole."""
    from ansible import constants  # noqa: PLC0415 - imported by the model

    definitions: Mapping[str, Any] = constants.config.get_configuration_definitions()
    found: set[str] = set()
    before = -1
    while len(found) > before:
        before = len(found)
        for name, definition in definitions.items():
            read = {entry["name"] for entry in definition.get("env") or ()}
            default = definition.get("default")
            templated = isinstance(default, str) and "{{" in default and any(each in default for each in found)
            if read & variables or templated:
                found.add(name)
    return [name for name in definitions if name in found]


def _forget_temporary_folders(loaded: Model) -> None:
    """Let no run remove what the server made."""
    from ansible.utils.path import cleanup_tmp_file  # noqa: PLC0415 - as above

    del loaded
    atexit.unregister(cleanup_tmp_file)


def run(refresh: Refresh, arguments: list[str]) -> int:
    """Run `ansible-playbook` with these arguments; returns its exit code."""
    sys.argv = arguments
    sys.orig_argv = [sys.executable, *arguments]
    sys.modules["__main__"].__file__ = arguments[0]
    tempfile.tempdir = None
    model.open_streams(refresh.model.streams)
    multiprocessing.process.current_process().authkey = os.urandom(32)
    if refresh.model.said:
        os.write(1, refresh.model.said)
    _refresh_ansible(refresh)
    from ansible.cli.playbook import main  # noqa: PLC0415 - as above

    code = _exit_code(main)
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - what the interpreter itself does at its end
    atexit._run_exitfuncs()  # noqa: SLF001 - as above
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code


def _refresh_ansible(refresh: Refresh) -> None:
    from ansible import constants  # noqa: PLC0415 - as above
    from ansible.utils import vars as ansible_vars  # noqa: PLC0415 - as above
    from ansible.utils.display import Display  # noqa: PLC0415 - as above

    for name in refresh.settings:
        value = constants.config.get_config_value(name, variables=vars(constants))
        constants.set_constant(name, value)
    Display().__init__()  # type: ignore[misc]  # noqa: PLC2801 - the one instance, as everybody holds it
    ansible_vars.random_int = f"{secrets.randbelow(2**32):08x}"
    ansible_vars.cur_id = 0
    _keep_collections()
    _kubeconfig()
    if importlib.util.find_spec("runner.engine.warm.shortcuts"):
        shortcuts = importlib.import_module("runner.engine.warm.shortcuts")
        shortcuts.install(frozenset())


def _kubeconfig() -> None:
    """Tell the Kubernetes client, which looked when it was imported, which kubeconfig is the default."""
    module: Any = sys.modules.get("kubernetes.config.kube_config")
    if module:
        module.KUBE_CONFIG_DEFAULT_LOCATION = os.environ.get("KUBECONFIG", "~/.kube/config")


def _keep_collections() -> None:
    """Let Ansible set up the finder of collections as always; if it would be the one that is there, keep that."""
    from ansible.utils.collection_loader import AnsibleCollectionConfig  # noqa: PLC0415 - as above
    from ansible.utils.collection_loader import _collection_finder as module  # noqa: PLC0415 - as above

    finder_class: Any = module._AnsibleCollectionFinder  # noqa: SLF001 - there is no other way in
    ours = AnsibleCollectionConfig._collection_finder  # noqa: SLF001 - as above
    install = finder_class._install  # noqa: SLF001 - as above

    def keep(fresh: Any) -> None:
        if fresh._n_configured_paths == ours._n_configured_paths:  # noqa: SLF001 - as above
            AnsibleCollectionConfig._collection_finder = ours  # noqa: SLF001 - as above
            return
        for name in [name for name in sys.modules if name.partition(".")[0] == "ansible_collections"]:
            del sys.modules[name]
        install(fresh)

    finder_class._install = keep  # noqa: SLF001 - as above
    AnsibleCollectionConfig._collection_finder = None  # noqa: SLF001 - as above


def _exit_code(main: Any) -> int:
    """Do what an interpreter does with what its main module raises."""
    try:
        main()
    except SystemExit as end:
        if end.code is None:
            return 0
        if isinstance(end.code, int):
            return int(end.code) & 0xFF
        print(end.code, file=sys.stderr)  # noqa: T201 - as the interpreter does
        return 1
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        return 1
    except BaseException:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def scratch_value(scratch: Path, name: str) -> str:
    """Return what stands for a run's own variable in the server."""
    return str(scratch / name)
