"""Reads settings from flags and environment.

Precedence: flag, `ANSIBLE_OPERATOR_<FLAG>`, the option's other variable, default. An invalid flag is an error. An
invalid variable is a warning, and the next source applies. Pure: the environment is an argument.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from runner.agent import machine
from runner.base.config import option_values
from runner.base.config.options import Option, removed_variables
from runner.base.config.settings import DEVELOPMENT_LOG, OPTIONS, Settings, is_override
from runner.values.errors import ConfigError


class LoadedSettings(NamedTuple):
    """Settings, and warnings about their sources."""

    settings: Settings
    warnings: tuple[str, ...]


def load(namespace: Namespace, environ: Mapping[str, str]) -> LoadedSettings:
    """Return the settings. Raises ConfigError with a line for each invalid flag.

    `namespace` contains the list of texts of each flag that was given.
    """
    reader = _Reader(namespace, environ)
    by_flag = {option.flag: reader.read(option) for option in OPTIONS if not reader.is_alias(option)}
    values = {option.field: by_flag[option.flag] for option in OPTIONS if option.field and option.flag in by_flag}
    reader.errors += [*removed_variables(environ), *_conflicts(values)]
    debug_logs = reader.environment(("ANSIBLE_DEBUG_LOGS",), option_values.boolean, default=False)
    verbosity = reader.environment(("ANSIBLE_VERBOSITY",), option_values.verbosity, default=0)
    if reader.errors:
        raise ConfigError("\n".join(dict.fromkeys(reader.errors)))
    if by_flag[DEVELOPMENT_LOG.flag]:
        values |= {
            field: value
            for field, value in (("log_level", "debug"), ("log_format", "console"))
            if not reader.is_given(field)
        }
    if values["run_memory_limit"] is None:
        values["run_memory_limit"] = _default_memory_limit()
    settings = Settings(
        **values,
        cpus=machine.usable_cpus(Path("/")),
        ansible_debug_logs=debug_logs,
        raised_verbosity=verbosity > 0,
        pod_name=environ.get("POD_NAME", ""),
        overrides=MappingProxyType({name: value for name, value in environ.items() if is_override(name)}),
    )
    return LoadedSettings(settings, tuple(dict.fromkeys(reader.warnings)))


def _conflicts(values: Mapping[str, Any]) -> list[str]:
    problems = [
        f"--{name} requires --metrics-secure"
        for name in ("metrics-require-rbac", "metrics-cert-path")
        if values[name.replace("-", "_")] and not values["metrics_secure"]
    ]
    if not values["leader_elect"]:
        return problems
    if not values["leader_election_id"]:
        problems.append(
            "--leader-elect requires --leader-election-id: use a name that no other operator in the namespace has"
        )
    lease, renew = values["leader_elect_lease_duration"], values["leader_elect_renew_deadline"]
    if not 0 < renew < lease:
        problems.append(
            "--leader-elect-renew-deadline must be more than 0s and less than --leader-elect-lease-duration: a replica "
            "that loses its Lease ends its runs in the time between the two"
        )
    return problems


def _default_memory_limit() -> int:
    """Return three quarters of the memory in bytes, so that a run leaves the rest to the operator; 0: no limit."""
    total = machine.total_memory(Path("/"))
    return total // 4 * 3 if total < sys.maxsize else 0


class _Reader:
    """Finds the value of each option, and collects errors and warnings."""

    def __init__(self, namespace: Namespace, environ: Mapping[str, str]) -> None:
        self._flags: Mapping[str, list[str]] = {
            name: value for name, value in vars(namespace).items() if isinstance(value, list)
        }
        self._environ = environ
        self.errors: list[str] = []
        self.warnings: list[str] = []

    def is_alias(self, option: Option) -> bool:
        return bool(option.field) and _spellings(option)[0] is not option

    def is_given(self, field: str) -> bool:
        """Return whether a flag or a variable sets the field."""
        return any(self._has_source(option) for option in OPTIONS if option.field == field)

    def read(self, option: Option) -> Any:
        default = None if option.default is None else option.parse(option.default)
        spellings = _spellings(option)
        for spelling in spellings:
            if spelling.deprecated and self._has_source(spelling):
                self.warnings.append(f"--{spelling.flag} is deprecated: {spelling.deprecated}")
        by_flag = [spelling for spelling in spellings if spelling.dest in self._flags]
        for extra in by_flag[1:]:
            self.warnings.append(f"--{extra.flag} is ignored: --{by_flag[0].flag} takes precedence")
        if by_flag:
            return self._from_flag(option, by_flag[0], default)
        variables = (*(spelling.variable for spelling in spellings), option.other_variable)
        return self._from_environment(option, tuple(filter(None, variables)), default)

    def environment(self, variables: tuple[str, ...], parse: Callable[[str], Any], *, default: Any) -> Any:
        """Return the value of the first variable that is not empty and valid, or the default."""
        for variable in variables:
            text = self._environ.get(variable, "")
            if not text:
                continue
            try:
                return parse(text)
            except ValueError as error:
                self.warnings.append(f"environment variable {variable} is ignored: {error}")
        return default

    def _has_source(self, option: Option) -> bool:
        variables = (option.variable, option.other_variable)
        return option.dest in self._flags or any(self._environ.get(variable) for variable in variables)

    def _from_flag(self, option: Option, spelling: Option, default: Any) -> Any:
        texts = self._flags[spelling.dest]
        try:
            parsed = [spelling.parse(text) for text in texts]
        except ValueError as error:
            self.errors.append(f"--{spelling.flag}: {error}")
            return default
        return tuple(dict.fromkeys(item for part in parsed for item in part)) if option.is_repeatable else parsed[-1]

    def _from_environment(self, option: Option, variables: tuple[str, ...], default: Any) -> Any:
        unset = object()
        value = self.environment(variables, option.parse, default=unset)
        if value is unset:
            return default
        source = next(variable for variable in variables if self._environ.get(variable))
        if source == option.other_variable and option.other_is_deprecated:
            self.warnings.append(f"environment variable {source} is deprecated: use --{option.flag}")
        return value


def _spellings(option: Option) -> list[Option]:
    """Return the option and its aliases, in order of precedence."""
    return [spelling for spelling in OPTIONS if spelling is option or (option.field and spelling.field == option.field)]
