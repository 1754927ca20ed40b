"""Cache of compiled Jinja templates in the server, so that runs do not parse and compile the same templates.

A run notes the templates that it compiled, with everything that determines the code; the next server precompiles them.
Before, while no run waits, a server compiles those that the files of the watched roles contain; see `server.ahead`.
The code depends on three things: the text, the options of the environment, and the arguments that filters and tests
require. The run compares these before it uses code, and looks up filters and tests at the same moment as a compilation.
Since ansible-core 2.19 nothing is computed during compilation. Before, Jinja computes filters and tests of constants;
such templates are not precompiled. `install` and `precompile` must be called only where Ansible is loaded.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any, TypeAlias

from jinja2 import nodes
from jinja2.environment import TemplateExpression
from jinja2.exceptions import TemplateSyntaxError
from jinja2.utils import _PassArg

from runner.engines.warm import versions

_LONGEST = 4096
"""Maximum characters of a template in the cache."""
MOST = 1000
"""Maximum number of templates that a run notes, and that a server compiles from files."""

_OPTIONS = (
    "block_start_string",
    "block_end_string",
    "variable_start_string",
    "variable_end_string",
    "comment_start_string",
    "comment_end_string",
    "line_statement_prefix",
    "line_comment_prefix",
    "trim_blocks",
    "lstrip_blocks",
    "newline_sequence",
    "keep_trailing_newline",
)
_DEEP = 600
"""Depth of nested calls; Python's limit is 1000."""

Key: TypeAlias = tuple[str, bool, bool | None]
"""The text; True for an expression; whether backslashes in it are escaped, None if unset."""
_Uses: TypeAlias = tuple[tuple[str, str, str], ...]
"""Filters and tests of a template: the kind, the name, and the argument that it requires first."""


@dataclass(frozen=True, slots=True)
class _Compiled:
    code: CodeType
    uses: _Uses


@dataclass(frozen=True, slots=True)
class CompiledTemplates:
    """Precompiled templates."""

    state: tuple[object, ...] = ()
    """Options of the environment in which they were compiled."""
    known: dict[Key, _Compiled] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    """Why templates could not be precompiled, except invalid ones; each run compiles them itself."""


def precompile(noted: Iterable[str]) -> CompiledTemplates:
    """Compile the templates of runs' notes. Skip invalid notes and templates, which the runs report."""
    environment: Any = versions.template_environments()[0]()
    compiled, failures = CompiledTemplates(_state(environment)), list[str]()
    for note in sorted(noted):
        try:
            key, uses = _parse(note)
        except (KeyError, TypeError, ValueError):
            continue  # not written by a run of this version
        try:
            _add(compiled, environment, key, uses)
        except TemplateSyntaxError:
            continue
        except Exception as error:  # noqa: BLE001 - a defect, which the server reports
            failures.append(f"{type(error).__name__}: {error}")
    problems = (f"{len(failures)} templates cannot be precompiled: {failures[0]}",) if failures else ()
    return replace(compiled, problems=problems)


def _add(compiled: CompiledTemplates, environment: Any, key: Key, uses: _Uses) -> None:
    """Compile a template, and add it unless Jinja would compute a part of it."""
    called: list[str] = []
    environment.filters, environment.tests = (_placeholders(uses, kind, called) for kind in ("filter", "test"))
    code = _compile(environment, *key)
    if versions.TAGGED or not called:
        compiled.known[key] = _Compiled(code, uses)


def key_of_text(text: str, *, is_condition: bool = False, is_file: bool = False) -> Key | None:
    """Return the key that a run uses for a value, a condition or a template's file; None if it is not cached."""
    if len(text) > _LONGEST:
        return None
    if not versions.TAGGED:
        return (f"{{% if {text} %}} True {{% else %}} False {{% endif %}}" if is_condition else text), False, None
    return text, is_condition, not (is_condition or is_file)


def compile_text(compiled: CompiledTemplates, plugins: Any, environment: Any, key: Key) -> None:
    """Compile a template that no run has noted, and add it.

    `plugins` is an environment with the filters and tests of a run. Those of `environment` are replaced. Raises any
    exception that plugins or templates can raise.
    """
    uses = _uses(plugins, "{{" + key[0] + "}}" if key[1] else key[0])
    if uses is not None:
        _add(compiled, environment, key, uses)


def _parse(note: str) -> tuple[Key, _Uses]:
    """Read the note of a run. Raises KeyError, TypeError or ValueError."""
    text, is_expression, escapes, uses = json.loads(note)
    if not isinstance(text, str) or not isinstance(is_expression, bool) or not isinstance(escapes, bool | None):
        raise TypeError(note)
    for _, _, passes in uses:
        if passes:
            _PassArg[passes]
    return (text, is_expression, escapes), tuple((str(kind), str(name), passes) for kind, name, passes in uses)


def _compile(environment: Any, text: str, is_expression: bool, escapes: bool | None) -> CodeType:  # noqa: FBT001 - a key
    codes: list[CodeType] = []

    class Kept(type(environment).template_class):  # type: ignore[misc]  # ansible-core has no types
        @classmethod
        def from_code(cls, _environment: Any, code: CodeType, *_: Any) -> Any:
            codes.append(code)

    environment.template_class = Kept
    make = environment.compile_expression if is_expression else environment.from_string
    if escapes is None:
        make(text)
    else:
        with versions.template_bits()._TemplateCompileContext(escape_backslashes=escapes):
            make(text)
    return codes[0]


def _placeholders(uses: Iterable[tuple[str, str, str]], kind: str, called: list[str]) -> dict[str, Any]:
    return {name: _placeholder(name, passes, called) for of_kind, name, passes in uses if of_kind == kind}


def _placeholder(name: str, passes: str, called: list[str]) -> Callable[..., Any]:
    def plugin(*_: Any, **__: Any) -> Any:
        called.append(name)
        raise nodes.Impossible  # nothing is computed during precompilation

    if passes:
        plugin.jinja_pass_arg = _PassArg[passes]  # type: ignore[attr-defined]
    return plugin


def _passes(plugin: Any) -> str:
    """Return what Jinja's code passes to a filter or test first: empty, or the name of a `_PassArg`."""
    pass_arg = _PassArg.from_obj(plugin)
    return pass_arg.name if pass_arg else ""


def _state(environment: Any) -> tuple[object, ...]:
    """Return the options that determine the code in addition to the template."""
    return (
        type(environment),
        environment.finalize,
        environment.undefined,
        environment.optimized,
        environment.autoescape,
        environment.is_async,
        tuple(environment.extensions),
        *(getattr(environment, name) for name in _OPTIONS),
    )


@dataclass(slots=True)
class Templates:
    """Templates of one run, in the playbook's process and its workers."""

    precompiled: CompiledTemplates
    noted: dict[Key, str] = field(default_factory=dict)
    """Templates that this process has compiled."""

    def install(self) -> None:
        """Install the cache into Ansible."""
        environment_class = versions.template_environments()[0]
        plain = _state(environment_class())
        compile_any, compile_expression = environment_class.compile, environment_class.compile_expression

        def compiled(environment: Any, source: Any, *args: Any, **options: Any) -> Any:
            key = None if args or options else _key_of(environment, source, plain)
            if key is None:
                return compile_any(environment, source, *args, **options)
            if known := self._known(environment, key, plain):
                return known
            code = compile_any(environment, source)
            self._note(environment, key, source)
            return code

        def expression(environment: Any, source: Any, *args: Any, **options: Any) -> Any:
            key = _key_of(environment, source, plain, is_expression=True)
            if key and (known := self._known(environment, key, plain)):
                template = environment.template_class.from_code(
                    environment, known, environment.make_globals(None), None
                )
                return TemplateExpression(template, *args, **options)
            result = compile_expression(environment, source, *args, **options)
            if key:
                self._note(environment, key, "{{" + source + "}}")
            return result

        environment_class.compile = compiled
        if versions.TAGGED:  # expressions are templates before
            environment_class.compile_expression = expression

    def _known(self, environment: Any, key: Key, state: tuple[object, ...]) -> CodeType | None:
        compiled = self.precompiled.known.get(key)
        if compiled is None or state != self.precompiled.state:
            return None
        for kind, name, passes in compiled.uses:
            try:
                plugin = (environment.filters if kind == "filter" else environment.tests).get(name)
            except TemplateSyntaxError:  # before 2.19 there is no such plugin
                return None
            if plugin is None or _passes(plugin) != passes:
                return None
        return compiled.code

    def _note(self, environment: Any, key: Key, template: str) -> None:
        if len(self.noted) >= MOST or not _may_be_stored(key[0]):
            return
        with contextlib.suppress(TemplateSyntaxError):  # an expression can be invalid between braces
            uses = _uses(environment, template)
            if uses is not None:
                self.noted[key] = json.dumps([*key, uses])


def _key_of(environment: Any, source: Any, plain: tuple[object, ...], *, is_expression: bool = False) -> Key | None:
    """Return the key of a template; None for unusual options, which are not cached."""
    if not isinstance(source, str) or len(source) > _LONGEST or _state(environment) != plain or _is_deep():
        return None
    if not versions.TAGGED:
        return str(source), is_expression, None
    context = versions.template_bits()._TemplateCompileContext.current(optional=True)
    return source, is_expression, context.escape_backslashes if context else None


def _is_deep() -> bool:
    """Return True for deeply nested calls. An endless recursion must end at the same depth as without the cache."""
    try:
        sys._getframe(_DEEP)
    except ValueError:
        return False
    return True


def _may_be_stored(text: str) -> bool:
    """Return True if a text may be stored beyond the run: decrypted values must not be."""
    if not versions.TAGGED:
        return not versions.decrypts()
    from ansible._internal._datatag import _tags  # noqa: PLC0415 - since 2.19
    from ansible.module_utils._internal._datatag import AnsibleTagHelper  # noqa: PLC0415 - since 2.19

    return bool(AnsibleTagHelper.tag_types(text) <= {_tags.Origin, _tags.TrustedAsTemplate})


def _uses(environment: Any, source: str) -> _Uses | None:
    """Return the filters and tests of a compiled template; None if it must not be precompiled."""
    tree = environment.parse(source)
    if any(True for _ in tree.find_all((nodes.EvalContextModifier, nodes.ScopedEvalContextModifier))):
        return None  # the options of its own compilation can be computed
    uses: dict[tuple[str, str], str] = {}
    for node in tree.find_all((nodes.Filter, nodes.Test)):
        kind, table = ("filter", environment.filters) if isinstance(node, nodes.Filter) else ("test", environment.tests)
        plugin = table.get(node.name)
        if plugin is None:
            return None
        uses[kind, node.name] = _passes(plugin)
    return tuple((kind, name, passes) for (kind, name), passes in uses.items())
