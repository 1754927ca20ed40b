"""Checks of `ansible-operator validate`.

Checks the watches file, its roles and playbooks, and every YAML file in these. Follows includes with static names.
Checks also the collections that tasks use, and variable names of older SDKs. Reads files only and runs nothing. Each
problem has a file and a line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from runner.base.config import paths
from runner.base.config.paths import SearchPath
from runner.base.yamlfile import tree
from runner.base.yamlfile.tree import Problem, Problems, SourceText
from runner.compatibility import content_nodes as nodes
from runner.core.watches import watch as watches
from runner.core.watches.field import FeatureFields
from runner.core.watches.watch import Content, LoadedWatches, Playbook, Role, Watch
from runner.values.errors import ConfigError

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
_ROLE_ACTIONS = {"include_role", "import_role"}
_TASKS_ACTIONS = {"include_tasks", "import_tasks", "include"}
_PLAYBOOK_ACTIONS = {"import_playbook", "include"}
_TASK_FOLDERS = ("tasks", "handlers")


@dataclass(frozen=True, slots=True)
class _Scope:
    """Folders in which Ansible searches the roles and task files that a file names."""

    folder: Path
    """Folder of the file."""
    role: Path | None
    """Role of the file; None in a playbook."""
    roots: tuple[Path, ...]
    """Folders of roles beside the playbook, or beside the role of the watch."""
    collections: tuple[str, ...] = ()
    """Collections of the keyword `collections`."""

    @property
    def task_folders(self) -> tuple[Path, ...]:
        """Folders that contain the task files."""
        own = tuple(self.role / name for name in _TASK_FOLDERS) if self.role else ()
        return (self.folder, *own, *((self.role,) if self.role else ()), *self.roots)

    @property
    def libraries(self) -> tuple[Path, ...]:
        """Folders of the project's own modules."""
        return tuple(folder / "library" for folder in (self.role, self.folder, *self.roots) if folder)


@dataclass(frozen=True, slots=True)
class Task:
    """A task, a block, or an entry of `roles`, and its file."""

    source: SourceText
    node: yaml.MappingNode
    collections: tuple[str, ...] = ()
    """Collections of short names."""
    libraries: tuple[Path, ...] = ()
    """Folders of the project's own modules."""
    is_role: bool = False
    """True for an entry of `roles`."""


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """Valid watches, problems, and the content that was read."""

    watches: tuple[Watch, ...]
    problems: Problems
    tasks: tuple[Task, ...] = ()
    files: tuple[Path, ...] = ()
    """Absolute paths of the files of roles and playbooks."""
    plays: tuple[Task, ...] = ()
    unread: tuple[Problem, ...] = ()
    """Roles whose names are templates, so that their tasks are not read."""


def validate(
    path: Path,
    *,
    environ: Mapping[str, str],
    cwd: Path,
    search_path: SearchPath,
    features: Sequence[FeatureFields],
    whole_project: bool = False,
) -> ValidationResult:
    """Check a watches file and the files it refers to. Raises ConfigError if the watches file cannot be read.

    With `whole_project`, roles of the project are also read if no static name refers to them, and installed
    collections are not required.
    """
    problems = Problems()
    all_watches = watches.examine(
        path, environ=environ, cwd=cwd, search_path=search_path, features=features, problems=problems
    )
    checks = _Checks(cwd, search_path, problems, collections=None if whole_project else set())
    for watch in all_watches:
        checks.content(watch.content)
        if watch.finalizer is not None:
            checks.content(watch.finalizer.content)
    if whole_project:
        checks.unreferenced()
    files = sorted(file for file in checks.seen if file.is_file())
    return ValidationResult(
        all_watches, problems, tuple(checks.tasks), tuple(files), tuple(checks.plays), tuple(checks.unread)
    )


def load(
    path: Path,
    *,
    environ: Mapping[str, str],
    cwd: Path,
    search_path: SearchPath,
    features: Sequence[FeatureFields],
) -> LoadedWatches:
    """Check as `validate` does and return the watches. Raises ConfigError with a line for each error."""
    result = validate(path, environ=environ, cwd=cwd, search_path=search_path, features=features)
    result.problems.raise_errors()
    return LoadedWatches(result.watches, result.problems.warning_lines())


@dataclass(slots=True)
class _Checks:
    """Checks each role, file and collection once."""

    cwd: Path
    search_path: SearchPath
    problems: Problems
    collections: set[str] | None
    """Names of checked collections; None: collections are not checked."""
    seen: set[Path] = field(default_factory=set)
    tasks: list[Task] = field(default_factory=list)
    plays: list[Task] = field(default_factory=list)
    unread: list[Problem] = field(default_factory=list)

    def unreferenced(self) -> None:
        """Check the project's roles to which no static name refers."""
        image = self.search_path.image
        for roles in (self.cwd / "roles", *(source for folder in image.roles for source in image.sources(folder))):
            for role in sorted(roles.iterdir() if roles.is_dir() else ()):
                if role.is_dir():
                    self.role(role, (roles,), has_main=False)

    def content(self, content: Content) -> None:
        match content:
            case Role(path=path):
                self.role(path, (path.parent,))
            case Playbook(path=path):
                self.playbook(path)

    def role(self, role: Path, roots: tuple[Path, ...], *, has_main: bool = True) -> None:
        """Check a role. `has_main`: whether its user needs `tasks/main.yml`."""
        if not self._is_new(role):
            return
        if has_main and _main(role / "tasks") is None and _main(role / "meta") is None:
            self._error(role, 0, "the role has no tasks/main.yml: add one")
        scope = _Scope(role / "tasks", role, roots, _collections_of_role(role))
        for folder in (*_ROLE_LISTS, *_ROLE_MAPPINGS):
            for path in _files(role / folder):
                self._role_file(folder, path, scope)
        for path in sorted((role / "templates").rglob("*")):
            if path.is_file() and self._is_new(path):
                self._old_names(path)

    def _is_new(self, path: Path) -> bool:
        """Return whether a role or file is not checked yet, and count it as checked."""
        is_new = path not in self.seen
        self.seen.add(path)
        return is_new

    def _role_file(self, folder: str, path: Path, scope: _Scope) -> None:
        parsed = self._parse(path) if self._is_new(path) else None
        if parsed is None:
            return
        source, root = parsed
        if folder in _ROLE_LISTS:
            self._task_list(source, root, replace(scope, folder=path.parent))
        elif folder == "meta" and path.stem == "crd_validations":
            if not isinstance(root, yaml.SequenceNode):
                self._wrong(source, root, "a list of rules (`- rule: …`)")
        elif not isinstance(root, yaml.MappingNode):
            self._wrong(source, root, "a mapping of names to values")
        elif path.stem == "argument_specs":
            self._argument_specs(source, root)
        elif folder == "meta" and path.stem == "main":
            dependencies = dict(nodes.pairs(root)).get("dependencies")
            for node in dependencies.value if isinstance(dependencies, yaml.SequenceNode) else ():
                self._included_role(source, node, nodes.role_name(node), scope)

    def playbook(self, playbook: Path) -> None:
        parsed = self._parse(playbook) if self._is_new(playbook) else None
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
            self.plays.append(Task(source, play))
            self._play(source, playbook, dict(nodes.pairs(play)))

    def _play(self, source: SourceText, playbook: Path, play: Mapping[str, yaml.Node]) -> None:
        folder = playbook.parent
        scope = _Scope(folder, None, (folder / "roles", folder), nodes.texts(play.get("collections")))
        for key, value in play.items():
            if key in _PLAY_TASKS and isinstance(value, yaml.SequenceNode):
                self._tasks(source, value, scope)
            elif key == "roles" and isinstance(value, yaml.SequenceNode):
                for node in value.value:
                    if isinstance(node, yaml.MappingNode):
                        self.tasks.append(replace(self._task(source, node, scope), is_role=True))
                    self._included_role(source, node, nodes.role_name(node), scope)
            elif nodes.action(key) in _PLAYBOOK_ACTIONS:
                name = nodes.argument(value, "file")
                is_file = Path(name).suffix in _SUFFIXES  # otherwise a playbook of a collection
                path = self._included_file(source, value, name, (folder,)) if is_file else None
                if path is not None:
                    self.playbook(path)

    def _included_role(self, source: SourceText, node: yaml.Node, name: str, scope: _Scope) -> None:
        """Check a role that a play, a task or another role names, unless the name is a template."""
        if "{{" in name:
            message = f"the role {name!r} is not read, because its name is a template"
            self.unread.append(Problem(source.file, source.line(node.start_mark), "", message))
            return
        if not name:
            return
        beside = (scope.role.parent,) if scope.role else ()
        search_path = replace(self.search_path, roles=(*scope.roots, *self.search_path.roles, *beside))
        full_names = [f"{collection}.{name}" for collection in scope.collections if "." not in name]
        cwd = self.cwd if Path(name).is_absolute() else None
        results = [paths.find_role(candidate, search_path, cwd=cwd) for candidate in (name, *full_names)]
        path = next((result.path for result in results if result.path), None)
        if path is None:
            searched = ", ".join(str(place) for result in results for place in result.searched)
            self._warn(source.file, source.line(node.start_mark), f"role {name!r} not found; searched {searched}")
        else:
            self.role(path, scope.roots, has_main=not nodes.argument(node, "tasks_from"))

    def _included_file(self, source: SourceText, node: yaml.Node, name: str, folders: tuple[Path, ...]) -> Path | None:
        """Return the path of an included file; None, with a warning, if it does not exist."""
        if not name or "{{" in name:
            return None
        folders = (self.cwd,) if Path(name).is_absolute() else folders
        results = [paths.find_file(name, folder, self.search_path.image) for folder in folders]
        path = next((result.path for result in results if result.path), None)
        if path is None:
            searched = ", ".join(dict.fromkeys(str(place) for result in results for place in result.searched))
            self._warn(source.file, source.line(node.start_mark), f"file {name!r} not found; searched {searched}")
        return path

    def _included_tasks(self, source: SourceText, node: yaml.Node, scope: _Scope) -> None:
        path = self._included_file(source, node, nodes.argument(node, "file"), scope.task_folders)
        parsed = self._parse(path) if path is not None and self._is_new(path) else None
        if path is not None and parsed is not None:
            self._task_list(*parsed, replace(scope, folder=path.parent))

    def _task_list(self, source: SourceText, root: yaml.Node, scope: _Scope) -> None:
        if isinstance(root, yaml.SequenceNode):
            self._tasks(source, root, scope)
        else:
            self._wrong(source, root, "a list of tasks (`- …`)")

    def _tasks(self, source: SourceText, tasks: yaml.SequenceNode, scope: _Scope) -> None:
        for task in tasks.value:
            if not isinstance(task, yaml.MappingNode):
                self._wrong(source, task, "a task: a mapping with a module name and its arguments")
                continue
            self.tasks.append(self._task(source, task, scope))
            for key, value in task.value:
                if key.value in _BLOCKS and isinstance(value, yaml.SequenceNode):
                    self._tasks(source, value, scope)
                elif isinstance(key, yaml.ScalarNode):
                    self._action(source, key, value, scope)

    def _task(self, source: SourceText, node: yaml.MappingNode, scope: _Scope) -> Task:
        return Task(source, node, scope.collections, (*scope.libraries, self.cwd / "library"))

    def _action(self, source: SourceText, key: yaml.ScalarNode, value: yaml.Node, scope: _Scope) -> None:
        if _FQCN.fullmatch(key.value):
            self._collection(source, key.value, source.line(key.start_mark))
            self._idle_option(source, key.value, value)
        action = nodes.action(key.value)
        if action in _ROLE_ACTIONS:
            self._included_role(source, value, nodes.argument(value, "name") or nodes.argument(value, "role"), scope)
        elif action in _TASKS_ACTIONS:
            self._included_tasks(source, value, scope)

    def _idle_option(self, source: SourceText, module: str, arguments: yaml.Node) -> None:
        """Warn about `server_side_apply` without `apply`, which the module ignores."""
        if module not in _K8S or not isinstance(arguments, yaml.MappingNode) or "module_defaults" in source.text:
            return
        option = next((key for key, _ in arguments.value if key.value == "server_side_apply"), None)
        apply = dict(nodes.pairs(arguments)).get("apply")
        if option is not None and (apply is None or tree.plain(apply) is False):
            what = f"server_side_apply: {module} ignores this without `apply: true`, and patches instead; add it"
            self._warn(source.file, source.line(option.start_mark), what)

    def _collection(self, source: SourceText, module: str, line: int) -> None:
        name = ".".join(module.split(".")[:2])
        if name in _BUILT_IN or self.collections is None or name in self.collections:
            return
        self.collections.add(name)
        if paths.find_collection(name, self.search_path).path is None:
            self._warn(source.file, line, missing_collection(module, name, self.search_path))

    def _argument_specs(self, source: SourceText, root: yaml.MappingNode) -> None:
        specs = dict(nodes.pairs(root)).get("argument_specs")
        if not isinstance(specs, yaml.MappingNode):
            self._wrong(source, specs or root, "argument_specs: a mapping of entry points such as main")
            return
        for _, entry in nodes.pairs(specs):
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
        tree.report_unreadable(source, roots[0], self.problems)
        return source, roots[0]

    def _old_names(self, path: Path) -> None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return  # a binary template; `_parse` reports unreadable YAML files
        for number, line in enumerate(lines, start=1):
            match = _OLD_META.search(line.split("#", 1)[0] if path.suffix in _SUFFIXES else line)
            if match:
                message = f"{match[0]} was removed from the SDK: use ansible_operator_meta.{match[1]}"
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


def missing_collection(plugin: str, collection: str, search_path: SearchPath) -> str:
    """Return the warning about a collection that is not installed, of which a file names a plugin."""
    searched = ", ".join(map(str, paths.find_collection(collection, search_path).searched))
    return (
        f"{plugin}: collection {collection} not found; add it to requirements.yml and run "
        f"`ansible-galaxy collection install -r requirements.yml`; searched {searched}"
    )


def _main(folder: Path) -> Path | None:
    """Return the file that Ansible reads first in a role's folder."""
    candidates = (folder / name for name in ("main.yml", "main.yaml", "main.json", "main"))
    return next((path for path in candidates if path.exists()), None)


def _files(folder: Path, pattern: str = "**/*") -> Iterator[Path]:
    yield from sorted(path for path in folder.glob(pattern) if path.suffix in _SUFFIXES and path.is_file())


def _collections_of_role(role: Path) -> tuple[str, ...]:
    """Return the collections in which a role's short names are searched: its own, and those of its `meta/main.yml`."""
    own: tuple[str, ...] = ()
    match role.parts:
        case (*_, "ansible_collections", namespace, collection, "roles", _):
            own = (f"{namespace}.{collection}",)
    meta = _main(role / "meta")
    try:
        root = yaml.compose(meta.read_text(encoding="utf-8"), Loader=yaml.SafeLoader) if meta else None
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return own  # the check of this file reports the error
    return own + nodes.texts(dict(nodes.pairs(root)).get("collections"))
