"""Templates of roles and playbooks: their syntax, and the plugins, files and variables that they name.

Reads files and executes nothing. A construct that this module cannot read is not reported.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import yaml
from jinja2 import Environment, TemplateSyntaxError, nodes

from runner.base.config.paths import ImageFiles, SearchPath
from runner.base.yamlfile.tree import Problem, Problems
from runner.compatibility import content_nodes, task_fields
from runner.compatibility.validation import Task, ValidationResult
from runner.values.errors import meant, shortened

Kind: TypeAlias = Literal["module", "filter", "test", "lookup"]

_ENVIRONMENT = Environment(autoescape=False, extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"])  # noqa: S701 - it parses only
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEMPLATE = re.compile(r"\{[{%#]")
_DELIMITERS = re.compile(r"\b(?:variable|block|comment)_(?:start|end)_string\b|^#jinja2:", re.MULTILINE)
_LOOKUPS = {"lookup", "query", "q"}
_FOLDERS = {"template": "templates", "file": "files", "copy": "files", "include_vars": "vars"}
"""Folders of a role in which lookups and modules search files."""
_OF_ROLE = {"tasks", "handlers", "templates", "files", "vars", "defaults", "meta"}
_YAML = {".yml", ".yaml"}
_SHOWN = 60
_LARGEST = 1 << 20


class Use(NamedTuple):
    """A plugin that a file names."""

    kind: Kind
    name: str
    file: str
    line: int
    collections: tuple[str, ...] = ()
    """Collections of short names."""
    libraries: tuple[Path, ...] = ()
    """Folders of the project's own modules."""


@dataclass(slots=True)
class Scan:
    """Names in the project's files."""

    uses: list[Use] = field(default_factory=list)
    variables: dict[str, tuple[str, int]] = field(default_factory=dict)
    """File and line of the first read of each variable that its template does not define."""
    roots: set[Path] = field(default_factory=set)
    """Folders of roles, and of playbooks and task files."""
    texts: list[str] = field(default_factory=list)


def scan(result: ValidationResult, cwd: Path, places: SearchPath, problems: Problems) -> Scan:
    """Read the project's files; add errors of syntax, and warnings about missing files, to `problems`."""
    return _Scanner(cwd, places.image, problems, Scan()).scan(result, places)


@dataclass(slots=True)
class _Scanner:
    cwd: Path
    image: ImageFiles
    problems: Problems
    names: Scan
    templates: set[Path] = field(default_factory=set)

    def scan(self, result: ValidationResult, places: SearchPath) -> Scan:
        files = [path for path in result.files if not any(map(path.is_relative_to, places.collections))]
        for path in files:
            self.names.roots |= {path.parent, *(parent.parent for parent in path.parents if parent.name in _OF_ROLE)}
            with contextlib.suppress(OSError, UnicodeDecodeError):  # a binary template; YAML files are checked before
                self.names.texts.append(path.read_text(encoding="utf-8") if path.stat().st_size <= _LARGEST else "")
        shown = {self._shown(path) for path in files}
        for task in result.tasks:
            if task.source.file in shown and not task.is_role:
                self._task(task)
        has_own_delimiters = any(map(_DELIMITERS.search, self.names.texts))
        for path in files:
            below = path.relative_to(self.cwd).parts if path.is_relative_to(self.cwd) else path.parts
            if "templates" in below:
                if not has_own_delimiters and (path.suffix == ".j2" or path in self.templates):
                    self._text(path.read_text(encoding="utf-8", errors="replace"), self._shown(path), 1)
            elif path.suffix in _YAML and "meta" not in below:
                with contextlib.suppress(yaml.YAMLError, UnicodeDecodeError):  # reported before
                    for root in yaml.compose_all(path.read_text(encoding="utf-8-sig"), Loader=_LOADER):
                        self._node(root, self._shown(path))
        return self.names

    def _task(self, task: Task) -> None:
        for name, key, arguments in task_fields.actions(task):
            if "{{" in name:
                continue
            file, line = task.source.file, task.source.line(key.start_mark)
            self.names.uses.append(Use("module", name, file, line, task.collections, task.libraries))
            action = content_nodes.action(name)
            given = functools.partial(content_nodes.argument, arguments)
            if action == "include_vars":
                self._file("include_vars", given("file"), file, line)
            elif action == "template" or (action == "copy" and given("remote_src").lower() in {"", "false", "no"}):
                self._file(action, given("src"), file, line)
            elif action in {"k8s", "kubernetes.core.k8s"}:
                self._file("template", given("template"), file, line)
        for _, condition in task_fields.conditions(task):
            if condition.tag == "tag:yaml.org,2002:str" and "{{" not in condition.value:
                self._text("{{" + condition.value + "}}", task.source.file, _first_line(condition), condition.value)

    def _node(self, root: yaml.Node | None, file: str) -> None:
        """Check each text with a template below a node of YAML."""
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if node is None or not node.tag.startswith("tag:"):
                continue  # `!unsafe` and `!vault` contain no template
            if isinstance(node, yaml.ScalarNode):
                if _TEMPLATE.search(node.value):
                    self._text(node.value, file, _first_line(node))
            elif isinstance(node, yaml.SequenceNode):
                waiting += reversed(node.value)
            else:
                for key, value in reversed(node.value):
                    if isinstance(key, yaml.MappingNode):
                        message = "a value that begins with {{ is a mapping: put it in quotes"
                        self._add(self.problems.errors, file, key.start_mark.line + 1, message)
                    else:
                        waiting += [value, key]

    def _text(self, text: str, file: str, line: int, shown: str = "") -> None:
        """Check a template that begins in a line; `shown` replaces it in messages."""
        try:
            tree = _ENVIRONMENT.parse(text)
        except TemplateSyntaxError as error:
            lines = (shown or text).splitlines()
            wrong = lines[min(error.lineno, len(lines)) - 1].strip() if lines else ""
            message = f"invalid template: {error.message}: {shortened(wrong, _SHOWN)}"
            self._add(self.problems.errors, file, line + error.lineno - 1, message)
            return
        for plugin in tree.find_all((nodes.Filter, nodes.Test)):
            kind: Kind = "filter" if isinstance(plugin, nodes.Filter) else "test"
            if plugin.name not in (_ENVIRONMENT.filters if kind == "filter" else _ENVIRONMENT.tests):
                self.names.uses.append(Use(kind, plugin.name, file, line + plugin.lineno - 1))
        for call in tree.find_all(nodes.Call):
            self._lookup(call, file, line + call.lineno - 1)
        names = list(tree.find_all(nodes.Name))
        own = {name.name for name in names if name.ctx != "load"}
        for name in names:
            if name.name not in own:
                self.names.variables.setdefault(name.name, (file, line + name.lineno - 1))

    def _lookup(self, call: nodes.Call, file: str, line: int) -> None:
        if not isinstance(call.node, nodes.Name) or call.node.name not in _LOOKUPS:
            return
        words = [argument.value if isinstance(argument, nodes.Const) else None for argument in call.args]
        if not words or not isinstance(words[0], str):
            return
        self.names.uses.append(Use("lookup", words[0], file, line))
        has_errors = call.dyn_kwargs or any(argument.key == "errors" for argument in call.kwargs)
        lookup = content_nodes.action(words[0])
        for name in words[1:] if lookup in {"template", "file"} and not has_errors else ():
            self._file(lookup, str(name or ""), file, line)

    def _file(self, reader: str, name: str, file: str, line: int) -> None:
        """Warn if no role and no playbook has a file with a literal name."""
        if not name or _TEMPLATE.search(name) or name.startswith(("/", "~")):
            return
        folder = _FOLDERS[reader]
        roots = sorted(self.names.roots)
        candidates = [path for root in roots for path in (root / folder / name, root / name)]
        candidates += [path for root in roots for path in self.image.beside(root, f"{folder}/{name}")]
        path = next((path for path in candidates if path.exists()), None)
        if path is not None:
            self.templates.add(path)
            return
        beside = [str(path.relative_to(root / folder)) for root in roots for path in _files(root / folder)]
        own = [root for root in roots if (self.cwd / file).is_relative_to(root) and root.name not in _OF_ROLE]
        searched = f"; searched {self._shown(own[0] / folder)}" if own else ""
        what = "template" if folder == "templates" else "file"
        self._add(self.problems.warnings, file, line, f"{what} {name!r} not found{meant(name, beside) or searched}")

    @staticmethod
    def _add(level: list[Problem], file: str, line: int, message: str) -> None:
        level.append(Problem(file, line, "", message))

    def _shown(self, path: Path) -> str:
        return os.path.relpath(path, self.cwd) if path.is_relative_to(self.cwd) else str(path)


def _first_line(node: yaml.ScalarNode) -> int:
    """Return the line in which the text of a scalar begins."""
    return int(node.start_mark.line) + (2 if node.style in {"|", ">"} else 1)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())
