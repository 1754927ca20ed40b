"""Differences between ansible-core's versions. All version-dependent code of the warm engine is here.

Tested with the versions of `tested.CORES`. Version 2.19 introduced tagged values, serialization profiles, sessions of
workers, and new classes of results. Version 2.21 changed contexts of tasks and commands for shells. Version 2.22
introduced secrets. Must be imported only where Ansible is loaded.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import importlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from ansible import constants, context
from ansible.executor import module_common
from ansible.plugins.loader import module_utils_loader
from ansible.release import __version__

CORE: tuple[int, int] = tuple(int(part) for part in __version__.split(".")[:2])  # type: ignore[assignment]
TAGGED = CORE >= (2, 19)
"""Values have tags, and results have a serialization profile."""
BUILTIN_MODULE_UTILS = os.path.realpath(Path(module_common.__file__).parent.parent / "module_utils")
SHELL_TAIL = "" if CORE >= (2, 21) else " && sleep 0"
"""Text that Ansible adds after each command for a shell."""
_PROFILE = "legacy"
_FALLBACK_PACKAGE = "ansible.legacy" if TAGGED else "ansible.modules"


class Session(Enum):
    """The isolation of a run's modules from its playbook.

    Since ansible-core 2.19 a worker and its modules have their own session without a terminal. The process from which
    modules are forked has one too. A worker's end also ends its modules, through their group.
    """

    SHARED = "shared"
    OWN_GROUP = "own group"
    OWN = "own"

    def begin(self) -> None:
        """Isolate this process; modules inherit the session or group."""
        if self is Session.OWN:
            os.setsid()
        elif self is Session.OWN_GROUP:
            os.setpgid(0, 0)

    def end(self, leader: int, modules: Iterable[int], number: int) -> None:
        """Send a signal to modules and the processes that they started. `leader` is the process that called `begin`."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self is not Session.SHARED:
                os.killpg(leader, number)
                return
            for pid in modules:
                os.kill(pid, number)


def module_utils_folders() -> list[str]:
    """Return the folders in which Ansible searches for `ansible.module_utils`, without its own."""
    return [path for path in module_utils_loader._get_paths(subdirs=False) if Path(path).is_dir()]


def collection_folder(name: str) -> str | None:
    """Return the folder of a collection's Python package, such as `ansible_collections.kubernetes.core`."""
    try:
        file = importlib.import_module(name).__file__
    except ImportError:
        return None
    return str(Path(file).parent) if file else None


@functools.cache
def python_name(module_name: str, path: str) -> str:
    """Return the Python name of a module in its payload."""
    try:
        name: str = module_common._get_ansible_module_fqn(path)
    except ValueError:
        return f"{_FALLBACK_PACKAGE}.{module_name}"
    return name


def collect(archive: Any, module_name: str, name: str, path: str, source: bytes) -> None:
    """Make Ansible write a module's payload into `archive`, which has the methods of a `ZipFile` that Ansible calls."""
    if not TAGGED:
        when: Any = time.gmtime()[:6]
        module_common.recursive_finder(module_name, name, source, archive, when)
        module_common._add_module_to_zip(archive, when, name, source)
        return
    from ansible._internal._ansiballz import _builder  # noqa: PLC0415 - since 2.19
    from ansible._internal._datatag._tags import Origin  # noqa: PLC0415 - since 2.19

    when = dt.datetime.now(dt.UTC)
    extensions = _builder.ExtensionManager()
    module_common.recursive_finder(module_name, name, Origin(path=path).tag(source), archive, when, extensions)
    module_common._add_module_to_zip(archive, when, name, source, path, extensions)


@dataclass(frozen=True, slots=True)
class Call:
    """Serialized arguments of a module, and the profile of its result."""

    parameters: bytes
    profile: str
    open_files: int
    """Limit of open files to set, or 0."""
    secrets: frozenset[str] | None
    """Registered secrets in the arguments; None before ansible-core 2.22."""


def is_instrumented(task_vars: Mapping[str, Any]) -> bool:
    """Return True if a debugger or coverage runs with modules, or modules can define their serialization."""
    if not TAGGED:
        return bool(os.environ.get("_ANSIBLE_COVERAGE_CONFIG"))
    from ansible._internal._ansiballz import _builder  # noqa: PLC0415 - since 2.19

    return bool(
        _builder.ExtensionManager.create(task_vars=task_vars).extension_names
        or constants.config.get_config_value("_MODULE_METADATA")
    )


def encode(module_args: Any, task_vars: Mapping[str, Any], templar: Any) -> Call:
    """Serialize a module's arguments in Ansible's format."""
    parameters = {"ANSIBLE_MODULE_ARGS": module_args}
    limit = constants.config.get_config_value("PYTHON_MODULE_RLIMIT_NOFILE", variables=task_vars)
    if not TAGGED:
        from ansible.module_utils.common.json import AnsibleJSONEncoder  # noqa: PLC0415 - gone since

        text = json.dumps(parameters, cls=AnsibleJSONEncoder, vault_to_text=True)
    else:
        from ansible.module_utils.common.json import Direction, get_module_encoder  # noqa: PLC0415 - since 2.19

        text = json.dumps(parameters, cls=get_module_encoder(_PROFILE, Direction.CONTROLLER_TO_MODULE))
    limit = limit if isinstance(limit, int) else int(templar.template(limit))
    # `str.encode` and `int.__add__` return values without tags. A tag would require Ansible in the module's process.
    return Call(
        parameters=str.encode(text, "utf-8", "surrogateescape"),
        profile=_PROFILE if TAGGED else "",
        open_files=int.__add__(limit, 0),
        secrets=_secrets_in(text),
    )


def _secrets_in(text: str) -> frozenset[str] | None:
    if CORE < (2, 22):
        return None
    from ansible.module_utils import secrets  # noqa: PLC0415 - since 2.22

    values: frozenset[str] = secrets._secret_masker.secrets_in_json(text)
    return values


def interpreter(source: bytes, task_vars: Mapping[str, Any], templar: Any) -> str:
    """Return the shebang line with which Ansible would start the module locally. Requests discovery like Ansible."""
    declared, arguments = module_common._extract_interpreter(source)
    shebang, _ = module_common._get_shebang(declared or "/usr/bin/python", task_vars, templar, arguments)
    return str(shebang)


def built(data: bytes, shebang: str) -> Any:
    """Return the result of `modify_module`."""
    if not TAGGED:
        return data, "new", shebang
    return module_common._BuiltModule(
        b_module_data=data, module_style="new", shebang=shebang, serialization_profile=_PROFILE
    )


def worker_session(task_vars: Mapping[str, Any]) -> Session:
    """Return how the processes of a worker, including its modules, are isolated."""
    if not TAGGED:
        return Session.SHARED
    if CORE < (2, 21) or constants.config.get_config_value("WORKER_SESSION_ISOLATION", variables=task_vars):
        return Session.OWN
    return Session.OWN_GROUP


def plugin_intercept() -> Any:
    """Return the class that provides filters and tests to templates."""
    if not TAGGED:
        from ansible.template import JinjaPluginIntercept  # noqa: PLC0415 - moved since

        return JinjaPluginIntercept
    from ansible._internal._templating._jinja_plugins import JinjaPluginIntercept  # noqa: PLC0415 - since 2.19

    return JinjaPluginIntercept


def intercepted_loader(intercept: Any) -> Any:
    """Return the loader of an instance of that class."""
    return intercept._plugin_loader if TAGGED else intercept._pluginloader


def template_environments() -> tuple[Any, ...]:
    """Return the classes through which templates read values."""
    if not TAGGED:
        from ansible.template import AnsibleEnvironment  # noqa: PLC0415 - moved since; the native one inherits from it

        return (AnsibleEnvironment,)
    from ansible._internal._templating._jinja_bits import AnsibleEnvironment  # noqa: PLC0415 - since 2.19

    return (AnsibleEnvironment,)


def template_bits() -> Any:
    """Return the module of the classes of templates; since ansible-core 2.19."""
    from ansible._internal._templating import _jinja_bits  # noqa: PLC0415 - since 2.19

    return _jinja_bits


def decrypts() -> bool:
    """Return True if this run may decrypt values. Before ansible-core 2.19 such values are not marked."""
    options = (context.CLIARGS.get(name) for name in ("vault_ids", "vault_password_files", "ask_vault_pass"))
    return any((*options, constants.DEFAULT_VAULT_IDENTITY_LIST, constants.DEFAULT_VAULT_PASSWORD_FILE))


def run_worker(worker: Any) -> None:
    """Run the code of a worker's process in this process."""
    if not TAGGED:
        worker._run()
        return
    from ansible._internal import _task  # noqa: PLC0415 - since 2.19

    if CORE < (2, 21):
        task_context = _task.TaskContext(worker._task)
    else:
        task_context = _task.TaskContext.create(
            task=worker._task,
            task_vars=worker._task_vars,
            host_name=worker._host.name,
        )
    try:
        with task_context:
            worker._run()
    finally:
        if CORE >= (2, 22):  # a worker's process ends, and its list of new secrets with it
            task_context._new_secrets.unregister()


def is_validated(kind: Any) -> bool:
    """Return True if all attributes of a class of playbook objects are validated, not only those that always are."""
    if not TAGGED:
        return kind.__name__ in {"Handler", "PlayContext", "Task"}
    return bool(kind._post_validate_object)


def variable_types() -> tuple[tuple[type, ...], tuple[type, ...], tuple[type, ...]]:
    """Return Ansible's own types of variables: those that never change, dictionaries, and lists."""
    if not TAGGED:
        from ansible.parsing.yaml.objects import AnsibleMapping, AnsibleSequence, AnsibleUnicode  # noqa: PLC0415 - moved
        from ansible.utils.native_jinja import NativeJinjaText  # noqa: PLC0415 - gone since
        from ansible.utils.unsafe_proxy import (  # noqa: PLC0415 - changed since
            AnsibleUnsafeBytes,
            AnsibleUnsafeText,
            NativeJinjaUnsafeText,
        )

        immutable = (AnsibleUnicode, AnsibleUnsafeBytes, AnsibleUnsafeText, NativeJinjaText, NativeJinjaUnsafeText)
        return immutable, (AnsibleMapping,), (AnsibleSequence,)
    from ansible.module_utils._internal import _datatag  # noqa: PLC0415 - since 2.19
    from ansible.template import trust_as_template  # noqa: PLC0415 - as above

    tagged = _datatag.AnsibleTaggedObject._tagged_type_map
    natives = (str, bytes, int, float, dt.datetime, dt.date, dt.time)
    tags = type(trust_as_template("")._ansible_tags_mapping)
    immutable = (*(tagged[native] for native in natives), tags)
    return immutable, (tagged[dict],), (tagged[list],)


def types_of(native: type) -> frozenset[type]:
    """Return a type of Python and Ansible's own type of such values with tags; since ansible-core 2.19."""
    from ansible.module_utils._internal import _datatag  # noqa: PLC0415 - since 2.19

    return frozenset({native, _datatag.AnsibleTaggedObject._tagged_type_map[native]})


def empty_copier(kind: type) -> Callable[[Any], Any]:
    """Return a function that makes an empty container with the tags or the position of its argument."""
    if kind in {dict, list}:
        return lambda _: kind()
    if TAGGED:

        def tagged(value: Any) -> Any:
            fresh = kind()
            fresh._ansible_tags_mapping = value._ansible_tags_mapping
            return fresh

        return tagged

    def positioned(value: Any) -> Any:
        fresh = kind()
        fresh.__dict__.update(value.__dict__)
        return fresh

    return positioned
