"""Values of variables without work that has no effect. Since ansible-core 2.19.

Templates check for each value whether it is a template, needs a wrapper, or is observed. Most values are plain text,
and are not observed. Each task also gets a copy of all variables that is marked as deprecated. Here the marked copy of
a text or number is made once. Must be imported only where Ansible is loaded.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ansible.vars import manager

from runner.engines.warm import versions

_MOST = 4096
"""Maximum number of marked values that are kept."""
_OF_PYTHON = (type(None), bool, int, float, str, bytes)


def install() -> None:
    """Install shorter ways for values that need nothing."""
    if not versions.TAGGED:
        return
    _hook_wrapping()
    _hook_templating()
    _hook_access()
    manager._DEPRECATE_VARS = _Marker(manager._DEPRECATE_VARS)


def _hook_wrapping() -> None:
    """Return a value of a known type that needs no wrapper, without a handler of errors."""
    from ansible._internal._templating import _lazy_containers as containers  # noqa: PLC0415 - since 2.19

    mixin = containers._AnsibleLazyTemplateMixin
    wrap: Callable[..., Any] = mixin._try_create
    known, wrapped = containers._KNOWN_TYPES, mixin._dispatch_types

    @functools.wraps(wrap)
    def try_create(item: Any, *args: Any, **options: Any) -> Any:
        kind: Any = type(item)
        if kind in known and kind not in wrapped:
            return item
        return wrap(item, *args, **options)

    mixin._try_create = staticmethod(try_create)


def _hook_templating() -> None:
    """Return a text within a template that is none itself, and wrap a container, without a context for templates."""
    from ansible._internal._templating import _engine as engines  # noqa: PLC0415 - since 2.19
    from ansible._internal._templating._lazy_containers import _AnsibleLazyTemplateMixin as Mixin  # noqa: PLC0415 - same

    template: Callable[..., Any] = engines.TemplateEngine.template
    usual, default, usual_lazy = _defaults(template, "options", "mode", "lazy_options")
    current, is_possible = engines.TemplateContext.current, engines.is_possibly_template
    texts, containers = versions.types_of(str), versions.types_of(dict) | versions.types_of(list)
    containers -= engines._type_transform_mapping.keys()

    @functools.wraps(template)
    def templated(
        self: Any,
        variable: Any,
        *,
        options: Any = usual,
        mode: Any = default,
        lazy_options: Any = usual_lazy,
    ) -> Any:
        kind: Any = type(variable)
        context = current(optional=True) if mode is default else None
        if context is not None:
            if kind in texts:
                if not (lazy_options.template and is_possible(variable, options.overrides)):
                    return variable
            elif kind in containers and context.templar is self:
                return Mixin._try_create(variable, lazy_options)
        return template(self, variable, options=options, mode=mode, lazy_options=lazy_options)

    engines.TemplateEngine.template = templated


def _defaults(function: Callable[..., Any], *names: str) -> list[Any]:
    """Return the defaults of a function's arguments. Raises KeyError for an unknown argument."""
    parameters = inspect.signature(function).parameters
    return [parameters[name].default for name in names]


def _hook_access() -> None:
    """Skip the notification of contexts about an access if none of them observes the value."""
    from ansible._internal._templating._access import AnsibleAccessContext as Access  # noqa: PLC0415 - since 2.19
    from ansible.module_utils._internal import _datatag  # noqa: PLC0415 - as above

    access: Callable[..., Any] = Access.access
    tags_of = _datatag._try_get_internal_tags_mapping

    @functools.wraps(access)
    def accessed(self: Any, value: Any) -> None:
        kind: Any = type(value)
        tags = tags_of(value)
        for context in self._notify_contexts:
            types = context._type_interest
            if kind in types or (tags and not types.isdisjoint(tags)):
                access(self, value)
                return

    Access.access = accessed


class _Marker:
    """A tag that is applied to an equal text or number only once."""

    def __init__(self, tag: Any) -> None:
        self._tag = tag
        self._kinds = frozenset((*_OF_PYTHON, *versions.variable_types()[0]))
        self._known: dict[int, tuple[Any, Any]] = {}
        """Values and their marked copies. With the value, no other gets its identity."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tag, name)

    def tag(self, value: Any) -> Any:
        """Return a marked copy of a value."""
        kind: Any = type(value)
        if kind not in self._kinds:
            return self._tag.tag(value)
        entry = self._known.get(id(value))
        if entry is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            entry = self._known[id(value)] = value, self._tag.tag(value)
        return entry[1]
