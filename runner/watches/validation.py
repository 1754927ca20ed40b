"""Checks of `ansible-operator validate`.

Checks the watches file, its roles and playbooks, every YAML file in these, the collections they use, and variable names
of older SDKs. Reads files only and runs nothing. Each problem has a file and a line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from runner.config import paths
from runner.config.paths import SearchPath
from runner.errors import ConfigError
from runner.watches import watch as watches
from runner.watches.watch import Content, LoadedWatches, Playbook, Role, Watch
from runner.yamlfile import tree
from runner.yamlfile.tree import Problem, Problems, SourceText

_VAULT = "$ANSIBLE_VAULT"
_FQCN = re.compile(r"[a-z_][a-z0-9_]*\.[a-z_][a-z0-9_]*\.[a-z_][a-z0-9_.]*")
_K8S = {"kubernetes.core.k8s", "community.kubernetes.k8s"}
_BUILT_IN = {"ansible.builtin", "ansible.legacy"}
_BLOCKS = ("block", "rescue", "always")
_OLD_META = re.compile(r"(?<![\w.])meta\.(name|namespace)\b")
_PLAY_TASKS = ("pre_tasks", "tasks", "post_tasks", "handlers")
_ROLE_LISTS = ("tasks", "handlers")
_ROLE_MAPPINGS = ("defaults", "vars", "meta")
_SUFFIXES = {".yml", ".yaml"}


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """Valid watches, and problems."""

    watches: tuple[Watch, ...]
    problems: Problems


def validate(path: Path, *, environ: Mapping[str, str], cwd: Path, search_path: SearchPath) -> ValidationResult:
    """Check a watches file and the files it refers to. Raises ConfigError if the watches file cannot be read."""
    problems = Problems()
    found = watches.examine(path, environ=environ, cwd=cwd, search_path=search_path, problems=problems)
    checks = _Checks(cwd, search_path, problems)
    for watch in found:
        checks.content(watch.content)
        if watch.finalizer is not None:
            checks.content(watch.finalizer.content)
    return ValidationResult(found, problems)


def load(path: Path, *, environ: Mapping[str, str], cwd: Path, search_path: SearchPath) -> LoadedWatches:
    """Check as `validate` does and return the watches. Raises ConfigError with a line for each error."""
    found = validate(path, environ=environ, cwd=cwd, search_path=search_path)
    found.problems.raise_errors()
    return LoadedWatches(found.watches, found.problems.warning_lines())


@dataclass(slots=True)
class _Checks:
    """Checks each role, file and collection once."""

    cwd: Path
    search_path: SearchPath
    problems: Problems
    seen: set[Path] = field(default_factory=set)
    collections: set[str] = field(default_factory=set)

    def content(self, content: Content) -> None:
        if content.path in self.seen:
            return
        self.seen.add(content.path)
        match content:
            case Role(path=path):
                self.role(path)
            case Playbook(path=path):
                self.playbook(path)

    def role(self, role: Path) -> None:
        if _main(role / "tasks") is None and _main(role / "meta") is None:
            self._error(role, 0, "the role has no tasks/main.yml: add one")
        for folder in (*_ROLE_LISTS, *_ROLE_MAPPINGS):
            for path in _files(role / folder):
                self._role_file(folder, path)
        for path in sorted((role / "templates").rglob("*")):
            if path.is_file():
                self._old_names(path)

    def _role_file(self, folder: str, path: Path) -> None:
        parsed = self._parse(path)
        if parsed is None:
            return
        source, root = parsed
        if folder in _ROLE_LISTS:
            if isinstance(root, yaml.SequenceNode):
                self._tasks(source, root)
            else:
                self._wrong(source, root, "a list of tasks (`- …`)")
        elif folder == "meta" and path.stem == "crd_validations":
            if not isinstance(root, yaml.SequenceNode):
                self._wrong(source, root, "a list of rules (`- rule: …`)")
        elif not isinstance(root, yaml.MappingNode):
            self._wrong(source, root, "a mapping of names to values")
        elif path.stem == "argument_specs":
            self._argument_specs(source, root)

    def playbook(self, playbook: Path) -> None:
        parsed = self._parse(playbook)
        if parsed is None:
            return
        source, root = parsed
        if not isinstance(root, yaml.SequenceNode):
            self._wrong(source, root, "a list of plays (`- hosts: localhost`)")
            return
        for play in root.value:
            if not isinstance(play, yaml.MappingNode):
                self._wrong(source, play, "a play: a mapping with hosts and tasks or roles")
                continue
            for key, value in _pairs(play):
                if key in _PLAY_TASKS and isinstance(value, yaml.SequenceNode):
                    self._tasks(source, value)
                elif key == "roles" and isinstance(value, yaml.SequenceNode):
                    self._roles_of_play(source, playbook, value)

    def _roles_of_play(self, source: SourceText, playbook: Path, roles: yaml.SequenceNode) -> None:
        beside = playbook.parent / "roles"
        search_path = replace(self.search_path, roles=(beside, *self.search_path.roles, playbook.parent))
        for node in roles.value:
            name = _role_name(node)
            if not name or "{{" in name:
                continue
            found = paths.find_role(name, search_path)
            if found.path is None:
                searched = ", ".join(map(str, found.searched))
                self._warn(source.file, source.line(node.start_mark), f"role {name!r} not found; searched {searched}")
            else:
                self.content(Role(name, found.path))

    def _tasks(self, source: SourceText, tasks: yaml.SequenceNode) -> None:
        for task in tasks.value:
            if not isinstance(task, yaml.MappingNode):
                self._wrong(source, task, "a task: a mapping with a module name and its arguments")
                continue
            for key, value in task.value:
                if key.value in _BLOCKS and isinstance(value, yaml.SequenceNode):
                    self._tasks(source, value)
                elif isinstance(key, yaml.ScalarNode) and _FQCN.fullmatch(key.value):
                    self._collection(source, key.value, source.line(key.start_mark))
                    self._idle_option(source, key.value, value)

    def _idle_option(self, source: SourceText, module: str, arguments: yaml.Node) -> None:
        """Warn about `server_side_apply` without `apply`, which the module ignores."""
        if module not in _K8S or not isinstance(arguments, yaml.MappingNode) or "module_defaults" in source.text:
            return
        option = next((key for key, _ in arguments.value if key.value == "server_side_apply"), None)
        apply = dict(_pairs(arguments)).get("apply")
        if option is not None and (apply is None or tree.plain(apply) is False):
            what = f"server_side_apply: {module} ignores this without `apply: true`, and patches instead; add it"
            self._warn(source.file, source.line(option.start_mark), what)

    def _collection(self, source: SourceText, module: str, line: int) -> None:
        name = ".".join(module.split(".")[:2])
        if name in _BUILT_IN or name in self.collections:
            return
        self.collections.add(name)
        found = paths.find_collection(name, self.search_path)
        if found.path is None:
            searched = ", ".join(map(str, found.searched))
            self._warn(
                source.file,
                line,
                f"{module}: collection {name} not found; add it to requirements.yml and run "
                f"`ansible-galaxy collection install -r requirements.yml`; searched {searched}",
            )

    def _argument_specs(self, source: SourceText, root: yaml.MappingNode) -> None:
        specs = dict(_pairs(root)).get("argument_specs")
        if not isinstance(specs, yaml.MappingNode):
            self._wrong(source, specs or root, "argument_specs: a mapping of entry points such as main")
            return
        for _, entry in _pairs(specs):
            if not isinstance(entry, yaml.MappingNode):
                self._wrong(source, entry, "an entry point: a mapping with options")

    def _parse(self, path: Path) -> tuple[SourceText, yaml.Node] | None:
        """Return the first document of a file; None, with an error, if it is invalid."""
        file = self._shown(path)
        try:
            text = tree.read(path, file)
        except ConfigError as error:
            self._error(path, 0, str(error).removeprefix(f"{file}: "))
            return None
        self._old_names(path)
        if text.startswith(_VAULT):
            return None  # encrypted with Ansible Vault
        source = tree.expand(file, text, {})
        roots = tree.documents(source, self.problems)
        if not roots or tree.is_null(roots[0]):
            return None
        for line, key, first in tree.repeated_keys(source, roots[0]):
            self._warn(file, line, f"duplicate key {key!r} (first in line {first}); the last value is used")
        return source, roots[0]

    def _old_names(self, path: Path) -> None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return  # a binary template; `_parse` reports unreadable YAML files
        for number, line in enumerate(lines, start=1):
            found = _OLD_META.search(line.split("#", 1)[0] if path.suffix in _SUFFIXES else line)
            if found:
                message = f"{found[0]} was removed from the SDK: use ansible_operator_meta.{found[1]}"
                self._warn(self._shown(path), number, message)

    def _wrong(self, source: SourceText, node: yaml.Node, expected: str) -> None:
        message = f"found {tree.kind_of(node)}, expected {expected}"
        self.problems.errors.append(Problem(source.file, source.line(node.start_mark), "", message))

    def _error(self, path: Path, line: int, message: str) -> None:
        self.problems.errors.append(Problem(self._shown(path), line, "", message))

    def _warn(self, file: str, line: int, message: str) -> None:
        self.problems.warnings.append(Problem(file, line, "", message))

    def _shown(self, path: Path) -> str:
        return os.path.relpath(path, self.cwd) if path.is_relative_to(self.cwd) else str(path)


def _main(folder: Path) -> Path | None:
    """Return the file that Ansible reads first in a role's folder."""
    candidates = (folder / name for name in ("main.yml", "main.yaml", "main.json", "main"))
    return next((path for path in candidates if path.exists()), None)


def _files(folder: Path) -> Iterator[Path]:
    yield from sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES and path.is_file())


def _pairs(node: yaml.MappingNode) -> list[tuple[str, yaml.Node]]:
    """Return the pairs of a mapping whose key is a scalar."""
    return [(key.value, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]


def _role_name(node: yaml.Node) -> str:
    """Return the role name of an entry of a play's `roles`; empty if it has none."""
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    if isinstance(node, yaml.MappingNode):
        values = dict(_pairs(node))
        named = values.get("role") or values.get("name")
        return str(named.value) if isinstance(named, yaml.ScalarNode) else ""
    return ""
