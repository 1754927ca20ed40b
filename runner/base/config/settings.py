"""Settings of `ansible-operator run`: each is declared once, with its type, flag, default and help.

`option_values` parses values, `sources` reads flags and environment. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, get_args

from runner.base.config import option_values as parse
from runner.base.config import paths
from runner.base.config.options import (
    ANSIBLE,
    CLUSTER,
    ENDPOINTS,
    LOGGING,
    REPLICAS,
    RUNS,
    Option,
    alias,
    deprecated,
    flag,
    option,
)
from runner.values.objects import GVK

RUNNER_DIR = "/tmp/ansible-operator/runner"  # noqa: S108 - existing tools read this path; its folders have mode 0700

EngineName: TypeAlias = Literal["auto", "warm", "exec"]
"""`exec`: a new interpreter for each run and each module; `warm`: forks of a process that has Ansible loaded; `auto`:
warm if the installed ansible-core was tested with it."""
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
LogEvents: TypeAlias = Literal["tasks", "everything", "nothing"]
LogFormat: TypeAlias = Literal["auto", "json", "console"]
TaskFormat: TypeAlias = Literal["auto", "blocks", "lines", "json"]

_FEWEST_WORKERS = 2
"""Default of workers in a container with a small CPU quota. With two, one is reserved for changes."""
_VERBOSITY = "ANSIBLE_VERBOSITY"
_WORKERS = "MAX_CONCURRENT_RECONCILES"
_OLD_WORKERS = "WORKER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings. Durations are in seconds, sizes in bytes; 0 disables a limit."""

    watches_file: Path = option(
        RUNS, Path, "./watches.yaml", "file that maps each watched kind to its role or playbook", "FILE"
    )
    namespaces: tuple[str, ...] = option(
        RUNS,
        parse.namespaces,
        "",
        "watch only this namespace; for several, repeat the flag or use a comma-separated list; default: all "
        "namespaces",
        "NAME",
        "WATCH_NAMESPACE",
        flag="namespace",
    )
    reconcile_period: float = option(
        RUNS, parse.period, "10h", "time between periodic runs of an object; 0s or off disables them", "DURATION"
    )
    run_timeout: float = option(
        RUNS,
        parse.period,
        "off",
        "maximum duration of a run; the operator ends a run that exceeds it, and the run has failed",
        "DURATION",
    )
    max_concurrent_reconciles: int | None = option(
        RUNS,
        parse.count,
        None,
        "maximum number of objects of a kind that are reconciled concurrently; default: number of usable CPUs, at "
        "least 2. MAX_CONCURRENT_RECONCILES_<KIND>_<GROUP> overrides it for one kind",
        "N",
    )
    max_concurrent_runs: int | None = option(
        RUNS,
        parse.count,
        None,
        "maximum number of objects of all kinds that are reconciled concurrently, with at least one per kind; "
        "default: twice the number of usable CPUs, or the sum of all explicit worker counts if that is larger",
        "N",
    )
    graceful_shutdown_timeout: float = option(
        RUNS, parse.span, "30s", "time that active runs have to finish when the operator shuts down", "DURATION"
    )
    inject_owner_ref: bool = option(
        RUNS,
        parse.boolean,
        "true",
        "add an owner reference to every object that a run creates, and watch these objects",
    )
    runner_dir: Path = option(RUNS, parse.absolute_path, RUNNER_DIR, "folder that contains the run folders", "DIR")
    runner_dir_limit: int = option(
        RUNS,
        parse.quantity,
        "1Gi",
        "maximum size of all run folders together, such as 200Mi; the operator removes the least recently used "
        "of the largest namespace first; 0: no limit",
        "SIZE",
    )
    ansible_verbosity: int = option(
        ANSIBLE,
        parse.verbosity,
        "2",
        "verbosity of ansible-playbook, 0 to 7; ANSIBLE_VERBOSITY_<KIND>_<GROUP> overrides it for one kind",
        "N",
    )
    ansible_roles_path: str = option(
        ANSIBLE, str, "", "colon-separated folders of roles, searched before ./roles", "DIRS", "ANSIBLE_ROLES_PATH"
    )
    ansible_collections_path: str = option(
        ANSIBLE,
        str,
        "",
        "colon-separated folders of collections, searched before ~/.ansible/collections and "
        "/usr/share/ansible/collections",
        "DIRS",
        "ANSIBLE_COLLECTIONS_PATH",
    )
    ansible_args: str = option(
        ANSIBLE, parse.arguments, "", "more arguments for ansible-playbook, such as '--diff --tags fast'", "ARGS"
    )
    engine: EngineName = option(
        ANSIBLE,
        parse.one_of(*ENGINES),
        "auto",
        "how runs start: warm (fork of a process that has Ansible loaded), exec (new interpreter), or auto (warm "
        "if the installed ansible-core was tested with it, otherwise exec); engine of a watch overrides this",
        "NAME",
    )
    warm_without: frozenset[str] = option(
        ANSIBLE,
        parse.names,
        "",
        "comma-separated shortcuts of the warm engine to disable; see docs/engine.md",
        "NAMES",
    )
    run_memory_limit: int = option(
        ANSIBLE,
        parse.quantity,
        None,
        "maximum memory of all processes of a run together, such as 512Mi or 2Gi; 0: no limit; default: three "
        "quarters of the memory limit of the operator's container",
        "SIZE",
    )
    ansible_log_events: LogEvents = option(
        ANSIBLE,
        parse.one_of(*get_args(LogEvents)),
        "tasks",
        "events of a run to log: tasks, everything or nothing",
        "WHAT",
    )
    ansible_log_format: TaskFormat = option(
        ANSIBLE,
        parse.one_of(*get_args(TaskFormat)),
        "auto",
        "format of these events: blocks, lines, json, or auto: lines in a console log, otherwise blocks",
        "FORMAT",
    )
    kubeconfig: str | None = option(
        CLUSTER,
        parse.optional_text,
        "",
        "kubeconfig file; default: $KUBECONFIG, the pod's service account, ~/.kube/config",
        "FILE",
    )
    context: str | None = option(
        CLUSTER, parse.optional_text, "", "context of the kubeconfig; default: its current context", "NAME"
    )
    record_rbac: Path | None = option(
        CLUSTER,
        parse.optional_path,
        "",
        "record the permissions that the operator and its runs use as Roles in this file, added to its content",
        "FILE",
    )
    proxy_port: int = option(
        CLUSTER, parse.port, "8888", "loopback port of the API proxy for runs; 0: a free port", "PORT"
    )
    health_probe_bind_address: str = option(
        ENDPOINTS, parse.address, ":6789", "address of /healthz and /readyz; 0: disabled", "ADDRESS"
    )
    metrics_bind_address: str = option(ENDPOINTS, parse.address, ":8443", "address of /metrics; 0: disabled", "ADDRESS")
    ui_bind_address: str | None = option(
        ENDPOINTS,
        parse.loopback,
        None,
        "loopback address of the status page; 0: disabled; default: disabled in a cluster, otherwise a free port "
        "that the operator logs",
        "ADDRESS",
    )
    user_metrics_port: int | None = option(
        ENDPOINTS,
        parse.port,
        None,
        "loopback port that receives the metrics of roles; 0: a free port; default: 5050, or a free port if 5050 "
        "is in use",
        "PORT",
    )
    pods_address: str = option(
        ENDPOINTS,
        str,
        "",
        "address of the operator for pods of runs: name of a headless Service in its namespace, or host:port; required "
        "for isolation: pod",
        "ADDRESS",
    )
    pods_bind_address: str = option(
        ENDPOINTS, parse.address, ":8444", "address of the server for pods of runs, if a watch uses them", "ADDRESS"
    )
    metrics_secure: bool = option(
        ENDPOINTS,
        parse.boolean,
        "false",
        "serve metrics over TLS, with a self-signed certificate or the one in --metrics-cert-path",
    )
    metrics_cert_path: Path | None = option(
        ENDPOINTS,
        parse.optional_path,
        "",
        "folder that contains the certificate, tls.crt, and its key, tls.key; reloaded on change",
        "DIR",
    )
    metrics_require_rbac: bool = option(
        ENDPOINTS,
        parse.boolean,
        "false",
        "serve metrics only to clients whose token is valid and may get /metrics; requires --metrics-secure",
    )
    leader_elect: bool = option(
        REPLICAS, parse.boolean, "false", "elect a leader; only one replica is active at a time"
    )
    leader_election_id: str = option(
        REPLICAS,
        parse.lease_name,
        "",
        "name of the leader's Lease",
        "NAME",
        "OPERATOR_NAME",
    )
    leader_election_namespace: str = option(
        REPLICAS, str, "", "namespace of the Lease; default: the pod's namespace", "NAME"
    )
    leader_elect_lease_duration: float = option(
        REPLICAS, parse.span, "15s", "time after which a Lease expires if it is not renewed", "DURATION"
    )
    leader_elect_renew_deadline: float = option(
        REPLICAS,
        parse.span,
        "10s",
        "time that the leader retries to renew its Lease before it gives up leadership",
        "DURATION",
    )
    log_level: parse.LogLevel = option(LOGGING, parse.log_level, "info", "debug, info, warning or error", "LEVEL")
    log_format: LogFormat = option(
        LOGGING,
        parse.one_of(*get_args(LogFormat)),
        "auto",
        "json, console (human-readable), or auto: console on a terminal, otherwise json",
        "FORMAT",
    )
    cpus: int
    """Number of CPUs that the process may use."""
    ansible_debug_logs: bool
    """Print the whole output of a run when it ends."""
    raised_verbosity: bool
    """Whether `ANSIBLE_VERBOSITY` is more than 0: the log contains all output of tasks."""
    pod_name: str
    overrides: Mapping[str, str]
    """Environment variables that override a setting for one kind."""

    def verbosity_for(self, gvk: GVK) -> int:
        """Return the verbosity of Ansible for a kind."""
        return self._verbosity(gvk).value

    def is_raised(self, gvk: GVK) -> bool:
        """Return whether the environment raises the verbosity of a kind above the flag."""
        return self.raised_verbosity or self.verbosity_for(gvk) > self.ansible_verbosity

    def search_path(self, environ: Mapping[str, str], cwd: Path) -> paths.SearchPath:
        """Return the folders of roles and collections."""
        return paths.search_path(
            cwd=cwd,
            roles_path=self.ansible_roles_path,
            collections_path=self.ansible_collections_path,
            environ=environ,
        )

    def workers_for(self, gvk: GVK) -> int:
        """Return how many objects of a kind are reconciled concurrently."""
        return self._workers(gvk).value

    def most_runs(self, kinds: Iterable[GVK]) -> int:
        """Return how many objects of these kinds together are reconciled concurrently.

        Explicit worker counts are never reduced.
        """
        if self.max_concurrent_runs is not None:
            return self.max_concurrent_runs
        return max(2 * self.cpus, sum(self.workers_for(gvk) for gvk in kinds if self._is_explicit(gvk)))

    def warnings_for(self, kinds: Iterable[GVK]) -> tuple[str, ...]:
        """Return a warning for each problem with the variables of these kinds."""
        return tuple(
            warning
            for gvk in kinds
            for override in (self._verbosity(gvk), self._workers(gvk))
            for warning in override.warnings
        )

    def _is_explicit(self, gvk: GVK) -> bool:
        """Return whether a flag or a variable sets the number of workers of a kind."""
        return self.max_concurrent_reconciles is not None or self._workers(gvk).is_explicit

    def _verbosity(self, gvk: GVK) -> _Override:
        return _override(self.overrides, (_VERBOSITY,), gvk, parse.verbosity, self.ansible_verbosity)

    @property
    def _default_workers(self) -> int:
        return max(_FEWEST_WORKERS, self.cpus)

    def _workers(self, gvk: GVK) -> _Override:
        default = self.max_concurrent_reconciles or self._default_workers
        return _override(self.overrides, (_WORKERS, _OLD_WORKERS), gvk, parse.count, default)


class _Override(NamedTuple):
    value: int
    warnings: list[str]
    is_explicit: bool


def _override(
    environ: Mapping[str, str], prefixes: tuple[str, ...], gvk: GVK, convert: Callable[[str], int], default: int
) -> _Override:
    """Read `<PREFIX>_<KIND>_<GROUP>`. Prefixes after the first are deprecated."""
    warnings: list[str] = []
    for prefix in prefixes:
        name = next((name for name in _variable_names(prefix, gvk) if environ.get(name)), "")
        if not name:
            continue
        if prefix != prefixes[0]:
            current = _variable_names(prefixes[0], gvk)[0]
            warnings.append(f"environment variable {name} is deprecated: use {current}")
        try:
            return _Override(convert(environ[name]), warnings, is_explicit=True)
        except ValueError as error:
            warnings.append(f"environment variable {name} is ignored: {error}; using {default}")
            break
    return _Override(default, warnings, is_explicit=False)


def _variable_names(prefix: str, gvk: GVK) -> tuple[str, ...]:
    """Return the name with dashes, and with underscores instead, since shells allow no dashes in names."""
    exact = f"{prefix}_{gvk.kind}_{gvk.group}".replace(".", "_").upper()
    return tuple(dict.fromkeys((exact, exact.replace("-", "_"), exact.replace("-", "_").rstrip("_"))))


def is_override(variable: str) -> bool:
    """Return whether the name of a variable is one that overrides a setting for one kind."""
    return variable.startswith((f"{_VERBOSITY}_", f"{_WORKERS}_", f"{_OLD_WORKERS}_"))


_OF_FIELDS = tuple(
    replace(item.metadata["option"], field=item.name, flag=item.metadata["option"].flag or item.name.replace("_", "-"))
    for item in fields(Settings)
    if "option" in item.metadata
)
DEVELOPMENT_LOG = flag(
    LOGGING,
    "zap-devel",
    parse.boolean,
    "alias of --log-level=debug --log-format=console; --log-level and --log-format override it",
)
ALIASES = (
    alias(LOGGING, "zap-log-level", "log_level", parse.log_level, "LEVEL"),
    alias(LOGGING, "zap-encoder", "log_format", parse.one_of("json", "console"), "FORMAT"),
    deprecated(
        alias("", "metrics-addr", "metrics_bind_address", parse.address, "ADDRESS"), "use --metrics-bind-address"
    ),
    deprecated(alias("", "enable-leader-election", "leader_elect", parse.boolean), "use --leader-elect"),
)
_WITHOUT_EFFECT = (
    flag(LOGGING, "zap-stacktrace-level", str, "accepted without effect", "LEVEL"),
    flag(LOGGING, "zap-time-encoding", str, "accepted without effect; times are ISO 8601", "ENCODING"),
    deprecated(flag("", "leader-elect-resource-lock", str, "", "KIND"), "remove this flag: only Leases are supported"),
    deprecated(flag("", "enable-http2", parse.boolean, ""), "remove this flag: only HTTP/1.1 is supported"),
)
OPTIONS: tuple[Option, ...] = (*_OF_FIELDS, DEVELOPMENT_LOG, *ALIASES, *_WITHOUT_EFFECT)
GROUPS: dict[str, tuple[Option, ...]] = {
    group: tuple(option for option in OPTIONS if option.group == group)
    for group in dict.fromkeys(option.group for option in OPTIONS)
}
"""Options by section, in the order of `--help`."""
