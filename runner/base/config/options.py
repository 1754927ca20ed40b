"""Declaration of options: flag, environment variables, default and help."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from runner.base.config import option_values as parse

T = TypeVar("T")

PREFIX = "ANSIBLE_OPERATOR_"
RUNS, ANSIBLE, CLUSTER, ENDPOINTS = "Runs", "Ansible", "Cluster", "Endpoints"
REPLICAS, LOGGING, DEPRECATED = "Replicas", "Logging", "Deprecated"
_DEPRECATED_VARIABLES = {"OPERATOR_NAME"}

REMOVED: dict[str, str] = {
    "health-conditions": "set healthConditions: false in the watches whose status is to lack them",
    "max-verbosity": "set maxVerbosity in each watch whose objects are to be limited",
    "metrics-cert-key": "name the key tls.key in the folder of --metrics-cert-path, as in a TLS Secret",
    "metrics-cert-name": "name the certificate tls.crt in the folder of --metrics-cert-path, as in a TLS Secret",
    "min-reconcile-period": "set minReconcilePeriod in each watch whose objects are to be limited",
    "reload": "use `ansible-operator dev`, which restarts the operator after an edit",
    "shards": "use more --max-concurrent-reconciles, or run roles in pods with `isolation: pod`",
}
"""Removed flags of `run`, without dashes in front, and the advice what to do instead."""


@dataclass(frozen=True, slots=True)
class Option:
    """Flag and environment variables of a setting."""

    group: str
    """Section of `--help`."""
    parse: Callable[[str], Any]
    """Raises ValueError with advice."""
    default: str | None
    """Text of the default, for `parse`; None: the default value is None."""
    help: str
    metavar: str
    """Placeholder of the value in help; empty for booleans."""
    other_variable: str
    """Variable that is read if `ANSIBLE_OPERATOR_<FLAG>` is not set."""
    flag: str
    field: str = ""
    """Field of `Settings` that the flag sets; empty for flags without one."""
    deprecated: str = ""
    """What to do instead; use of the flag is a warning."""

    @property
    def dest(self) -> str:
        """The flag's attribute in the parsed command line."""
        return self.flag.replace("-", "_")

    @property
    def variable(self) -> str:
        """The flag's environment variable."""
        return PREFIX + self.dest.upper()

    @property
    def is_boolean(self) -> bool:
        """True if the flag needs no value."""
        return self.parse is parse.boolean

    @property
    def is_repeatable(self) -> bool:
        """True if the values of several occurrences are joined."""
        return self.parse is parse.namespaces

    @property
    def other_is_deprecated(self) -> bool:
        """True if the other variable is deprecated."""
        return self.other_variable in _DEPRECATED_VARIABLES


def option(
    group: str,
    convert: Callable[[str], T],
    default: str | None,
    text: str,
    metavar: str = "",
    variable: str = "",
    flag: str = "",
) -> T:
    """Declare a field of `Settings` that a flag sets; by default the flag is the field's name with dashes."""
    declared: Any = field(metadata={"option": Option(group, convert, default, text, metavar, variable, flag)})
    return cast("T", declared)


def flag(group: str, name: str, convert: Callable[[str], Any], text: str, metavar: str = "") -> Option:
    """Declare a flag that sets no field of its own."""
    return Option(group, convert, "false" if convert is parse.boolean else "", text, metavar, "", name)


def alias(group: str, name: str, of: str, convert: Callable[[str], Any], metavar: str = "") -> Option:
    """Declare another flag of the field `of`."""
    return Option(group, convert, None, f"alias of --{of.replace('_', '-')}", metavar, "", name, of)


def deprecated(declared: Option, advice: str) -> Option:
    """Mark a flag as deprecated; using it logs the advice."""
    return replace(declared, group=DEPRECATED, help=advice, deprecated=advice)


def removed_flags(arguments: Iterable[str]) -> list[str]:
    """Return an error for each removed flag of a command line."""
    flags = dict.fromkeys(argument.partition("=")[0] for argument in arguments)
    return [f"--{name} was removed: {advice}" for name, advice in REMOVED.items() if f"--{name}" in flags]


def removed_variables(environ: Mapping[str, str]) -> list[str]:
    """Return an error for each variable that sets a removed flag."""
    variables = {PREFIX + name.replace("-", "_").upper(): name for name in REMOVED}
    return [
        f"environment variable {variable}: --{name} was removed: {REMOVED[name]}"
        for variable, name in variables.items()
        if environ.get(variable)
    ]
