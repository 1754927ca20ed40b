"""Fields of a CRD that no role reads, and options of a role that no field sets; for `ansible-operator validate`.

The check reads files and executes nothing. The operator itself reads the fields that name hosts and credentials.
Another field is read if its variable's name is a word in a file of the role or of a role that it uses. If a role can
read variables by dynamic names, no warning is given. Only top-level fields are checked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from runner.base.config import paths
from runner.base.config.paths import SearchPath
from runner.base.yamlfile import nodes, tree
from runner.base.yamlfile.tree import Problem, Problems
from runner.core.engine.params import object_key, snake_case
from runner.core.watches.spec_paths import Step
from runner.core.watches.watch import Role, Watch
from runner.features.hosts.fields import INVENTORY
from runner.sdk.schema import files
from runner.sdk.schema.fields import OPERATOR_VARIABLES, renamed
from runner.values.errors import ConfigError
from runner.values.objects import GVK

_LARGEST = 1024 * 1024
_FOLDERS = ("tasks", "handlers", "templates", "files", "library", "module_utils", "filter_plugins", "lookup_plugins")
_VALUES = ("defaults", "vars")
_WHOLESALE = re.compile(
    r"\b(?:host)?vars\s*[\[.]|\b(?:lookup|q|query)\(\s*['\"]+(?:ansible\.builtin\.)?var(?:s|names)\b"
)
"""Reads of variables by names that may not occur in the text."""
_ROLE = re.compile(r"(?:include_role|import_role)\s*:(?:.*?\bname\s*[:=]\s*['\"]?([^\s'\",}]+))?", re.DOTALL)


def report(watches: Iterable[Watch], folder: Path, *, cwd: Path, places: SearchPath, problems: Problems) -> None:
    """Compare the CRD of each watched kind in `folder` with its role, and add warnings to `problems`."""
    for watch in watches:
        if not isinstance(watch.content, Role):
            continue
        crd = _crd(folder, watch.gvk)
        if crd is not None:
            _Comparison(watch, watch.content.path, crd, cwd, places, problems).report()


@dataclass(frozen=True, slots=True)
class _Crd:
    path: Path
    lines: dict[str, int]
    """Fields of `spec`, and their line numbers."""
    is_closed: bool
    """True if the API server drops unknown fields."""


@dataclass(slots=True)
class _Comparison:
    watch: Watch
    role: Path
    crd: _Crd
    cwd: Path
    places: SearchPath
    problems: Problems
    seen: set[Path] = field(default_factory=set)

    def report(self) -> None:
        self._report_unread()
        if self.crd.is_closed:
            self._report_unsettable()

    def _report_unread(self) -> None:
        own = "\n".join([*self._texts(self.role), str(self.watch.vars)])
        finalizer = "\n".join(self._texts(self.watch.finalizer.content.path) if self.watch.finalizer else ())
        # A finalizer that stores the whole object does not show that the role reads its fields.
        if object_key(self.watch.gvk) in own or self._may_read_anything(f"{own}\n{finalizer}"):
            return
        whole = f"{own}\n{finalizer}"
        unread = [
            (key, name, line)
            for key, line in self.crd.lines.items()
            if key not in self._read_by_operator()
            for name in [snake_case(key) if self.watch.snake_case_parameters else key]
            if not _has_word(name, whole) and not _has_word(key, finalizer)
        ]
        role = self._shown(self.role)
        if not unread:
            return
        key, name, first = unread[0]
        message = f"spec.{key}: {role} does not read the variable {name!r}"
        if len(unread) > 1:
            names = _list((f"spec.{key}", line) for key, _, line in unread)
            message = f"{role} does not read the variables of {len(unread)} fields: {names}"
        self._warn(self.crd.path, first, message)

    def _read_by_operator(self) -> set[Step]:
        """Return the fields that name the hosts of a run, or their credentials."""
        hosts = self.watch.more.get(INVENTORY)
        paths = (hosts.hosts, hosts.credentials) if hosts else ()
        return {path.steps[0] for path in paths if path and path.steps}

    def _may_read_anything(self, whole: str) -> bool:
        return _WHOLESALE.search(whole) is not None or any(not path for path in self._named(whole))

    def _report_unsettable(self) -> None:
        fields = {snake_case(key) if self.watch.snake_case_parameters else key for key in self.crd.lines}
        known = fields | set(self.watch.vars) | OPERATOR_VARIABLES
        unset: dict[Path, list[tuple[str, int]]] = {}
        for path, name, line in _settings(self.role):
            if name in known or name.startswith("_"):
                continue
            if self.watch.snake_case_parameters and name in self.crd.lines:
                if path.parent.name != "meta":  # the check of argument specs reports options, also without a CRD
                    self._warn(path, line, f"{name}: {renamed(name)}")
            else:
                unset.setdefault(path, []).append((name, line))
        crd = self._shown(self.crd.path)
        advice = "`ansible-operator generate crds` generates fields from meta/argument_specs.yml"
        for path, variables in unset.items():
            name, line = variables[0]
            message = f"{name}: no field of {crd} sets this variable; {advice}"
            if len(variables) > 1:
                message = f"no field of {crd} sets these {len(variables)} variables: {_list(variables)}; {advice}"
            self._warn(path, line, message)

    def _texts(self, content: Path) -> Iterator[str]:
        """Yield the texts of a role or playbook, and of the roles that it uses."""
        if content in self.seen:
            return
        self.seen.add(content)
        own = list(_own_texts(content))
        yield from own
        needed = (paths.find_role(name, self.places).path for name in _dependencies(content))
        for path in (*self._named("\n".join(own)), *needed):
            if path:
                yield from self._texts(path)

    def _named(self, text: str) -> Iterator[Path | None]:
        """Yield the roles in a text; None for a role that is not found or has a dynamic name."""
        for match in _ROLE.finditer(text):
            yield paths.find_role(match[1], self.places).path if match[1] and "{{" not in match[1] else None

    def _warn(self, path: Path, line: int, message: str) -> None:
        self.problems.warnings.append(Problem(self._shown(path), line, "", message, is_hint=True))

    def _shown(self, path: Path) -> str:
        return os.path.relpath(path, self.cwd) if path.is_absolute() and path.is_relative_to(self.cwd) else str(path)


def _has_word(word: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def _list(variables: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name} (line {line})" for name, line in variables)


def _crd(folder: Path, gvk: GVK) -> _Crd | None:
    try:
        path, text = files.find_crd(folder, gvk)
    except ConfigError:
        return None  # a project may store its CRDs elsewhere
    node = files.spec_node(text, gvk.version)
    if not isinstance(node, yaml.MappingNode):
        return None
    kept = nodes.at(node, "x-kubernetes-preserve-unknown-fields")
    lines = {str(key.value): key.start_mark.line + 1 for key, _ in nodes.pairs(nodes.at(node, "properties"))}
    return _Crd(path, lines, bool(lines) and (kept is None or not tree.plain(kept)))


def _own_texts(content: Path) -> Iterator[str]:
    if content.is_file():
        yield _read(content)
        return
    for name in _FOLDERS:
        for path in sorted((content / name).rglob("*")):
            if path.is_file() and path.stat().st_size <= _LARGEST:
                yield _read(path)
    for path in _yaml_files(content, _VALUES):
        # A default defines a variable but does not read it; its value may read other variables.
        document = tree.values(_read(path))  # None if it is invalid: the check of the role's own files reports it
        yield str(list(document.values())) if isinstance(document, dict) else ""


def _dependencies(role: Path) -> Iterator[str]:
    """Yield the names of the dependencies in a role's `meta/main.yml`."""
    meta = tree.values(_read(role / "meta/main.yml")) if (role / "meta/main.yml").is_file() else None
    for dependency in (meta.get("dependencies") or ()) if isinstance(meta, dict) else ():
        name = (dependency.get("role") or dependency.get("name")) if isinstance(dependency, dict) else dependency
        if isinstance(name, str):
            yield name


def _settings(role: Path) -> Iterator[tuple[Path, str, int]]:
    """Yield the parameters of a role: the options of its argument spec; without one, its defaults."""
    for name in ("meta/argument_specs.yml", "meta/argument_specs.yaml"):
        if (role / name).is_file():
            yield from _keys(role / name, nodes.at(_compose(role / name), "argument_specs", "main", "options"))
            return
    for path in _yaml_files(role, ("defaults",)):
        yield from _keys(path, _compose(path))


def _keys(path: Path, node: yaml.Node | None) -> Iterator[tuple[Path, str, int]]:
    for key, _ in nodes.pairs(node):
        yield path, str(key.value), key.start_mark.line + 1


def _yaml_files(role: Path, folders: Iterable[str]) -> Iterator[Path]:
    for name in folders:
        yield from sorted(path for path in (role / name).rglob("*") if path.suffix in {".yml", ".yaml"})


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _compose(path: Path) -> yaml.Node | None:
    return next(iter(tree.documents(tree.expand(str(path), _read(path), {}), Problems())), None)
