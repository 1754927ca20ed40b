"""What the operator was told, from flags and environment, as frozen values.

Owns: which source wins (flag, then `ANSIBLE_OPERATOR_<FLAG>`, then a variable of another name, then the default) and
what becomes of a value that cannot be used: given by flag it is an error, given by environment a warning
and the next best value. The table of what can be told is `options`. Pure: the environment is passed in.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from runner.config import cpus, memory, option_values
from runner.config.engine_names import EngineName
from runner.config.options import OPTIONS, Option
from runner.errors import ConfigError
from runner.objects import GVK

_VERBOSITY = "ANSIBLE_VERBOSITY"
_WORKERS = "MAX_CONCURRENT_RECONCILES"
_OLD_WORKERS = "WORKER"


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of `run`. Durations are seconds. The flag of each field stands in `options` with its help."""

    watches_file: Path
    namespaces: tuple[str, ...]
    """Empty: all."""
    reload: bool
    reconcile_period: float
    """0: no periodic runs."""
    run_timeout: float
    """0: a run may take as long as it likes."""
    max_concurrent_reconciles: int | None
    """None: as many as there are CPUs."""
    max_concurrent_runs: int | None
    cpus: int
    """How many the process may use."""
    graceful_shutdown_timeout: float
    inject_owner_ref: bool
    health_conditions: bool
    runner_dir: Path
    runner_dir_limit: int
    """Bytes; 0: none."""
    ansible_verbosity: int
    ansible_roles_path: str
    ansible_collections_path: str
    ansible_args: str
    engine: EngineName
    warm_without: frozenset[str]
    run_memory_limit: int
    """Bytes; 0: none."""
    ansible_log_events: Literal["tasks", "everything", "nothing"]
    ansible_debug_logs: bool
    """Print the whole output of a run when it ends."""
    kubeconfig: str | None
    context: str | None
    record_rbac: Path | None
    proxy_port: int
    health_probe_bind_address: str
    """`host:port`, `:port` or `0`."""
    metrics_bind_address: str
    ui_bind_address: str
    """`host:port` on loopback or `0`; empty: as it is usual here."""
    user_metrics_port: int | None
    """0: a free one. None: the usual one, or a free one where that is taken."""
    metrics_secure: bool
    metrics_cert_path: Path | None
    """None: a certificate is made."""
    metrics_cert_name: str
    metrics_cert_key: str
    metrics_require_rbac: bool
    leader_elect: bool
    shards: int
    """1: none."""
    leader_election_id: str
    leader_election_namespace: str
    leader_elect_lease_duration: float
    leader_elect_renew_deadline: float
    """Less than the lease's duration."""
    log_level: Literal["debug", "info", "warning", "error"]
    log_format: Literal["auto", "json", "console"]
    pod_name: str
    overrides: Mapping[str, str]
    """Variables of the environment that are about one kind."""

    def verbosity_for(self, gvk: GVK) -> int:
        """Return Ansible's verbosity for a kind."""
        return _override(self.overrides, (_VERBOSITY,), gvk, option_values.verbosity, self.ansible_verbosity).value

    def workers_for(self, gvk: GVK) -> int:
        """Return how many objects of a kind are worked on at once."""
        return self._workers(gvk).value

    def most_runs(self, kinds: Iterable[GVK]) -> int:
        """Return how many objects of these kinds together are worked on at once.

        Whoever asked for workers by number gets them.
        """
        if self.max_concurrent_runs is not None:
            return self.max_concurrent_runs
        workers = [self._workers(gvk) for gvk in kinds]
        by_number = self.max_concurrent_reconciles is not None
        return max(2 * self.cpus, sum(found.value for found in workers if by_number or found.given))

    def _workers(self, gvk: GVK) -> _Override:
        default = self.max_concurrent_reconciles or self.cpus
        return _override(self.overrides, (_WORKERS, _OLD_WORKERS), gvk, option_values.count, default)

    def warnings_for(self, kinds: Iterable[GVK]) -> tuple[str, ...]:
        """Return what is wrong with the variables about these kinds, a sentence each."""
        found: list[str] = []
        for gvk in kinds:
            found += _override(
                self.overrides, (_VERBOSITY,), gvk, option_values.verbosity, self.ansible_verbosity
            ).warnings
            found += self._workers(gvk).warnings
        return tuple(found)


class Loaded(NamedTuple):
    """Settings, and what was odd about what they came from, a sentence each."""

    settings: Settings
    warnings: tuple[str, ...]


def from_args(namespace: Namespace, environ: Mapping[str, str]) -> Loaded:
    """Fold flags and environment. A ConfigError names every flag that cannot be used, a line each.

    `namespace` holds, for each flag given, under its name with underscores, the list of its values as text.
    """
    reader = _Reader(namespace, environ)
    values = {option.name: reader.read(option) for option in OPTIONS if not option.sets}
    if values["metrics_require_rbac"] and not values["metrics_secure"]:
        reader.errors.append("--metrics-require-rbac needs --metrics-secure: give both, or neither")
    if values["metrics_cert_path"] and not values["metrics_secure"]:
        reader.errors.append("--metrics-cert-path needs --metrics-secure: give both, or neither")
    reader.errors += _replica_problems(values)
    debug_logs = reader.environment(("ANSIBLE_DEBUG_LOGS",), option_values.boolean, default=False)
    if reader.errors:
        raise ConfigError("\n".join(dict.fromkeys(reader.errors)))
    if values.pop("zap_devel"):
        values["log_level"] = values["log_level"] if reader.was_told("log-level") else "debug"
        values["log_format"] = values["log_format"] if reader.was_told("log-format") else "console"
    for unused in ("zap_stacktrace_level", "zap_time_encoding", "leader_elect_resource_lock", "enable_http2"):
        del values[unused]
    values |= {
        "watches_file": Path(values["watches_file"]),
        "runner_dir": Path(values["runner_dir"]).absolute(),
        "namespaces": values.pop("namespace"),
        "cpus": cpus.usable(Path("/")),
        "run_memory_limit": _memory_limit(values["run_memory_limit"]),
        "warm_without": values["warm_without"] or frozenset(),
        "kubeconfig": values["kubeconfig"] or None,
        "context": values["context"] or None,
        "record_rbac": Path(values["record_rbac"]).absolute() if values["record_rbac"] else None,
        "metrics_cert_path": Path(values["metrics_cert_path"]) if values["metrics_cert_path"] else None,
    }
    settings = Settings(
        **values,
        ansible_debug_logs=debug_logs,
        pod_name=environ.get("POD_NAME", ""),
        overrides=MappingProxyType({name: value for name, value in environ.items() if _about_a_kind(name)}),
    )
    return Loaded(settings, tuple(dict.fromkeys(reader.warnings)))


def _replica_problems(values: Mapping[str, Any]) -> list[str]:
    if not values["leader_elect"] and values["shards"] == 1:
        return []
    problems = []
    if not values["leader_election_id"]:
        flag = "--leader-elect" if values["shards"] == 1 else "--shards"
        problems.append(f"{flag} needs --leader-election-id: give a name that only this operator's replicas use")
    lease, renew = values["leader_elect_lease_duration"], values["leader_elect_renew_deadline"]
    if not 0 < renew < lease:
        problems.append(
            "--leader-elect-renew-deadline must be more than 0s and less than --leader-elect-lease-duration: what lies "
            "between them is the time in which runs are ended"
        )
    return problems


def _memory_limit(given: int | str) -> int:
    """Return bytes; without a limit of its own a run leaves the operator a quarter."""
    if isinstance(given, int):
        return given
    total = memory.total(Path("/"))
    return total // 4 * 3 if total < sys.maxsize else 0


class _Reader:
    """Finds each option's value, and gathers what was wrong on the way."""

    def __init__(self, namespace: Namespace, environ: Mapping[str, str]) -> None:
        self._flags: Mapping[str, list[str]] = {
            name: value for name, value in vars(namespace).items() if isinstance(value, list)
        }
        self._environ = environ
        self.errors: list[str] = []
        self.warnings: list[str] = []

    def was_told(self, flag: str) -> bool:
        """Whether anything but the default was given for a flag."""
        return any(self._given(option) for option in _names_of(flag))

    def read(self, option: Option) -> Any:
        """Return an option's value, from whichever of its names and sources comes first."""
        default = option.parse(option.default) if option.default else _nothing(option)
        spellings = _names_of(option.flag)
        for spelling in spellings:
            if spelling.deprecated and self._given(spelling):
                self.warnings.append(f"--{spelling.flag} is deprecated: {spelling.deprecated}")
        by_flag = [spelling for spelling in spellings if spelling.name in self._flags]
        for extra in by_flag[1:]:
            self.warnings.append(f"--{extra.flag} has no effect, since --{by_flag[0].flag} is given too")
        if by_flag:
            return self._from_flag(option, by_flag[0], default)
        variables = (*(spelling.variable for spelling in spellings), option.also)
        return self._from_environment(option, tuple(filter(None, variables)), default)

    def environment(self, variables: tuple[str, ...], parse: Callable[[str], Any], *, default: Any) -> Any:
        """Return the first of some variables that is set to anything, or the default."""
        for variable in variables:
            text = self._environ.get(variable, "")
            if not text:
                continue
            try:
                return parse(text)
            except ValueError as error:
                self.warnings.append(f"{variable} in the environment is not used: {error}")
        return default

    def _given(self, option: Option) -> bool:
        variables = (option.variable, option.also)
        return option.name in self._flags or any(self._environ.get(variable) for variable in variables)

    def _from_flag(self, option: Option, spelling: Option, default: Any) -> Any:
        texts = self._flags[spelling.name]
        try:
            parsed = [spelling.parse(text) for text in texts]
        except ValueError as error:
            self.errors.append(f"--{spelling.flag}: {error}")
            return default
        return tuple(dict.fromkeys(item for part in parsed for item in part)) if option.repeatable else parsed[-1]

    def _from_environment(self, option: Option, variables: tuple[str, ...], default: Any) -> Any:
        unset = object()
        value = self.environment(variables, option.parse, default=unset)
        if value is unset:
            return default
        source = next(variable for variable in variables if self._environ.get(variable))
        if source == option.also and option.also_deprecated:
            self.warnings.append(f"{source} in the environment is deprecated: use --{option.flag}")
        return value


def _names_of(flag: str) -> list[Option]:
    """Return an option and its other names, its own first."""
    return sorted(
        (option for option in OPTIONS if flag in {option.flag, option.sets}), key=lambda each: bool(each.sets)
    )


def _nothing(option: Option) -> Any:
    """The value of an option that has no default."""
    return () if option.repeatable else None if option.parse in {option_values.count, option_values.port} else ""


class _Override(NamedTuple):
    value: int
    warnings: list[str]
    given: bool
    """Whether a variable gave it."""


def _override(
    environ: Mapping[str, str], prefixes: tuple[str, ...], gvk: GVK, parse: Callable[[str], int], default: int
) -> _Override:
    """Look for `<PREFIX>_<KIND>_<GROUP>`; the first prefix is today's, others are deprecated."""
    warnings: list[str] = []
    for prefix in prefixes:
        name = next((name for name in _spellings(prefix, gvk) if environ.get(name)), "")
        if not name:
            continue
        if prefix != prefixes[0]:
            warnings.append(f"{name} in the environment is deprecated: use {_spellings(prefixes[0], gvk)[0]}")
        try:
            return _Override(parse(environ[name]), warnings, given=True)
        except ValueError as error:
            warnings.append(f"{name} in the environment is not used: {error}; {default} is used")
            break
    return _Override(default, warnings, given=False)


def _spellings(prefix: str, gvk: GVK) -> tuple[str, ...]:
    """The variable's name; also with dashes as underscores, since shells know no dashes in names."""
    exact = f"{prefix}_{gvk.kind}_{gvk.group}".replace(".", "_").upper()
    return tuple(dict.fromkeys((exact, exact.replace("-", "_"), exact.replace("-", "_").rstrip("_"))))


def _about_a_kind(name: str) -> bool:
    return name.startswith((f"{_VERBOSITY}_", f"{_WORKERS}_", f"{_OLD_WORKERS}_"))
