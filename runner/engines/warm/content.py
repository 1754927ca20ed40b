"""Modules, plugins and files with templates that a fork server prepares before the first run of a role or playbook.

This is a cheap guess from text. It finds names of modules and lookups, plays that gather facts, and roles whose names
occur. The engine adds what it misses after a run has used it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path

from runner.core.content import lookups
from runner.core.watches.watch import Content, Role
from runner.engines.warm.messages import Load

_TASK = re.compile(r"^\s*(?:-\s+)?([a-z_]\w*\.[a-z_]\w*\.[a-z_]\w*)\s*:", re.MULTILINE)
_OFTEN_SHORT = {
    "ansible.legacy": "blockinfile find get_url lineinfile replace slurp tempfile unarchive uri wait_for",
    "kubernetes.core": "helm helm_info k8s k8s_cp k8s_exec k8s_info k8s_json_patch k8s_log k8s_scale k8s_service",
    "operator_sdk.util": "fail_terminal k8s_event k8s_status osdk_metric requeue_after",
}
"""Modules that operators often name without their collection; Ansible finds it by a route or `collections`."""
_FULL_NAMES = {name: f"{collection}.{name}" for collection, names in _OFTEN_SHORT.items() for name in names.split()}
_SHORT_TASK = re.compile(rf"^\s*(?:-\s+)?({'|'.join(_FULL_NAMES)})\s*:", re.MULTILINE)
_WITHOUT_MODULE = re.compile(
    r"add_host|assert|copy|debug|fail|group_by|(?:import|include)_\w+|meta|pause|raw|script|set_\w+|shell|template"
    r"|validate_argument_spec"
)
"""Actions of ansible-core that run no module, or only those that are always prepared."""
_PLAY = re.compile(r"^\s*-?\s*hosts\s*:", re.MULTILINE)
_GATHERS_NOT = re.compile(r"^\s*(?:-\s+)?gather_facts\s*:\s*(?:false|no)\b", re.MULTILINE | re.IGNORECASE)
_GATHERS = re.compile(
    r"^\s*(?:-\s+)?(?:ansible\.(?:builtin|legacy)\.)?(?:gather_facts|setup)\s*:(?!\s*(?:false|no)\b)",
    re.MULTILINE | re.IGNORECASE,
)
_ROLE = re.compile(r"(?:^\s*-\s+(?:(?:role|name)\s*:\s*)?|\b(?:role|name)\s*:\s*)[\"']?([\w.-]+)", re.MULTILINE)
"""Where the name of a role can stand: in a list, or after `role` or `name`."""
_TASKS = ("tasks", "handlers")
_NAMING = (*_TASKS, "meta")
"""Folders whose files can name other roles."""
_VALUES = (*_TASKS, "defaults", "vars")
_TEMPLATES = "templates"
_MOST_FILES = 500
"""Files of each sort: those that are read here, those with values, and templates."""
_LOADED_BY_RUNS = frozenset({"ansible_collections.kubernetes.core.plugins.lookup.k8s"})
"""With ansible-core 2.20, this lookup would need a worker if it was prepared."""
_FACTS = "ansible.legacy.setup"
"""The module that gathers facts. Its `module_utils` are as many as those of all other common modules together."""


def load(content: Content, roots: Iterable[Path], *, explicit: bool) -> Load:
    """Return what to prepare. Blocking I/O: call it in a thread.

    `roots` are the folders of roles of the runs, in order. `explicit` is True if plays gather facts only if they
    contain `gather_facts: true`.
    """
    texts: list[str] = []
    values: list[Path] = []
    templates: list[Path] = []
    if isinstance(content, Role):  # its play does not contain `gather_facts`
        first, beside, gathers = [content.path], content.path.parent, not explicit
    else:
        play = _read(content.path)
        texts.append(play)
        values.append(content.path)
        beside = content.path.parent / "roles"
        first = [content.path.parent, *_folders(beside)]
        gathers = not explicit and len(_PLAY.findall(play)) > len(_GATHERS_NOT.findall(play))
    available = {role.name: role for root in reversed([beside, *roots]) for role in _folders(root)}
    waiting = list(dict.fromkeys([*first, *_named(texts, available)]))
    for folder in waiting:  # grows by the roles that each names
        if len(texts) >= _MOST_FILES:
            break
        files = {name: _files(folder / name) for name in (*_NAMING, *_VALUES, _TEMPLATES)}
        naming = [path for name in _NAMING for path in files[name]]
        named = [_read(path) for path in naming[: _MOST_FILES - len(texts)]]
        waiting += (role for role in _named(named, available) if role not in waiting)
        texts += named
        values += (path for name in _VALUES for path in files[name])
        templates += (path for path in files[_TEMPLATES] if path != content.path)
    modules = {_module(name) for text in texts for name in _TASK.findall(text)} - {""}
    modules |= {_FULL_NAMES[name] for text in texts for name in _SHORT_TASK.findall(text)}
    if gathers or any(map(_GATHERS.search, texts)):
        modules.add(_FACTS)
    plugins = {_plugin("action", name) for name in modules}
    plugins |= {_plugin("lookup", name) for text in texts for _, name, _ in lookups.in_text(text)}
    return Load(
        plugins=frozenset(filter(None, plugins - _LOADED_BY_RUNS)),
        modules=frozenset(modules),
        files=frozenset(map(str, values[:_MOST_FILES])),
        template_files=frozenset(map(str, templates[:_MOST_FILES])),
    )


def _named(texts: Iterable[str], available: dict[str, Path]) -> list[Path]:
    names = {name for text in texts for name in _ROLE.findall(text)}
    return [role for name, role in available.items() if name in names]


def _module(name: str) -> str:
    """Return the full name of a task's module, the same for both names of one of ansible-core; empty if it has none."""
    collection, _, module = name.rpartition(".")
    if collection not in {"ansible.builtin", "ansible.legacy"}:
        return name
    return "" if _WITHOUT_MODULE.fullmatch(module) else f"ansible.legacy.{module}"


def _plugin(kind: str, name: str) -> str:
    """Return the Python module that a plugin of a collection has, if there is one; empty for those of ansible-core."""
    *collection, plugin = (_FULL_NAMES.get(name, name) if kind == "lookup" else name).split(".")
    if len(collection) != 2 or collection[0] == "ansible":  # noqa: PLR2004 - namespace and name
        return ""
    return f"ansible_collections.{'.'.join(collection)}.plugins.{kind}.{plugin}"


def _folders(root: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(path for path in root.iterdir() if path.is_dir())
    return []


def _files(folder: Path) -> list[Path]:
    """Return the files of a role's folder and below: all templates, and elsewhere those with YAML."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in paths if folder.name == _TEMPLATES or path.suffix in {".yml", ".yaml"}]


def _read(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8")
    return ""
